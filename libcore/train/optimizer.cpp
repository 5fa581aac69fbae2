#include "libcore/train/optimizer.h"

#include <algorithm>
#include <cmath>

namespace rw {
namespace {
constexpr int64_t kNormBlock = 65536;
int64_t n_blocks(int64_t n) { return (n + kNormBlock - 1) / kNormBlock; }
}  // namespace

Optimizer::Optimizer(const ParamLayout& layout, const AdamSettings& settings, Arena& arena, int threads)
    : layout_(layout),
      settings_(settings),
      m_(arena.take_n<float>(layout.total(), MemoryOwner::optimizer, threads)),
      v_(arena.take_n<float>(layout.total(), MemoryOwner::optimizer, threads)) {
  int64_t most = 0;
  for (size_t i = 0; i < layout.params().size(); ++i) most = std::max(most, n_blocks(layout.slice(i).n));
  partials_.resize(static_cast<size_t>(most));
}

double Optimizer::grad_norm(const float* grads, const Exec& exec) {
  double sum = 0;
  for (size_t i = 0; i < layout_.params().size(); ++i) {
    const Range slice = layout_.slice(i);
    exec.ops.sum_squares({.partial = partials_.data(), .x = grads + slice.offset, .n = slice.n, .block = kNormBlock},
                         exec.stream);
    for (int64_t b = 0; b < n_blocks(slice.n); ++b) sum += partials_[static_cast<size_t>(b)];
  }
  return std::sqrt(sum);
}

void Optimizer::step(float* params, const float* grads, double lr, double grad_scale, const Exec& exec) {
  ++steps_;
  for (size_t i = 0; i < layout_.params().size(); ++i) {
    const Range slice = layout_.slice(i);
    exec.ops.adamw({.p = params + slice.offset,
                    .m = m_ + slice.offset,
                    .v = v_ + slice.offset,
                    .g = grads + slice.offset,
                    .n = slice.n,
                    .lr = static_cast<float>(lr),
                    .beta1 = settings_.beta1,
                    .beta2 = settings_.beta2,
                    .eps = settings_.eps,
                    .weight_decay = layout_.params()[i].decay ? settings_.weight_decay : 0.0f,
                    .grad_scale = static_cast<float>(grad_scale),
                    .step = steps_},
                   exec.stream);
  }
}

double clip_scale(double grad_norm, double clip_norm) {
  return clip_norm > 0 && grad_norm > clip_norm ? clip_norm / (grad_norm + 1e-6) : 1.0;
}

}  // namespace rw
