#include "libcore/train/train_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rw {
namespace {

struct NamedBuffer {
  const char* prefix;
  float* base;
};

// The rows of dimension 0 that fall to this rank; a scalar or a single row goes to rank 0.
Box row_share(const Shape& shape, int rank, int n_ranks) {
  Box box = whole(shape);
  const int64_t rows = shape[0], from = rows * rank / n_ranks, to = rows * (rank + 1) / n_ranks;
  box.offset[0] = from;
  box.extent[0] = to - from;
  return box;
}

}  // namespace

Json state_json(const TrainState& s) {
  return {{"step", s.step},       {"samples", s.samples},           {"tokens", s.tokens},
          {"updates", s.updates}, {"skipped", s.skipped},           {"seq_len", s.seq_len},
          {"seed", s.seed},       {"global_batch", s.global_batch}, {"data_fingerprint", s.data_fingerprint}};
}

TrainState parse_state(const Json& json, const std::string& where) {
  TrainState s;
  s.step = json_int(json, "step", where);
  s.samples = json_int(json, "samples", where);
  s.tokens = json_int(json, "tokens", where);
  s.updates = json_int(json, "updates", where);
  s.skipped = json_int(json, "skipped", where);
  s.seq_len = json_int(json, "seq_len", where);
  s.seed = json_int(json, "seed", where);
  s.global_batch = json_int(json, "global_batch", where);
  s.data_fingerprint = json_string(json, "data_fingerprint", where);
  return s;
}

std::vector<TensorPiece> checkpoint_pieces(TrainStep& step, int rank, int n_ranks) {
  const NamedBuffer buffers[] = {
      {"", step.params()}, {"adam.m/", step.optimizer().m()}, {"adam.v/", step.optimizer().v()}};
  std::vector<TensorPiece> pieces;
  const ParamLayout& layout = step.layout();
  for (const NamedBuffer& buffer : buffers)
    for (size_t i = 0; i < layout.params().size(); ++i) {
      const Param& p = layout.params()[i];
      const Box box = row_share(p.shape, rank, n_ranks);
      const int64_t row = n_elements(p.shape) / std::max<int64_t>(1, p.shape[0]);
      pieces.push_back({.name = buffer.prefix + p.name,
                        .dtype = DType::f32,
                        .shape = p.shape,
                        .box = box,
                        .data = buffer.base + layout.slice(i).offset + box.offset[0] * row});
    }
  return pieces;
}

void load_params(TrainStep& step, const TensorSource& source, Load what) {
  const ParamLayout& layout = step.layout();
  const auto read_all = [&](const char* prefix, float* base) {
    for (size_t i = 0; i < layout.params().size(); ++i) {
      const Param& p = layout.params()[i];
      source.read(prefix + p.name, whole(p.shape), DType::f32, base + layout.slice(i).offset);
    }
  };
  read_all("", step.params());
  if (what == Load::weights_and_moments) {
    read_all("adam.m/", step.optimizer().m());
    read_all("adam.v/", step.optimizer().v());
  }
  step.refresh_weights();
}

}  // namespace rw
