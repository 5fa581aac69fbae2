// Quantised products with few rows, which are bound by reading the weights: a warp has four columns of c, a lane 16
// bytes of each in turn. Lanes that share a block of k add up what they have, exactly; then each lane has one element
// of c and adds its blocks' terms in rising k.
#include "kernels/cuda/quant_layout.cuh"

namespace rw::cuda {
namespace {

constexpr int kWarps = 2, kColumns = 4, kTermStride = kWarp + 1;

__device__ __forceinline__ int word_of(const Piece<uint32_t>& p, int i) { return static_cast<int>(p.x[i]); }

// What a lane reads for one turn, asked for a turn ahead.
struct Pieces {
  Piece<uint32_t> x[kColumns];
  uint32_t own[kColumns];  // of int4: its group's own scale
  float scale[kColumns];   // of the block whose term it makes
};

template <bool kWide, int kM>
struct FewRows {
  static constexpr int kElements = kWide ? 16 : 32;  // of k to 16 bytes of weights
  static constexpr int kValues = kColumns * kM;
  static_assert(kValues <= kWarp);

  const QuantProduct& p;
  const QuantShape& q;
  int lane, per_block, together;  // lanes to a block; blocks at once
  int64_t column0;

  __device__ FewRows(const QuantProduct& product, int64_t warp)
      : p(product),
        q(product.b.shape),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        per_block(static_cast<int>(q.block) / kElements),
        together(kWarp / per_block),
        column0(warp * kColumns) {}

  __device__ int64_t first_k(int64_t block) const { return block * q.block + lane * kElements; }
  __device__ bool has(int64_t block) const { return lane < together * per_block && first_k(block) < q.padded; }

  // This lane's weights of the blocks from `block` on.
  __device__ Pieces load(int64_t block) const {
    Pieces w{};
    const int64_t k = first_k(block), at = k / kElements * 16, mine = block + lane / per_block;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t column = column0 + c;
      if (!has(block) || column >= q.n) continue;
      w.x[c] = load_piece(reinterpret_cast<const uint32_t*>(p.b.rows + column * q.row_bytes + at));
      w.scale[c] = to_float(p.b.scales[column * q.blocks + mine]);
      if constexpr (!kWide) w.own[c] = own_scale(p.b.own[column * q.blocks + mine], k % q.block / q.group);
    }
    return w;
  }

  // Whole sums of this lane's weights and its elements of a.
  __device__ void multiply(const Pieces& w, int64_t block, int (&sums)[kColumns][kM]) const {
    constexpr int kWords = kElements / 4;
    const int64_t k = first_k(block);
#pragma unroll
    for (int r = 0; r < kM; ++r) {
      Piece<uint32_t> a[2][kWords / 4] = {};
      if (has(block) && r < p.m)
        for (int half = 0; half < 2; ++half)
          for (int i = 0; i < kWords / 4; ++i)
            a[half][i] =
                load_piece(reinterpret_cast<const uint32_t*>(p.a.numbers + (2 * r + half) * q.padded + k + 16 * i));
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        int upper = 0, lower = 0;
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          const auto b = kWide ? word_of(w.x[c], i) : static_cast<int>(four_of_int4(w.x[c].x[i / 2], i % 2, w.own[c]));
          upper = __dp4a(word_of(a[0][i / 4], i % 4), b, upper);
          lower = __dp4a(word_of(a[1][i / 4], i % 4), b, lower);
        }
        sums[c][r] = whole_sum(upper, lower);
      }
    }
  }

  // A block's lanes put their sums together, the first of them makes its terms.
  __device__ void leave_terms(const Pieces& w, int (&sums)[kColumns][kM], int64_t block, float* terms) const {
    const int in_block = lane % per_block, which = lane / per_block;
    const int64_t mine = block + which;
    const bool leads = in_block == 0 && which < together && mine < q.blocks;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int r = 0; r < kM; ++r) {
        auto sum = static_cast<uint32_t>(sums[c][r]);
        for (int d = 1; d < per_block; d *= 2) {
          const uint32_t other = __shfl_down_sync(kFullMask, sum, static_cast<unsigned>(d));
          if (in_block + d < per_block) sum += other;
        }
        if (leads)
          terms[(c * kM + r) * kTermStride + which] =
              block_term(static_cast<int>(sum), r < p.m ? p.a.scales[r * q.blocks + mine] : 0.F, w.scale[c]);
      }
    }
  }
};

template <bool kWide, int kM>
__global__ void __launch_bounds__(kWarps* kWarp) few_rows_kernel(QuantProduct p) {
  using Rows = FewRows<kWide, kM>;
  SHARED(float, all_terms, kWarps* Rows::kValues* kTermStride);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Rows rows(p, static_cast<int64_t>(blockIdx.x) * kWarps + warp);
  float* const terms = all_terms + warp * Rows::kValues * kTermStride;
  const int64_t blocks = p.b.shape.blocks;
  float total = 0;
  Pieces next = rows.load(0);
  for (int64_t block = 0; block < blocks; block += rows.together) {
    const Pieces w = next;
    next = rows.load(block + rows.together);
    int sums[kColumns][kM];
    rows.multiply(w, block, sums);
    rows.leave_terms(w, sums, block, terms);
    __syncwarp();
    if (rows.lane < Rows::kValues)
      for (int64_t i = 0; i < rows.together && block + i < blocks; ++i) total += terms[rows.lane * kTermStride + i];
    __syncwarp();
  }
  const int64_t column = rows.column0 + rows.lane / kM, row = rows.lane % kM;
  if (rows.lane < Rows::kValues && column < p.b.shape.n && row < p.m) store_result(p, row, column, total);
}

template <bool kWide>
void launch(const QuantProduct& p, Stream s) {
  const dim3 grid = blocks_for(p.b.shape.n, kWarps * kColumns), block(kWarps * kWarp);
  if (p.m == 1) LAUNCH((few_rows_kernel<kWide, 1>), grid, block, 0, native(s), p);
  else if (p.m == 2) LAUNCH((few_rows_kernel<kWide, 2>), grid, block, 0, native(s), p);
  else LAUNCH((few_rows_kernel<kWide, 4>), grid, block, 0, native(s), p);
}

}  // namespace

void quant_few_rows(const QuantProduct& p, Stream s) { (p.b.shape.wide ? launch<true> : launch<false>)(p, s); }

}  // namespace rw::cuda
