#include "kernels/cuda/paged_floats.cuh"

namespace rw::cuda {
namespace {

template <class Kv>
void attend(const PagedWork& a, Stream s) {
  launch_single<FloatRows<Kv, 8>>(a, s);
  if (!a.tiles) return;
  // Wide heads leave no room for more rows.
  if (a.d <= FloatRows<Kv, 8>::kWidest) launch_tiled<FloatRows<Kv, 32>>(a, s);
  else launch_tiled<FloatRows<Kv, 8>>(a, s);
}

}  // namespace

void paged_in_floats(const PagedWork& a, DType kv_t, Stream s) {
  if (kv_t == DType::i8) return attend<int8_t>(a, s);
  with_type(kv_t, [&](auto page) { attend<decltype(page)>(a, s); });
}

}  // namespace rw::cuda
