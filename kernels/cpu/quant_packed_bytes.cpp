#include "kernels/cpu/quant_layout.h"

namespace rw {

int64_t quant_packed_bytes(const QuantPack& p, Stream) {
  const QuantLayout l(p.bits, p.group, p.n, p.k);
  return l.panels * l.panel;
}

}  // namespace rw
