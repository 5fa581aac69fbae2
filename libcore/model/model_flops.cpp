#include "libcore/model/model_flops.h"

#include "kernels/ops.h"
#include "libcore/model/block.h"

namespace rw {

ModelFlops training_flops_per_token(const ModelSpec& spec, int64_t seq_len) {
  const BlockShape s(spec, 1);
  const auto product = [&](int64_t n, int64_t k) {
    return cost(Gemm{.c = nullptr, .a = nullptr, .m = seq_len, .n = n, .k = k, .t = DType::f32, .ct = DType::f32})
        .flops;
  };
  const double layer = product(s.qkv_n, s.c) + product(s.c, s.h * s.d) + product(s.u, s.c) + product(s.c, s.f);
  const double linear = static_cast<double>(spec.layers) * layer + product(spec.vocab_size, s.c);
  const int32_t one_sequence[2] = {0, static_cast<int32_t>(seq_len)};
  const double causal =
      static_cast<double>(spec.layers) *
      cost(AttentionFwd{
               .cu_seqlens = one_sequence, .n_seq = 1, .heads = s.h, .kv_heads = s.hkv, .d = s.d, .t = DType::f32})
          .flops;
  const double tokens = static_cast<double>(seq_len);
  return {.full = 3 * (linear + 2 * causal) / tokens, .causal = 3 * (linear + causal) / tokens};
}

}  // namespace rw
