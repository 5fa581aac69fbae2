#include "kernels/cpu/memory.h"

#include <cstring>

#include "kernels/cpu/parallel.h"
#include "libcore/base/check.h"

namespace rw {

void cpu_zero(const Zero& a, Stream s) {
  constexpr int64_t kGrain = 1 << 16;
  parallel_ranges(s.threads, a.bytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(a.y) + begin, 0, static_cast<size_t>(end - begin));
  });
}

void cpu_read(const Read& a, Stream) {
  CHECK(a.t == DType::f32 || a.t == DType::f64 || a.t == DType::i64, "read: f32, f64 and i64 only, found %s",
        dtype_name(a.t));
  if (a.n > 0) std::memcpy(a.host, a.device, static_cast<size_t>(a.n * dtype_bytes(a.t)));
}

void cpu_upload(const Upload& a, Stream) {
  if (a.device != a.host && a.bytes > 0) std::memcpy(a.device, a.host, static_cast<size_t>(a.bytes));
}

}  // namespace rw
