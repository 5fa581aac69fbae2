// Rows of queries through their keys on tensor cores, in bf16 or f16: blocks of keys and values come into shared memory
// two deep, scores and probabilities stay in the registers of a warp (FlashAttention-2, Dao 2023). Keys of 8 bits
// become T there, exactly; their scales go to the scores and to the probabilities. Values that become f16 take their
// scales themselves, rounded: f16 has no numbers for probabilities with the scales of small values.
//
// For tiled rows a warp has 16 rows of its own and goes through all keys. For single rows, which are few, all warps
// have the same 16 and a warp takes its 16 keys of each block; what came of them is put together at the end, in the
// order of the warps.
#pragma once
#include "kernels/cuda/paged_kernels.cuh"

namespace rw::cuda {

enum class Rows : uint8_t { single, tiled };

template <class T, class Kv, int D, Rows kKind>
class MmaRows {
 public:
  static constexpr bool kTiled = kKind == Rows::tiled, kConverted = !std::is_same_v<T, Kv>;
  static constexpr bool kValuesScaled = kConverted && std::is_same_v<T, f16>;
  static constexpr int kRows = kTiled ? 16 * kPagedWarps : 16;
  static constexpr int kKeys = kTiled && D > 128 ? 32 : 64;                     // of a block
  static constexpr int kMyKeys = kTiled ? kKeys : kKeys / kPagedWarps;          // of them, a warp's
  static constexpr int kStride = D + 8, kRawStride = D + 16 / int{sizeof(Kv)};  // an odd number of 16 bytes

  static size_t shared_bytes(const PagedWork& a) {
    return static_cast<size_t>(kTotalsAt + (kTiled ? 0 : 4 * smaller(kRows, a.group) * (a.d + 2)));
  }

  __device__ MmaRows(const PagedWork& work, unsigned char* shared) : a_(work), shared_(shared) {}

  __device__ void load(const RowTile& t) {
    for (int n = behind(), i = thread(); i < kRows * n; i += kPagedThreads)
      q_row(i / n)[a_.d + i % n] = from_float<T>(0.F);
    const T* const q = static_cast<const T*>(a_.q);
    constexpr int kPiece = Piece<T>::kSize;
    if (a_.io_pieces) {
      const int pieces = a_.d / kPiece;
      for (int i = thread(); i < kRows * pieces; i += kPagedThreads) {
        const int r = i / pieces, c = i % pieces * kPiece;
        store_piece(q_row(r) + c, r < t.rows ? load_piece(q + row_offset(a_, t, r, a_.ldq) + c) : Piece<T>{});
      }
    } else {
      for (int i = thread(); i < kRows * a_.d; i += kPagedThreads) {
        const int r = i / a_.d, c = i % a_.d;
        q_row(r)[c] = r < t.rows ? q[row_offset(a_, t, r, a_.ldq) + c] : from_float<T>(0.F);
      }
    }
    __syncthreads();
  }

  __device__ void through(const RowTile& t, int64_t from, int64_t to) {
#pragma unroll
    for (int i = 0; i < D / 8; ++i) o_[i] = FragmentC{};
    for (int h = 0; h < 2; ++h) {
      max_[h] = -INFINITY;
      sum_[h] = 0;
      last_[h] = smaller(last_position(a_, t, my_row0() + lane() / 4 + 8 * h), to - 1);
    }
    const int64_t my_last = smaller(last_position(a_, t, my_row0() + 15), to - 1);
    clear_behind_keys();
    find(t, from, to, 0);
    find(t, from + kKeys, to, 1);
    __syncthreads();
    fetch(t, from, to, 0);
    copy_async_commit();
    __syncthreads();
    int buffer = 0;
    for (int64_t key = from; key < to; key += kKeys, buffer ^= 1) {
      fetch(t, key + kKeys, to, buffer ^ 1);
      copy_async_commit();
      find(t, key + 2 * kKeys, to, buffer);
      copy_async_wait<1>();
      __syncthreads();
      if constexpr (kConverted) convert(buffer);
      const int64_t mine = key + my_key0();
      if (mine <= my_last) multiply(mine, buffer);
      __syncthreads();
    }
    copy_async_wait<0>();
    for (int h = 0; h < 2; ++h)
      for (int d = 1; d < 4; d *= 2) sum_[h] += __shfl_xor_sync(kFullMask, sum_[h], d);
    if constexpr (!kTiled) put_together();
  }

  // Of single rows.
  __device__ Softmax softmax(int row) const { return {sums()[row], sums()[16 + row]}; }
  __device__ float value(int row, int c) const {
    const float* const factor = sums() + 32 + row;
    float x = 0;
    for (int w = 0; w < kPagedWarps; ++w) x = fmaf(warp_o(w)[row * kOStride + c], factor[16 * w], x);
    return x;
  }
  __device__ float* totals() { return reinterpret_cast<float*>(shared_ + kTotalsAt); }

  // Of tiled rows.
  __device__ void finish(const RowTile& t) {
    const int g = lane() / 4, column = lane() % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      T* const row = q_row(my_row0() + g + 8 * h);  // this warp's alone
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        if (8 * i + column < a_.d) row[8 * i + column] = from_float<T>(o_[i].x[2 * h] / sum_[h]);
        if (8 * i + column + 1 < a_.d) row[8 * i + column + 1] = from_float<T>(o_[i].x[2 * h + 1] / sum_[h]);
      }
    }
    __syncthreads();
    T* const o = static_cast<T*>(a_.o);
    constexpr int kPiece = Piece<T>::kSize;
    if (a_.io_pieces) {
      const int pieces = a_.d / kPiece;
      for (int i = thread(); i < t.rows * pieces; i += kPagedThreads) {
        const int r = i / pieces, c = i % pieces * kPiece;
        store_piece(o + row_offset(a_, t, r, a_.ldo) + c, load_piece(q_row(r) + c));
      }
    } else {
      for (int i = thread(); i < t.rows * a_.d; i += kPagedThreads)
        o[row_offset(a_, t, i / a_.d, a_.ldo) + i % a_.d] = q_row(i / a_.d)[i % a_.d];
    }
    __syncthreads();
  }

 private:
  static constexpr int kQBytes = kRows * kStride * int{sizeof(T)};
  static constexpr int kTileBytes = kConverted ? kKeys * kStride * int{sizeof(T)} : 0;  // of keys; and of values
  static constexpr int kStageBytes = kKeys * kRawStride * int{sizeof(Kv)};              // likewise
  static constexpr int kTileAt = kQBytes, kStageAt = kTileAt + 2 * kTileBytes, kScalesAt = kStageAt + 4 * kStageBytes;
  static constexpr int kPlacesAt = kScalesAt + (kConverted ? 4 * kKeys * 4 : 0), kPlacesBytes = 2 * kKeys * 8;
  static constexpr int kTotalsAt = kPlacesAt + kPlacesBytes;
  static constexpr int kEnd = kTotalsAt + (kTiled ? 0 : 4 * 16 * (D + 2));
  static constexpr int kOStride = D + 8;  // rows that a store meets begin in different banks
  static_assert(kTiled || 4 * kStageBytes >= kPagedWarps * 16 * kOStride * 4, "the warps' o lies where the blocks lay");
  static_assert(kTiled || kPlacesBytes >= 4 * 16 * (2 + kPagedWarps * 3), "and their sums where the places lay");
  static_assert(kEnd <= static_cast<int>(kMostSharedBytes));
  // Of the 164 KiB of an A100's multiprocessor a block takes 1 more: two have room where up to 8 heads share a kv head.
  static_assert(kTiled || D > 128 || 2 * (kTotalsAt + 4 * 8 * (D + 2) + 1024) <= 164 << 10);

  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int warp() { return thread() / kWarp; }
  static __device__ int lane() { return thread() % kWarp; }
  static __device__ int my_row0() { return kTiled ? 16 * warp() : 0; }
  static __device__ int my_key0() { return kTiled ? 0 : kMyKeys * warp(); }

  __device__ T* q_row(int r) const { return reinterpret_cast<T*>(shared_) + r * kStride; }
  // Keys are first, values second.
  __device__ Kv* stage(int buffer, int which) const {
    return reinterpret_cast<Kv*>(shared_ + kStageAt + (2 * buffer + which) * kStageBytes);
  }
  __device__ T* tile(int buffer, int which) const {
    if constexpr (kConverted) return reinterpret_cast<T*>(shared_ + kTileAt + which * kTileBytes);
    else return stage(buffer, which);
  }
  __device__ float* scales(int buffer, int which) const {
    return reinterpret_cast<float*>(shared_ + kScalesAt) + (2 * buffer + which) * kKeys;
  }
  __device__ int64_t* places(int buffer) const {
    return reinterpret_cast<int64_t*>(shared_ + kPlacesAt) + buffer * kKeys;
  }
  // max (16), sum (16), factors (warps, 16), then the warps' max and sum (warps, 16) each.
  __device__ float* sums() const { return reinterpret_cast<float*>(shared_ + kPlacesAt); }
  __device__ float* warp_o(int w) const { return reinterpret_cast<float*>(shared_ + kStageAt) + w * 16 * kOStride; }

  // Columns behind d that are multiplied, as zeros.
  __device__ int behind() const { return (16 - a_.d % 16) % 16; }
  // Of both buffers: the warps' o may have lain there. Zeros of q would not silence what is not a number.
  __device__ void clear_behind_keys() const {
    const int n = behind();
    for (int i = thread(); i < 2 * kKeys * n; i += kPagedThreads)
      stage(i / n / kKeys, 0)[i / n % kKeys * kRawStride + a_.d + i % n] = Kv{};
  }

  __device__ void find(const RowTile& t, int64_t key, int64_t to, int buffer) const {
    for (int j = thread(); j < kKeys; j += kPagedThreads)
      if (key + j < to) places(buffer)[j] = place_of(a_, t.s, key + j) * a_.kv_heads + t.kv_head;
  }

  // Puts a block's copies on their way. Keys behind the last become zeros: their probability is 0, and must not meet
  // what is not a number.
  __device__ void fetch(const RowTile&, int64_t key, int64_t to, int buffer) const {
    if (key >= to) return;
    const int64_t* const at = places(buffer);
    const int n = static_cast<int>(smaller(kKeys, to - key));
    const Kv* const from[2] = {static_cast<const Kv*>(a_.k), static_cast<const Kv*>(a_.v)};
    if (a_.pieces) {
      constexpr int kPiece = Piece<Kv>::kSize, kPieces = D / kPiece;
      const int pieces = a_.d / kPiece;
      for (int i = thread(); i < kKeys * kPieces; i += kPagedThreads) {
        const int j = i / kPieces, p = i % kPieces;
        if (p >= pieces) continue;
        const int64_t offset = at[j < n ? j : 0] * a_.d + p * kPiece;
#pragma unroll
        for (int w = 0; w < 2; ++w)
          copy_async(stage(buffer, w) + j * kRawStride + p * kPiece, from[w] + offset, j < n ? 16 : 0);
      }
    } else {
      for (int i = thread(); i < kKeys * a_.d; i += kPagedThreads) {
        const int j = i / a_.d, c = i % a_.d;
        for (int w = 0; w < 2; ++w) stage(buffer, w)[j * kRawStride + c] = j < n ? from[w][at[j] * a_.d + c] : Kv{};
      }
    }
    if constexpr (kConverted) {
      for (int j = thread(); j < kKeys; j += kPagedThreads) {
        scales(buffer, 0)[j] = j < n ? a_.k_scales[at[j]] : 0.F;
        scales(buffer, 1)[j] = j < n ? a_.v_scales[at[j]] : 0.F;
      }
    }
  }

  // Ends with a barrier.
  __device__ void convert(int buffer) const {
    constexpr int kPieces = D / 16;
    for (int i = thread(); i < 2 * kKeys * kPieces; i += kPagedThreads) {
      const int w = i / (kKeys * kPieces), j = i / kPieces % kKeys, c = i % kPieces * 16;
      const Piece<Kv> raw = load_piece(stage(buffer, w) + j * kRawStride + c);
      const float scale = kValuesScaled && w == 1 ? scales(buffer, 1)[j] : 1.F;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Piece<T> x;
#pragma unroll
        for (int e = 0; e < 8; ++e) x.x[e] = from_float<T>(static_cast<float>(raw.x[8 * h + e]) * scale);
        store_piece(tile(buffer, w) + j * kStride + c + 8 * h, x);
      }
    }
    __syncthreads();
  }

  // This warp's rows with its keys of a block, the first of which is at position `key`.
  __device__ __forceinline__ void multiply(int64_t key, int buffer) {
    constexpr int kBlocks = kMyKeys / 16;
    const int l = lane();
    FragmentC s[2 * kBlocks];
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) s[i] = FragmentC{};
    const T* const q = q_row(my_row0() + l % 16) + l / 16 * 8;
    const T* const k = tile(buffer, 0) + (my_key0() + l / 16 * 8 + l % 8) * kStride + l / 8 % 2 * 8;
#pragma unroll
    for (int c = 0; c < D; c += 16) {
      if (c >= a_.d) break;
      FragmentA rows;
      load_matrices(rows.x, q + c);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        uint32_t keys[4];
        load_matrices(keys, k + b * 16 * kStride + c);
        mma_16x8x16<T>(s[2 * b], rows, {{keys[0], keys[1]}});
        mma_16x8x16<T>(s[2 * b + 1], rows, {{keys[2], keys[3]}});
      }
    }
    softmax_of_block(s, key, buffer);
    const T* const v = tile(buffer, 1) + (my_key0() + l % 16) * kStride + l / 16 * 8;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      FragmentA p;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const FragmentC& from = s[2 * b + i / 2];
        p.x[i] = pack_pair<T>(from_float<T>(from.x[i % 2 * 2]), from_float<T>(from.x[i % 2 * 2 + 1]));
      }
#pragma unroll
      for (int c = 0; c < D; c += 16) {
        if (c >= a_.d) break;
        uint32_t values[4];
        load_matrices_transposed(values, v + b * 16 * kStride + c);
        mma_16x8x16<T>(o_[c / 8], p, {{values[0], values[1]}});
        mma_16x8x16<T>(o_[c / 8 + 1], p, {{values[2], values[3]}});
      }
    }
  }

  // Scores become probabilities for the maximum so far, times 2^kRaise, which o and sum carry until they are divided; o
  // and sum shrink to the maximum (online softmax, Milakov & Gimelshein 2018).
  template <int n>
  __device__ __forceinline__ void softmax_of_block(FragmentC (&s)[n], int64_t key, int buffer) {
    const int column = lane() % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto seen = static_cast<int>(smaller(last_[h] - key, kMyKeys));
      float max = max_[h];
#pragma unroll
      for (int i = 0; i < n; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int j = 8 * i + column + e;
          float x = s[i].x[2 * h + e] * a_.scale_log2;
          if constexpr (kConverted) x *= scales(buffer, 0)[my_key0() + j];
          s[i].x[2 * h + e] = x = j <= seen ? x : -INFINITY;
          max = fmaxf(max, x);
        }
      }
      max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 1));
      max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 2));
      const float base = max == -INFINITY ? 0.F : max, shrink = exp2_fast(max_[h] - base), raised = base - kRaise<T>;
      max_[h] = max;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < n; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float p = exp2_fast(s[i].x[2 * h + e] - raised);
          sum += p;
          s[i].x[2 * h + e] = p;
          if constexpr (kConverted && !kValuesScaled)
            s[i].x[2 * h + e] *= scales(buffer, 1)[my_key0() + 8 * i + column + e];
        }
      }
      sum_[h] = fmaf(sum_[h], shrink, sum);
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        o_[i].x[2 * h] *= shrink;
        o_[i].x[2 * h + 1] *= shrink;
      }
    }
  }

  // Single rows: what came of the warps' keys, to shared memory. Ends with a barrier.
  __device__ void put_together() const {
    const int g = lane() / 4, column = lane() % 4 * 2;
    float *const maxima = sums() + 32 + 16 * kPagedWarps, *const shares = maxima + 16 * kPagedWarps;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = g + 8 * h;
      if (column == 0) {
        maxima[16 * warp() + row] = max_[h];
        shares[16 * warp() + row] = sum_[h];
      }
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        warp_o(warp())[row * kOStride + 8 * i + column] = o_[i].x[2 * h];
        warp_o(warp())[row * kOStride + 8 * i + column + 1] = o_[i].x[2 * h + 1];
      }
    }
    __syncthreads();
    if (thread() < 16) {
      const int row = thread();
      float max = maxima[row], sum = 0;
      for (int w = 1; w < kPagedWarps; ++w) max = fmaxf(max, maxima[16 * w + row]);
      const float base = max == -INFINITY ? 0.F : max;
      for (int w = 0; w < kPagedWarps; ++w) {
        const float factor = exp2_fast(maxima[16 * w + row] - base);
        sums()[32 + 16 * w + row] = factor;
        sum = fmaf(shares[16 * w + row], factor, sum);
      }
      sums()[row] = max;
      sums()[16 + row] = sum;
    }
    __syncthreads();
  }

  const PagedWork& a_;
  unsigned char* shared_;
  FragmentC o_[D / 8];
  float max_[2], sum_[2];  // of rows lane / 4 and 8 more; sum of this lane's columns until the end
  int64_t last_[2];        // positions that these rows see
};

// f(the engine) for the head size d and the type of the pages.
template <Rows kKind, class F>
void with_mma_rows(const PagedWork& a, DType kv_t, const F& f) {
  const auto with_size = [&](auto q, auto page) {
    using T = decltype(q);
    using Kv = decltype(page);
    if (a.d <= 64) f(static_cast<MmaRows<T, Kv, 64, kKind>*>(nullptr));
    else if (a.d <= 96) f(static_cast<MmaRows<T, Kv, 96, kKind>*>(nullptr));
    else if (a.d <= 128) f(static_cast<MmaRows<T, Kv, 128, kKind>*>(nullptr));
    else f(static_cast<MmaRows<T, Kv, 256, kKind>*>(nullptr));
  };
  const bool i8 = kv_t == DType::i8;
  if (a.t == DType::bf16) i8 ? with_size(bf16{}, int8_t{}) : with_size(bf16{}, bf16{});
  else i8 ? with_size(f16{}, int8_t{}) : with_size(f16{}, f16{});
}

}  // namespace rw::cuda
