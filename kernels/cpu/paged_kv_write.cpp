// Storing new keys and values in their pages.
#include "kernels/cpu/page_types.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/round_to_int.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

// One token's row of k or v, all its heads.
template <class T, class Kv>
void write_row(const KvWrite& a, void* pages, float*, const T* x, int64_t slot) {
  const int64_t n = a.kv_heads * a.d;
  Kv* y = static_cast<Kv*>(pages) + slot * n;
  if constexpr (__is_same(T, Kv)) __builtin_memcpy(y, x, static_cast<uint64_t>(n) * sizeof(T));  // NaNs as they are
  else each_vector(0, n, [&](int64_t i, auto part) RW_LAMBDA { store(y + i, load(x + i, part), part); });
}

template <class T>
void write_row_i8(const KvWrite& a, void* pages, float* scales, const T* x, int64_t slot) {
  for (int64_t h = 0; h < a.kv_heads; ++h, x += a.d) {
    const float scale = largest_magnitude(x, a.d) / 127;
    scales[slot * a.kv_heads + h] = scale;
    const vf inverse = splat(scale > 0 ? 1 / scale : 0);
    int8_t* y = static_cast<int8_t*>(pages) + (slot * a.kv_heads + h) * a.d;
    each_vector(0, a.d, [&](int64_t i, auto part) RW_LAMBDA {
      const vb q = __builtin_convertvector(round_to_int(load(x + i, part) * inverse), vb);
      __builtin_memcpy(y + i, &q, static_cast<uint64_t>(a.d - i < kW ? a.d - i : kW));
    });
  }
}

template <class T, class Kv>
constexpr auto page_writer(Kv) {
  return &write_row<T, Kv>;
}
template <class T>
constexpr auto page_writer(int8_t) {
  return &write_row_i8<T>;
}

template <class T, class Kv>
void write_all(const KvWrite& a, Stream stream) {
  const int64_t width = a.kv_heads * a.d, ld = a.ld == 0 ? width : a.ld;
  const auto write = page_writer<T>(Kv{});
  parallel_ranges(stream.threads, a.rows, 1 + 32768 / (width + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (a.slot[r] < 0) continue;
      write(a, a.k_pages, a.k_scales, static_cast<const T*>(a.k) + r * ld, a.slot[r]);
      write(a, a.v_pages, a.v_scales, static_cast<const T*>(a.v) + r * ld, a.slot[r]);
    }
  });
}

}  // namespace

void kv_write(const KvWrite& a, Stream stream) {
  with_page_type(a, "kv_write", [&](auto page) {
    with_type(a.t, [&](auto element) { write_all<decltype(element), decltype(page)>(a, stream); });
  });
}

}  // namespace rw::RW_ISA
