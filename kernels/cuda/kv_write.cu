// Storing new keys and values in their pages: a warp has a token's head of k or of v.
#include "kernels/cuda/quant_rounding.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, class Kv>
struct Writes {
  Kv *k_pages, *v_pages;
  const T *k, *v;
  const int64_t* slot;
  int64_t rows, kv_heads, d, ld;
  float *k_scales, *v_scales;
};

template <class T, class Kv>
__global__ void kv_write_kernel(Writes<T, Kv> a) {
  const int64_t warp = global_index() / kWarp, row = warp / (2 * a.kv_heads), head = warp / 2 % a.kv_heads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= a.rows || a.slot[row] < 0) return;  // the whole warp
  const bool is_v = warp % 2 == 1;
  const int64_t to = a.slot[row] * a.kv_heads + head;
  const T* const x = (is_v ? a.v : a.k) + row * a.ld + head * a.d;
  Kv* const y = (is_v ? a.v_pages : a.k_pages) + to * a.d;
  if constexpr (std::is_same_v<Kv, int8_t>) {
    const float scale = warp_largest(x, a.d, lane) / 127.F, by = scale > 0 ? 1.F / scale : 0.F;
    if (lane == 0) (is_v ? a.v_scales : a.k_scales)[to] = scale;
    for (int64_t i = lane; i < a.d; i += kWarp) y[i] = static_cast<int8_t>(round_to_int(to_float(x[i]) * by));
  } else if constexpr (std::is_same_v<Kv, T>) {
    for (int64_t i = lane; i < a.d; i += kWarp) y[i] = x[i];
  } else {
    for (int64_t i = lane; i < a.d; i += kWarp) y[i] = from_float<Kv>(to_float(x[i]));
  }
}

template <class T, class Kv>
void write_all(const KvWrite& a, Stream s) {
  const Writes<T, Kv> w{as<Kv>(a.k_pages),
                        as<Kv>(a.v_pages),
                        as<T>(a.k),
                        as<T>(a.v),
                        a.slot,
                        a.rows,
                        a.kv_heads,
                        a.d,
                        a.ld != 0 ? a.ld : a.kv_heads * a.d,
                        a.k_scales,
                        a.v_scales};
  LAUNCH((kv_write_kernel<T, Kv>), blocks_for(a.rows * 2 * a.kv_heads, kThreads / kWarp), dim3(kThreads), 0, native(s),
         w);
}

}  // namespace

void kv_write(const KvWrite& a, Stream s) {
  CHECK(a.kv_t != DType::i8 || (a.k_scales != nullptr && a.v_scales != nullptr),
        "kv_write: pages of i8 without scales");
  if (a.rows == 0 || a.kv_heads == 0 || a.d == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    if (a.kv_t == DType::i8) return write_all<T, int8_t>(a, s);
    with_type(a.kv_t, [&](auto page) { write_all<T, decltype(page)>(a, s); });
  });
}

}  // namespace rw::cuda
