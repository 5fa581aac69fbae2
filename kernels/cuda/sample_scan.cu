// What decides on the next token, of rows of logits: a block a row. The largest logits are found without sorting a row:
// the n-th largest of the threads' own maxima is a bound that at least n columns reach, and seldom many more; those are
// sorted. Where too many reach it (equal logits), the bound is raised by bisection.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.h"
#include "kernels/ops.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kRoom = 1024;                // logits that are sorted, at most
constexpr int kSumColumns = 256;           // columns to a sum
constexpr float kLeastExponent = -87.33F;  // below it a weight is 0
static_assert(kMostSampleBest <= kThreads, "each of the best needs a thread's maximum to bound it");

using Rank = unsigned long long;

// Logits in their order, lower columns first among equals, as numbers: no two are the same, none is 0.
__device__ __forceinline__ Rank rank_of(float z, int64_t column) {
  const unsigned bits = __float_as_uint(z == 0 ? 0.F : z);  // -0 is 0
  const unsigned key = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<Rank>(key) << 32 | (0xffffffffU - static_cast<unsigned>(column));
}
__device__ __forceinline__ float logit_of(Rank rank) {
  const unsigned key = static_cast<unsigned>(rank >> 32);
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}
__device__ __forceinline__ int column_of(Rank rank) {
  return static_cast<int>(0xffffffffU - static_cast<unsigned>(rank & 0xffffffffU));
}

struct Row {
  const float* z;
  int64_t v;
  bool pieces;  // z may be read in pieces of 16 bytes
};

// f(logit, column) for this thread's columns, which rise.
template <class F>
__device__ __forceinline__ void each_column(const Row& row, const F& f) {
  int64_t rest = 0;
  if (row.pieces) {
    constexpr int kSize = Piece<float>::kSize;
    rest = row.v / kSize * kSize;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * kSize; i < rest; i += kThreads * kSize) {
      const Piece<float> piece = load_piece(row.z + i);
      for (int j = 0; j < kSize; ++j) f(piece.x[j], i + j);
    }
  }
  for (int64_t i = rest + threadIdx.x; i < row.v; i += kThreads) f(row.z[i], i);
}

// Puts those that reach `least` into `room`, as far as they fit, and returns how many there are.
__device__ int collect(const Row& row, Rank least, Rank* room, int* found) {
  if (threadIdx.x == 0) *found = 0;
  __syncthreads();
  each_column(row, [&](float z, int64_t column) {
    const Rank rank = rank_of(z, column);
    if (rank < least) return;
    const int at = atomicAdd(found, 1);
    if (at < kRoom) room[at] = rank;
  });
  __syncthreads();
  const int n = *found;
  __syncthreads();
  return n;
}

// Falling, by Batcher's bitonic network over the next power of two.
__device__ void sort_falling(Rank* room, int n) {
  int size = 1;
  while (size < n) size *= 2;
  for (int i = n + static_cast<int>(threadIdx.x); i < size; i += kThreads) room[i] = 0;
  __syncthreads();
  for (int run = 2; run <= size; run *= 2)
    for (int step = run / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
        const int other = i ^ step;
        const bool falls = (i & run) == 0;
        if (other > i && (room[i] < room[other]) == falls) {
          const Rank kept = room[i];
          room[i] = room[other];
          room[other] = kept;
        }
      }
      __syncthreads();
    }
}

// The n best of the row, falling, at the start of `room`; `mine` is the best of this thread's columns, `top` of all.
__device__ void best_logits(const Row& row, int n, Rank mine, Rank top, Rank* room) {
  SHARED(int, found, 1);
  SHARED(Rank, bound, 1);
  if (threadIdx.x == 0) bound[0] = 0;
  room[threadIdx.x] = mine;
  __syncthreads();
  int better = 0;
  for (int i = 0; i < kThreads; ++i) better += room[i] > mine ? 1 : 0;
  if (better == n - 1 && mine != 0) bound[0] = mine;  // one thread, or none: then all columns are looked at
  __syncthreads();
  Rank least = bound[0];
  int reach = collect(row, least, room, found);
  for (Rank above = top + 1; reach > kRoom;) {
    const Rank middle = least + (above - least) / 2;
    const int n_middle = collect(row, middle, room, found);
    if (n_middle < n) {
      above = middle;
    } else {
      least = middle;
      reach = n_middle;
    }
  }
  sort_falling(room, reach);
}

__device__ __forceinline__ float weight_of(float z, float max, float inv_t) {
  const float x = (z - max) * inv_t;
  return x < kLeastExponent ? 0.F : expf(x);
}

// Of the lanes up to this one.
__device__ __forceinline__ double warp_scan(double x, int lane) {
  for (unsigned d = 1; d < kWarp; d *= 2) {
    const double before = __shfl_up_sync(kFullMask, x, d);
    if (lane >= static_cast<int>(d)) x += before;
  }
  return x;
}
__device__ __forceinline__ int highest(unsigned mask) { return 31 - __clz(static_cast<int>(mask)); }

// Where numbers, brought 32 at a time in rising order, exceed a target; the last above 0 where they do not.
struct Search {
  double before = 0, target;  // the sum of what was brought
  int64_t found = -1, last = -1;
  // A warp's call: `x` is number `first + lane`. True when it is found.
  __device__ bool look(double x, int64_t first, int lane) {
    const double up_to = warp_scan(x, lane);
    const unsigned in = __ballot_sync(kFullMask, x > 0 ? 1 : 0);
    const unsigned beyond = __ballot_sync(kFullMask, x > 0 && before + up_to > target ? 1 : 0);
    if (in != 0) last = first + highest(in);
    if (beyond != 0) {
      const int at = __ffs(static_cast<int>(beyond)) - 1;
      found = first + at;
      before += __shfl_sync(kFullMask, up_to - x, at);
      return true;
    }
    before += __shfl_sync(kFullMask, up_to, kWarp - 1);
    return false;
  }
};

// A warp's: the sum of the weights, and the column at `share` of it.
__device__ void add_and_draw(const Row& row, const float* sums, const SampleAsk& ask, float max, SampleFacts* facts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t n = (row.v + kSumColumns - 1) / kSumColumns;
  const auto sum = [&](int64_t i) { return i < n ? static_cast<double>(sums[i]) : 0.; };
  Search all{.target = INFINITY};
  for (int64_t i = 0; i < n; i += kWarp) all.look(sum(i + lane), i, lane);
  if (lane == 0) facts->sum = all.before;
  if (ask.share < 0) return;
  Search block{.target = ask.share * all.before};
  for (int64_t i = 0; i < n; i += kWarp)
    if (block.look(sum(i + lane), i, lane)) break;
  // Rounding may keep the sums below the target: then it is the last column with a weight.
  Search column{.before = block.before, .target = block.found < 0 ? static_cast<double>(INFINITY) : block.target};
  const int64_t first = (block.found < 0 ? block.last : block.found) * kSumColumns;
  for (int64_t i = first; i < first + kSumColumns; i += kWarp) {
    const double w = i + lane < row.v ? static_cast<double>(weight_of(row.z[i + lane], max, ask.inv_t)) : 0.;
    if (column.look(w, i, lane)) break;
  }
  const int64_t drawn = column.found < 0 ? column.last : column.found;
  if (lane == 0) {
    facts->drawn = static_cast<int32_t>(drawn);
    facts->drawn_z = row.z[drawn];
  }
}

__global__ void __launch_bounds__(kThreads) sample_scan_kernel(SampleScan a, bool pieces) {
  SHARED(Rank, room, kRoom);
  SHARED(double, raw_sums, kWarps);
  DYN_SHARED(float, sums);
  const int64_t at = blockIdx.x;
  const SampleAsk ask = a.ask[at];
  SampleFacts* const facts = a.facts + at;
  const Row row{.z = a.logits + ask.row * a.ld, .v = a.v, .pieces = pieces};
  const int tid = static_cast<int>(threadIdx.x), warp = tid / kWarp, lane = tid % kWarp;

  Rank mine = 0;
  bool bad = false;
  each_column(row, [&](float z, int64_t column) {
    bad = bad || !(z < INFINITY);
    const Rank rank = rank_of(z, column);
    mine = rank > mine ? rank : mine;
  });
  const bool any_bad = __syncthreads_or(bad ? 1 : 0) != 0;
  const Rank top = block_reduce(mine, Rank{0}, Max{});
  const float max = row.v == 0 ? -INFINITY : logit_of(top);
  if (tid == 0) {
    facts->finite = any_bad ? 0 : 1;
    if (!any_bad) facts->max = max;
  }
  if (any_bad || max == -INFINITY) return;  // the whole block
  if (tid == 0) {
    facts->arg = column_of(top);
    if (ask.column >= 0) facts->column_z = row.z[ask.column];
  }

  if (ask.n_best > 0) {
    const int n = static_cast<int>(ask.n_best < row.v ? ask.n_best : row.v);
    best_logits(row, n, mine, top, room);
    for (int i = tid; i < ask.n_best; i += kThreads) {
      a.best_column[at * a.most_best + i] = i < n ? column_of(room[i]) : -1;
      if (i < n) a.best_z[at * a.most_best + i] = logit_of(room[i]);
    }
  }

  if (ask.inv_t > 0 || ask.raw_sum != 0) {
    double raw_sum = 0;
    for (int64_t block = warp; block * kSumColumns < row.v; block += kWarps) {
      float z[kSumColumns / kWarp];  // on their way together; weightless behind the last
      float sum = 0, raw = 0;
#pragma unroll
      for (int j = 0; j < kSumColumns / kWarp; ++j) {
        const int64_t i = block * kSumColumns + j * kWarp + lane;
        z[j] = i < row.v ? row.z[i] : -INFINITY;
      }
#pragma unroll
      for (const float x : z) {
        if (ask.inv_t > 0) sum += weight_of(x, max, ask.inv_t);
        if (ask.raw_sum != 0) raw += weight_of(x, max, 1);
      }
      sum = warp_reduce(sum, Sum{});
      raw_sum += static_cast<double>(warp_reduce(raw, Sum{}));
      if (lane == 0) sums[block] = sum;
    }
    if (lane == 0) raw_sums[warp] = raw_sum;
    __syncthreads();
    if (tid == 0 && ask.raw_sum != 0) {
      double all = 0;
      for (int i = 0; i < kWarps; ++i) all += raw_sums[i];
      facts->raw_sum = all;
    }
    if (warp == 0 && ask.inv_t > 0) add_and_draw(row, sums, ask, max, facts);
  }
}

}  // namespace

void sample_scan(const SampleScan& a, Stream s) {
  CHECK(a.most_best <= kMostSampleBest, "sample_scan: %lld best logits, at most %lld",
        static_cast<long long>(a.most_best), static_cast<long long>(kMostSampleBest));
  if (a.n == 0) return;
  SampleScan scan = a;
  scan.ld = a.ld != 0 ? a.ld : a.v;
  const size_t sums = static_cast<size_t>((a.v + kSumColumns - 1) / kSumColumns) * sizeof(float);
  allow_shared(sample_scan_kernel, sums);
  LAUNCH(sample_scan_kernel, blocks_for(a.n, 1), dim3(kThreads), sums, native(s), scan,
         takes_pieces(scan.logits, scan.ld));
}

}  // namespace rw::cuda
