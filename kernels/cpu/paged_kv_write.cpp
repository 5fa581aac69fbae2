// Storing new keys and values in their pages.
#include <cstring>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {

void kv_write(const KvWrite& a, Stream stream) {
  const int64_t bytes = a.kv_heads * a.d * dtype_bytes(a.t), ld = a.ld == 0 ? bytes : a.ld * dtype_bytes(a.t);
  parallel_ranges(stream.threads, a.rows, 1 + 65536 / (bytes + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (a.slot[r] < 0) continue;
      std::memcpy(static_cast<char*>(a.k_pages) + a.slot[r] * bytes, static_cast<const char*>(a.k) + r * ld,
                  static_cast<size_t>(bytes));
      std::memcpy(static_cast<char*>(a.v_pages) + a.slot[r] * bytes, static_cast<const char*>(a.v) + r * ld,
                  static_cast<size_t>(bytes));
    }
  });
}

}  // namespace rw::RW_ISA
