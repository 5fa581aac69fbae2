// How attention over pages is divided. The host knows neither how many queries there are nor how long the contexts are:
// blocks find their work in q_start by a search, and walk on while there is more.
//
// A row is a (query, query head of one kv head) pair of a sequence: row r is query r / group, head r % group of it.
// Single rows: a block takes rows of one query. Their context is cut into chunks that its length alone determines,
// each gone through from nothing and merged in their order, by one block or by one block each (split-K; Flash-Decoding,
// Dao et al. 2023): the same bits. Tiled rows, of sequences with many queries: a block takes rows of many queries.
#pragma once
#include "kernels/cuda/arch.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/device_sizes.h"
#include "kernels/ops.h"

namespace rw::cuda {

constexpr int kPagedThreads = 128, kPagedWarps = kPagedThreads / kWarp;
constexpr int64_t kTiledQueries = 16;  // from here on a tile of rows costs less than as many single ones
constexpr int64_t kLeastChunk = 256, kMaxChunks = kDeviceMostChunks;

__host__ __device__ constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

struct PagedWork {
  void* o;
  const void *q, *k, *v;
  const float *k_scales, *v_scales;
  const int32_t *table, *q_start, *context_len;
  int64_t n_seq, max_pages, ldo, ldq, page_tokens;
  int heads, kv_heads, group, d;
  float scale_log2;  // scores in powers of two
  DType t;
  bool tiles;      // sequences with many queries are tiled
  bool pieces;     // pages may be read in pieces of 16 bytes
  bool io_pieces;  // q and o too
  int chunks;      // blocks to a decoding query at most; 1: one goes through all
  float* parts;    // (n_seq, chunks, heads, d + 2): o, max, sum of each chunk
};

__host__ __device__ inline int64_t chunk_length(int64_t context) {
  int64_t length = kLeastChunk;
  while (context > kMaxChunks * length) length *= 2;
  return length;
}
__host__ __device__ inline int64_t chunks_of(int64_t context) {
  const int64_t length = chunk_length(context);
  return (context + length - 1) / length;
}

// Rows of one kv head of one sequence.
struct RowTile {
  int64_t s, first_query;  // the sequence, and where its queries begin
  int64_t before;          // positions before its first query
  int64_t row0;
  int rows, kv_head;
};
__device__ __forceinline__ int64_t last_position(const PagedWork& a, const RowTile& t, int64_t row) {
  return t.before + (t.row0 + row) / a.group;
}
// Of a row's head, in q or o with row stride ld.
__device__ __forceinline__ int64_t row_offset(const PagedWork& a, const RowTile& t, int64_t row, int64_t ld) {
  const int64_t at = t.row0 + row;
  return (t.first_query + at / a.group) * ld + (t.kv_head * a.group + at % a.group) * a.d;
}

__device__ __forceinline__ int64_t queries_of(const PagedWork& a, int64_t s) { return a.q_start[s + 1] - a.q_start[s]; }
__device__ __forceinline__ bool is_tiled(const PagedWork& a, int64_t s) {
  return a.tiles && queries_of(a, s) >= kTiledQueries;
}

// The last sequence s whose first(s) <= at; first rises.
template <class First>
__device__ __forceinline__ int64_t sequence_at(const First& first, int64_t n_seq, int64_t at) {
  int64_t low = 0, high = n_seq;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first(middle) <= at) low = middle;
    else high = middle;
  }
  return low;
}

// Where position `key` of sequence s lies: in tokens of the pool.
__device__ __forceinline__ int64_t place_of(const PagedWork& a, int64_t s, int64_t key) {
  const auto at = static_cast<uint32_t>(key), size = static_cast<uint32_t>(a.page_tokens);
  return a.table[s * a.max_pages + at / size] * a.page_tokens + at % size;
}

// q as float and o from float: what is done once a row may ask for the type.
__device__ __forceinline__ float load_as(const void* p, DType t, int64_t i) {
  return t == DType::f32    ? static_cast<const float*>(p)[i]
         : t == DType::bf16 ? to_float(static_cast<const bf16*>(p)[i])
                            : to_float(static_cast<const f16*>(p)[i]);
}
__device__ __forceinline__ void store_as(void* p, DType t, int64_t i, float x) {
  if (t == DType::f32) static_cast<float*>(p)[i] = x;
  else if (t == DType::bf16) static_cast<bf16*>(p)[i] = from_float<bf16>(x);
  else static_cast<f16*>(p)[i] = from_float<f16>(x);
}

// What has come of some positions: o not yet divided by sum, for a maximum in powers of two. Whoever merges calls
// these, so that the bits are the same.
struct Softmax {
  float max, sum;
};
struct MergeWeights {
  float max, old, added;
};
__device__ __forceinline__ MergeWeights merge_weights(float old, float added) {
  const float max = fmaxf(old, added);
  return {max, exp2_fast(old - max), exp2_fast(added - max)};
}
__device__ __forceinline__ float merged(const MergeWeights& w, float old, float added) {
  return fmaf(added, w.added, old * w.old);
}

__device__ __forceinline__ float* part_of(const PagedWork& a, int64_t s, int64_t chunk, int64_t head) {
  return a.parts + ((s * a.chunks + chunk) * a.heads + head) * (a.d + 2);
}

// The kernels by what they compute with.
void paged_in_floats(const PagedWork&, DType kv_t, Stream);    // any types, any d
void paged_single_rows(const PagedWork&, DType kv_t, Stream);  // 16-bit q, pages of its type or i8, d <= 256
void paged_tiled_rows(const PagedWork&, DType kv_t, Stream);   // likewise

}  // namespace rw::cuda
