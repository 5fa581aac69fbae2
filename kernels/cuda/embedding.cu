// Rows of a table, gathered; and their gradients, added in the order of the rows. For that each block looks at all rows
// and takes those whose id falls into its class: an id belongs to one class, so its sums have one order and no two
// blocks meet.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int64_t kMostClasses = 256, kRowsOfClass = 32;  // about
constexpr int kAtOnce = 8;                                // gradients of a thread that are on their way together

template <class T, class Table>
struct Gather {
  T* x;
  const Table* table;
  const float* pos_table;
  const int32_t *id, *pos;
  int64_t rows, c, id_begin, id_end;
};

template <class T, class Table>
__global__ void embedding_fwd_kernel(Gather<T, Table> a) {
  const int64_t i = global_index();
  if (i >= a.rows * a.c) return;
  const int64_t r = i / a.c, j = i % a.c, id = a.id[r];
  float v = 0;
  if (id >= a.id_begin && id < a.id_end) v = to_float(a.table[(id - a.id_begin) * a.c + j]);
  if (a.pos_table != nullptr) v += a.pos_table[static_cast<int64_t>(a.pos[r]) * a.c + j];
  a.x[i] = from_float<T>(v);
}

struct Ids {
  const int32_t* id;
  int64_t rows, begin, end;
};

// The rows of a class are found kThreads at a time, all threads looking; then each thread adds them up in its column.
template <class T>
__global__ void __launch_bounds__(kThreads) scatter_add_kernel(float* table, const T* d_x, Ids ids, int64_t c) {
  SHARED(int, counts, kWarps);
  SHARED(int, found, kThreads);     // rows of this class, rising
  SHARED(int, found_id, kThreads);  // theirs
  const int64_t j = global_index();
  const int tid = static_cast<int>(threadIdx.x), warp = tid / kWarp, lane = tid % kWarp;
  for (int64_t first = 0; first < ids.rows; first += kThreads) {
    const int id = first + tid < ids.rows ? ids.id[first + tid] : -1;
    const bool in = id >= 0 && id >= ids.begin && id < ids.end && static_cast<unsigned>(id) % gridDim.y == blockIdx.y;
    const unsigned ours = __ballot_sync(kFullMask, in ? 1 : 0);
    if (lane == 0) counts[warp] = __popc(ours);
    __syncthreads();
    int at = __popc(ours & ((1U << lane) - 1)), n = 0;
    for (int w = 0; w < kWarps; ++w) {
      at += w < warp ? counts[w] : 0;
      n += counts[w];
    }
    if (in) {
      found[at] = tid;
      found_id[at] = id;
    }
    __syncthreads();
    for (int i = 0; i < n && j < c; i += kAtOnce) {
      float d[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) d[k] = i + k < n ? to_float(d_x[(first + found[i + k]) * c + j]) : 0.F;
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (i + k < n) table[(found_id[i + k] - ids.begin) * c + j] += d[k];
    }
  }
}

}  // namespace

void embedding_fwd(const EmbeddingFwd& a, Stream s) {
  const int64_t n = a.rows * a.c;
  if (n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    with_type(a.table_t, [&](auto entry) {
      using Table = decltype(entry);
      const Gather<T, Table> gather{as<T>(a.x), as<Table>(a.table), a.pos_table, a.id, a.pos, a.rows,
                                    a.c,        a.id_begin,         a.id_end};
      LAUNCH((embedding_fwd_kernel<T, Table>), blocks_for(n, kThreads), dim3(kThreads), 0, native(s), gather);
    });
  });
}

void embedding_bwd(const EmbeddingBwd& a, Stream s) {
  if (a.rows == 0 || a.c == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    dim3 grid = blocks_for(a.c, kThreads);
    grid.y = static_cast<unsigned>(std::min(kMostClasses, (a.rows + kRowsOfClass - 1) / kRowsOfClass));
    if (a.d_table != nullptr)
      LAUNCH(scatter_add_kernel<T>, grid, dim3(kThreads), 0, native(s), a.d_table, as<T>(a.d_x),
             (Ids{a.id, a.rows, a.id_begin, a.id_end}), a.c);
    if (a.d_pos_table != nullptr)
      LAUNCH(scatter_add_kernel<T>, grid, dim3(kThreads), 0, native(s), a.d_pos_table, as<T>(a.d_x),
             (Ids{a.pos, a.rows, 0, INT64_MAX}), a.c);
  });
}

}  // namespace rw::cuda
