// Blocks that walk over single rows, or over tiles of rows. What goes through the keys is an Engine:
//   kRows                     rows that it holds at once
//   Engine(work, shared)      of a block; all threads
//   load(tile)                the tile's q; ends with a barrier
//   through(tile, from, to)   the positions [from, to), from nothing; ends with a barrier
//   softmax(row), value(row, c)   what came of it
//   totals()                  floats for min(kRows, group) * (d + 2), kept between calls of through; single rows only
//   finish(tile)              o of a tile's rows from what came of them, divided; ends with a barrier; tiled rows only
#pragma once
#include "kernels/cuda/paged_work.cuh"

namespace rw::cuda {

// What came of all chunks so far, in shared memory.
template <class Engine>
struct ChunkSums {
  float *o, *max, *sum;
  __device__ ChunkSums(Engine& e, int rows, int d) : o(e.totals()), max(o + rows * d), sum(max + rows) {}

  // Ends with a barrier.
  __device__ void add(const Engine& e, int rows, int d, bool first) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * d; i += kPagedThreads) {
      const int r = i / d;
      const float x = e.value(r, i % d);
      o[i] = first ? x : merged(merge_weights(max[r], e.softmax(r).max), o[i], x);
    }
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.x); r < rows; r += kPagedThreads) {
      const Softmax x = e.softmax(r);
      const MergeWeights w = first ? MergeWeights{x.max, 0, 1} : merge_weights(max[r], x.max);
      sum[r] = first ? x.sum : merged(w, sum[r], x.sum);
      max[r] = w.max;
    }
    __syncthreads();
  }
};

// f(the rows, their context's length) for every `stride`-th tile of rows of a query, from the `at`-th on, of those
// sequences that `takes` wants.
template <int kRows, class Takes, class F>
__device__ __forceinline__ void each_row_tile(const PagedWork& a, int64_t at, int stride, const Takes& takes,
                                              const F& f) {
  const auto start = [&](int64_t s) { return static_cast<int64_t>(a.q_start[s]); };
  for (int64_t i = at;;) {
    const int tiles = (a.group + kRows - 1) / kRows, per_query = a.kv_heads * tiles;  // tiles: of a kv head
    const int64_t first = start(0), query = first + i / per_query;
    if (query >= start(a.n_seq)) return;
    const int64_t s = sequence_at(start, a.n_seq, query);
    if (!takes(s)) {  // go on behind it
      const int64_t end = (start(s + 1) - first) * per_query;
      i += (end - i + stride - 1) / stride * stride;
      continue;
    }
    const int rest = static_cast<int>(i % per_query), tile = rest % tiles;
    RowTile t{};
    t.s = s;
    t.first_query = start(s);
    t.before = a.context_len[s] - queries_of(a, s);
    t.row0 = (query - t.first_query) * a.group + tile * kRows;
    t.rows = static_cast<int>(smaller(kRows, a.group - tile * kRows));
    t.kv_head = rest / tiles;
    f(t, last_position(a, t, 0) + 1);
    i += stride;
  }
}

// What decodes goes chunk by chunk, blockIdx.y being the chunk. Of the rest a block goes through all chunks.
template <class Engine>
__global__ void __launch_bounds__(kPagedThreads, 1) paged_single_kernel(PagedWork a) {
  DYN_SHARED(unsigned char, shared);
  Engine e(a, shared);
  const int d = a.d;
  const auto is_split = [&](int64_t s) { return a.chunks > 1 && queries_of(a, s) == 1; };
  const auto is_whole = [&](int64_t s) { return !is_split(s) && !is_tiled(a, s); };
  if (a.chunks > 1)
    each_row_tile<Engine::kRows>(
        a, blockIdx.x, static_cast<int>(gridDim.x), is_split, [&](const RowTile& t, int64_t context) {
          const int64_t length = chunk_length(context), chunks = chunks_of(context), chunk = blockIdx.y;
          if (chunk >= chunks) return;
          e.load(t);
          e.through(t, chunk * length, smaller(context, (chunk + 1) * length));
          const int64_t head0 = t.kv_head * a.group + t.row0;
          for (int j = static_cast<int>(threadIdx.x); j < t.rows * d; j += kPagedThreads) {
            const int r = j / d, c = j % d;
            if (chunks == 1) store_as(a.o, a.t, row_offset(a, t, r, a.ldo) + c, e.value(r, c) / e.softmax(r).sum);
            else part_of(a, t.s, chunk, head0 + r)[c] = e.value(r, c);
          }
          for (int r = static_cast<int>(threadIdx.x); r < t.rows && chunks > 1; r += kPagedThreads) {
            float* const part = part_of(a, t.s, chunk, head0 + r) + d;
            part[0] = e.softmax(r).max;
            part[1] = e.softmax(r).sum;
          }
          __syncthreads();
        });
  const auto block = static_cast<int>(blockIdx.x + gridDim.x * blockIdx.y),
             blocks = static_cast<int>(gridDim.x * gridDim.y);
  each_row_tile<Engine::kRows>(a, block, blocks, is_whole, [&](const RowTile& t, int64_t context) {
    const int64_t length = chunk_length(context);
    e.load(t);
    ChunkSums<Engine> total(e, t.rows, d);
    for (int64_t from = 0; from < context; from += length) {
      e.through(t, from, smaller(context, from + length));
      total.add(e, t.rows, d, from == 0);
    }
    for (int j = static_cast<int>(threadIdx.x); j < t.rows * d; j += kPagedThreads)
      store_as(a.o, a.t, row_offset(a, t, j / d, a.ldo) + j % d, total.o[j] / total.sum[j / d]);
    __syncthreads();
  });
}

// Tiles of a sequence: as many as begin(s + 1) - begin(s) has room for, the last of them perhaps without rows. With
// that a tile's sequence is found in q_start alone. Later tiles see more keys: they come first.
template <class Engine>
__global__ void __launch_bounds__(kPagedThreads, 1) paged_tiled_kernel(PagedWork a) {
  DYN_SHARED(unsigned char, shared);
  const int64_t first = a.q_start[0], stride = gridDim.x;
  const auto begin = [&](int64_t s) { return (a.q_start[s] - first) * a.group / Engine::kRows + s; };
  const int64_t all = begin(a.n_seq) * a.kv_heads;
  Engine e(a, shared);
  for (int64_t i = blockIdx.x; i < all; i += stride) {
    const int64_t tile = begin(a.n_seq) - 1 - i / a.kv_heads, s = sequence_at(begin, a.n_seq, tile);
    if (!is_tiled(a, s)) {
      const int64_t end = (begin(a.n_seq) - begin(s)) * a.kv_heads;  // of its tiles, counted from the back
      i += (end - i - 1) / stride * stride;
      continue;
    }
    const int64_t n = queries_of(a, s), row0 = (tile - begin(s)) * Engine::kRows, left = n * a.group - row0;
    if (left <= 0) continue;
    RowTile t{};
    t.s = s;
    t.first_query = a.q_start[s];
    t.before = a.context_len[s] - n;
    t.row0 = row0;
    t.rows = static_cast<int>(smaller(Engine::kRows, left));
    t.kv_head = static_cast<int>(i % a.kv_heads);
    e.load(t);
    e.through(t, 0, last_position(a, t, t.rows - 1) + 1);
    e.finish(t);
  }
}

// Two blocks to each of an H100's multiprocessors. They walk, so another GPU needs no other number.
constexpr int64_t kWalkers = 264;

// As many blocks as decoding needs; and enough for a few queries to each sequence, or for any number of them.
template <class Engine>
void launch_single(const PagedWork& a, Stream s) {
  const size_t bytes = Engine::shared_bytes(a);
  const int64_t tiles = (a.group + Engine::kRows - 1) / Engine::kRows, decoding = a.n_seq * a.kv_heads * tiles;
  const int64_t walkers = a.tiles ? smaller(kWalkers, decoding * (kTiledQueries - 1)) : kWalkers;
  const int64_t least = (walkers + a.chunks - 1) / a.chunks;  // in a row of the grid
  dim3 grid = blocks_for(decoding < least ? least : smaller(decoding, int64_t{1} << 20), 1);
  grid.y = static_cast<unsigned>(a.chunks);
  allow_shared(paged_single_kernel<Engine>, bytes);
  LAUNCH(paged_single_kernel<Engine>, grid, dim3(kPagedThreads), bytes, native(s), a);
}
template <class Engine>
void launch_tiled(const PagedWork& a, Stream s) {
  const size_t bytes = Engine::shared_bytes(a);
  allow_shared(paged_tiled_kernel<Engine>, bytes);
  LAUNCH(paged_tiled_kernel<Engine>, blocks_for(kWalkers, 1), dim3(kPagedThreads), bytes, native(s), a);
}

}  // namespace rw::cuda
