// What a run is made of, put together from the spec before step 1: model, data, batch, identity.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/comm/comm.h"
#include "libcore/data/data_order.h"
#include "libcore/spec/layout.h"
#include "libcore/spec/model_spec.h"
#include "libcore/spec/train_spec.h"
#include "libcore/train/train_state.h"
#include "libcore/train/validation.h"

namespace rw {

struct TrainData {
  std::vector<std::shared_ptr<const TokenFile>> files;
  std::vector<DataPart> parts;               // training ranges
  std::vector<Validation::Part> validation;  // held-out ranges
  std::string fingerprint;                   // of all training files and ranges
};

// The element type of a --precision: "f32", "f16" or "bf16".
DType precision_type(const std::string& precision);
DType precision_type(const TrainSpec& spec);
StepSettings step_settings(const TrainSpec& spec, const ModelSpec& model, const Layout& layout);
TrainData open_data(const TrainSpec& spec, const ModelSpec& model);
// Refuses to resume what is not the same run (model, data, seed, seq-len), each with both values; says what differs but
// may.
std::vector<std::string> check_resume(const Checkpoint& checkpoint, const TrainState& state, const TrainSpec& spec,
                                      const ModelSpec& model, const TrainData& data);

struct RunInputs {
  const TrainSpec& spec;
  const ModelSpec& model;
  const TrainData& data;
  const Layout& layout;
};
Json run_identity(const RunInputs& in, const Comm& world, const std::string& run_id);
Json layout_json(const Layout& layout);

}  // namespace rw
