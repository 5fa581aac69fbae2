#include "kernels/quant_shape.h"

#include "kernels/rounded_up.h"
#include "libcore/base/check.h"

namespace rw {

QuantShape quant_shape(QuantBits bits, int64_t group, int64_t n, int64_t k) {
  const bool wide = bits == QuantBits::int8;
  CHECK(group > 0 && (wide ? group % 64 == 0 && group <= 512 : group % 32 == 0 && group <= 128),
        "groups of %lld weights of %s bits; expected a multiple of %s", static_cast<long long>(group), wide ? "8" : "4",
        wide ? "64 up to 512" : "32 up to 128");
  QuantShape q{};
  q.n = n, q.k = k, q.group = group, q.wide = wide;
  q.block = wide ? group : 4 * group;
  q.padded = rounded_up(k, kQuantStep);
  q.blocks = (q.padded + q.block - 1) / q.block;
  q.row_bytes = wide ? q.padded : q.padded / 2;
  q.scales_at = rounded_up(n * q.row_bytes, 64);
  q.own_at = rounded_up(q.scales_at + n * q.blocks * 2, 64);
  q.bytes = wide ? q.own_at : rounded_up(q.own_at + n * q.blocks * 2, 64);
  return q;
}

}  // namespace rw
