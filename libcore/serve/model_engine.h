// From a spec to an engine that runs: the model opened, the memory dealt out, the ranks at work.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/device/device.h"
#include "libcore/formats/model_source.h"
#include "libcore/serve/live_engine.h"
#include "libcore/serve/memory_budget.h"
#include "libcore/serve/model_runner.h"
#include "libcore/spec/serve_spec.h"
#include "libcore/text/tokenizer.h"

namespace rw {

// A model as it is served: what is known before the weights are in memory.
struct ServingModel {
  std::string name;  // --served-model-name, or the folder's
  ModelSource source;
  std::unique_ptr<Tokenizer> tokenizer;
  std::string identity;       // of configuration, tokenizer and, of a checkpoint, its step: 16 hex digits
  int64_t max_model_len;      // --max-model-len, or the model's
  std::vector<int32_t> ends;  // ids that end a text
  int64_t created;            // seconds since 1970 of the model's file
};
// Collective: the ranks open it alike, or all throw SharedError (input or usage), which says what of the model or the
// flags does not fit.
ServingModel open_serving_model(const ServeSpec& spec, Comm& world);

// What a rank computes on (--device), and the communicator that knows its memory.
struct ServingDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<Comm> on_device;  // null: the host's serves

  Comm& ranks(Comm& world) const { return on_device != nullptr ? *on_device : world; }
};
// Collective: all ranks throw SharedError where one has no such device. world outlives it.
ServingDevice open_serving_device(const ServeSpec& spec, Comm& world);

// The runner of this rank. Collective: the ranks agree on the smallest cache any of them has room for. Takes the
// memory, reads the weights.
struct ServingRunner {
  std::unique_ptr<ModelRunner> runner;
  MemoryBudget budget;
  SchedulerSpec scheduler;
  int64_t page_bytes;
};
ServingRunner make_serving_runner(const ServeSpec& spec, const ServingModel& model, const ServingDevice& on,
                                  Comm& world);

// The first rank's engine; it warms up and is ready by itself. model and device outlive it.
std::unique_ptr<Engine> make_engine(const ServeSpec& spec, const ServingModel& model, std::vector<WarmPrompt> warmup,
                                    const ServingDevice& on, Comm& world);
// Another rank's life. Returns when the first one says so; throws when that is gone.
void serve_other_rank(const ServeSpec& spec, Comm& world);

}  // namespace rw
