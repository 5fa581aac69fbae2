#include "libcore/model/block_shape.h"

#include <cmath>

#include "libcore/spec/tensor_parallel.h"

namespace rw {

BlockShape::BlockShape(const ModelSpec& spec, int64_t tp)
    : norm(spec.layer_norm() ? NormKind::layer : NormKind::rms),
      gated(spec.gated_mlp()),
      c(spec.width),
      h(spec.heads / tp),
      hkv(spec.kv_heads * kv_share(spec, tp) / tp),
      d(spec.head_dim),
      f(spec.ffn / tp),
      u(gated ? 2 * f : f),
      qkv_n((h + 2 * hkv) * d),
      eps(static_cast<float>(spec.norm_eps)),
      scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)))) {}

}  // namespace rw
