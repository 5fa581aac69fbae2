// Products of a warpgroup (four warps) on the tensor cores of compute capability 9.0: asynchronous, with the right
// factor, and the left one if wanted, read from shared memory. PTX ISA 9.7.15 (wgmma); each beside its meaning: on the
// host the meaning runs.
//
// D (64, n) += A (64, 16) B (16, n). Warp w of the four has rows 16 w .. 16 w + 15, in fragments as mma_16x8x16 has
// them (arch.cuh): c[j] holds columns 8 j .. 8 j + 7.
#pragma once
#include <stdexcept>

#include "kernels/cuda/arch.cuh"

namespace rw::cuda {

constexpr int kWarpgroup = 128;  // threads

// ---- tiles of 16-bit elements in shared memory
// ----------------------------------------------------------------------------
//
// A tile of columns is cut into panels of 64 columns, whole rows of 128 bytes one after the other. Of a row's eight
// 16-byte pieces, piece p lies at place p ^ (row % 8): the tensor cores' 128-byte swizzle, without which eight rows of
// one column would lie in the same banks. Panels begin at multiples of 1024 bytes.

constexpr int kPanel = 64;
// Of the piece that holds `column` (a multiple of 8) of `row`, in elements from the begin of a tile of `rows` rows.
__device__ __forceinline__ int panel_place(int rows, int row, int column) {
  return column / kPanel * rows * kPanel + row * kPanel + ((column % kPanel / 8) ^ (row % 8)) * 8;
}

// Where a factor lies, as the instruction takes it (PTX ISA, matrix descriptor): address, offset from 64 columns to the
// next where columns follow each other in memory, offset from 8 rows to the next, the 128-byte swizzle.
struct SharedFactor {
  uint64_t descriptor;
};
__device__ __forceinline__ unsigned shared_address(const void* at) {
#if defined(__CUDACC__)
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
#else
  return static_cast<unsigned>(static_cast<const unsigned char*>(at) -
                               static_cast<const unsigned char*>(simt::dynamic_shared_memory()));
#endif
}
__device__ __forceinline__ SharedFactor shared_factor(const void* at, int panel_bytes) {
  constexpr uint64_t kEightRows = 1024 >> 4, kSwizzle128 = uint64_t{1} << 62;
  return {(shared_address(at) & 0x3ffffU) >> 4 | static_cast<uint64_t>(panel_bytes >> 4) << 16 | kEightRows << 32 |
          kSwizzle128};
}
// Columns column .. column + 15 of rows row.. (multiples of 8) of a tile of kRows rows, as A, or turned as B: the sum
// goes over columns.
template <int kRows, class T>
__device__ __forceinline__ SharedFactor along_columns(const T* tile, int row, int column) {
  return shared_factor(tile + column / kPanel * kRows * kPanel + row * kPanel + column % kPanel, 0);
}
// Rows row .. row + 15 (a multiple of 16) of columns column.. (a multiple of 64) as B: the sum goes over rows.
template <int kRows, class T>
__device__ __forceinline__ SharedFactor along_rows(const T* tile, int row, int column) {
  return shared_factor(tile + column / kPanel * kRows * kPanel + row * kPanel, kRows * kPanel * 2);
}

// ---- products
// -----------------------------------------------------------------------------------------------------------
//
// A warpgroup's products, in the order of their calls, by all its threads alike:
//   settle(sums), begin()  after anything else has read or written the sums or factors in registers
//   add_rows, add_columns  D += A B; D and a left factor in registers are not to be touched until the wait
//   commit()               ends a group of them
//   wait<n>(), settle()    until at most n groups are under way; the sums of those that are done may be read
// What threads wrote into shared memory themselves, copy_async included, is seen after fence_shared_writes() by the
// writer and a barrier.

enum class Sums : uint8_t { begin, go_on };  // begin: D = A B, whatever D holds

#if defined(__CUDACC__)

__device__ __forceinline__ void fence_shared_writes() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

#define RW_SUMS_4(c, j) "+f"((c)[j].x[0]), "+f"((c)[j].x[1]), "+f"((c)[j].x[2]), "+f"((c)[j].x[3])
#define RW_SUMS_16(c, j) RW_SUMS_4(c, j), RW_SUMS_4(c, (j) + 1), RW_SUMS_4(c, (j) + 2), RW_SUMS_4(c, (j) + 3)
#define RW_SUMS_32(c) RW_SUMS_16(c, 0), RW_SUMS_16(c, 4)
#define RW_SUMS_64(c) RW_SUMS_32(c), RW_SUMS_16(c, 8), RW_SUMS_16(c, 12)
#define RW_NAMES_32                                                                                                \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31"
#define RW_NAMES_64                                                                                                   \
  RW_NAMES_32                                                                                                         \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
  "%60,%61,%62,%63"

template <class T, int kN>
struct Wgmma;
// TYPE: of the factors; REGISTERS: of D, n / 2; A, B, ...: the numbers of the operands that follow them.
#define RW_WGMMA(TYPE, NAME, N, REGISTERS, A, B, C, D, E, F)                                                        \
  template <>                                                                                                       \
  struct Wgmma<TYPE, N> {                                                                                           \
    static __device__ __forceinline__ void shared_by_columns(FragmentC (&c)[N / 8], SharedFactor a, SharedFactor b, \
                                                             int go_on) {                                           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #C                                                          \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" RW_NAMES_##REGISTERS        \
                   "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}\n"                                                       \
                   : RW_SUMS_##REGISTERS(c)                                                                         \
                   : "l"(a.descriptor), "l"(b.descriptor), "r"(go_on));                                             \
    }                                                                                                               \
    static __device__ __forceinline__ void registers_by_rows(FragmentC (&c)[N / 8], const FragmentA& a,             \
                                                             SharedFactor b, int go_on) {                           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #F                                                          \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" RW_NAMES_##REGISTERS        \
                   "}, {%" #A ",%" #B ",%" #C ",%" #D "}, %" #E ", p, 1, 1, 1;\n}\n"                                \
                   : RW_SUMS_##REGISTERS(c)                                                                         \
                   : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b.descriptor), "r"(go_on));            \
    }                                                                                                               \
  }
RW_WGMMA(bf16, "bf16", 64, 32, 32, 33, 34, 35, 36, 37);
RW_WGMMA(f16, "f16", 64, 32, 32, 33, 34, 35, 36, 37);
RW_WGMMA(bf16, "bf16", 128, 64, 64, 65, 66, 67, 68, 69);
RW_WGMMA(f16, "f16", 128, 64, 64, 65, 66, 67, 68, 69);
#undef RW_WGMMA
#undef RW_NAMES_64
#undef RW_NAMES_32
#undef RW_SUMS_64
#undef RW_SUMS_32
#undef RW_SUMS_16
#undef RW_SUMS_4

class WarpgroupProducts {
 public:
  __device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
  template <class T, int kN>
  __device__ __forceinline__ void add_columns(FragmentC (&c)[kN / 8], SharedFactor a, SharedFactor b, Sums sums) {
    Wgmma<T, kN>::shared_by_columns(c, a, b, sums == Sums::go_on ? 1 : 0);
  }
  template <class T, int kN>
  __device__ __forceinline__ void add_rows(FragmentC (&c)[kN / 8], const FragmentA& a, SharedFactor b, Sums sums) {
    Wgmma<T, kN>::registers_by_rows(c, a, b, sums == Sums::go_on ? 1 : 0);
  }
  __device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
  template <int n>
  __device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(n) : "memory");
  }
};

// The compiler does not know when an asynchronous product writes: it is to take what it has of these after this point
// only, and to have made them before it.
template <int kN>
__device__ __forceinline__ void settle(FragmentC (&c)[kN]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[n].x[i])::"memory");
}
template <int kN>
__device__ __forceinline__ void settle(FragmentA (&a)[kN]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[n].x[i])::"memory");
}

#else

inline void fence_shared_writes() { simt::fence_shared_writes(); }

// Element (k, n) of B, or (m, k) of A as (k, m): `at` its bytes from the factor's begin, before the swizzle.
enum class Along : uint8_t { columns, rows };
inline uint16_t shared_element(SharedFactor f, Along along, unsigned k, unsigned n) {
  const auto field = [&](int from) { return static_cast<unsigned>(f.descriptor >> from & 0x3fffU) << 4; };
  const unsigned panel = field(16), eight_rows = field(32);
  const unsigned at =
      field(0) + (along == Along::columns ? n % 8 * 128 + n / 8 * eight_rows + k * 2
                                          : n % kPanel * 2 + n / kPanel * panel + k % 8 * 128 + k / 8 * eight_rows);
  const unsigned swizzled = at ^ (at >> 7 & 7U) << 4;
  if (swizzled + 2 > simt::kMostSharedBytes) throw std::runtime_error("wgmma reads beyond shared memory");
  uint16_t bits;
  std::memcpy(&bits, static_cast<const unsigned char*>(simt::dynamic_shared_memory()) + swizzled, 2);
  return bits;
}

// A lane's products: they are made when it waits for them, so that sums read too soon are poison, and factors that are
// overwritten too soon are wrong.
class WarpgroupProducts {
 public:
  void begin() { begun_ = true; }
  template <class T, int kN>
  void add_columns(FragmentC (&c)[kN / 8], SharedFactor a, SharedFactor b, Sums sums) {
    put({.left = a, .right = b, .along = Along::columns, .value = &half_of<T>}, c, kN / 8, sums);
  }
  template <class T, int kN>
  void add_rows(FragmentC (&c)[kN / 8], const FragmentA& a, SharedFactor b, Sums sums) {
    put({.left_registers = &a, .left_bits = a, .right = b, .along = Along::rows, .value = &half_of<T>}, c, kN / 8,
        sums);
  }
  void commit() { ++committed_; }
  template <int n>
  void wait() {
    begun_ = false;
    simt::meet_in_warp("wgmma.wait_group", 0xffffffffU, this, [](void* const* lanes) {
      auto* const first = static_cast<WarpgroupProducts*>(lanes[0]);
      const int done = first->committed_ - n;
      simt::agree_in_warpgroup(static_cast<uint64_t>(n) << 32 | static_cast<uint32_t>(first->committed_));
      for (int p = 0; p < first->n_products_; ++p)
        if (first->products_[p].group < done) multiply(lanes, p);
      for (int lane = 0; lane < 32; ++lane) static_cast<WarpgroupProducts*>(lanes[lane])->finish(done);
    });
  }

 private:
  struct Product {
    SharedFactor left{};
    const FragmentA* left_registers = nullptr;  // null: `left` in shared memory
    FragmentA left_bits{};
    SharedFactor right{};
    Along along{};
    float (*value)(uint32_t, int) = nullptr;
    int sums = 0, group = 0;
    bool begins = false;
  };
  // Sums that products under way will leave at `to`.
  struct Pending {
    FragmentC* to;
    FragmentC x[16];
    int n, last_group;
  };
  static constexpr int kMostProducts = 48, kMostPending = 4;

  void put(Product p, FragmentC* c, int n, Sums sums) {
    if (!begun_) throw std::runtime_error("wgmma without wgmma.fence after the last wait");
    if (!simt::shared_writes_fenced())
      throw std::runtime_error("wgmma: what threads wrote to shared memory was not fenced before the last barrier");
    if (n_products_ == kMostProducts) throw std::runtime_error("wgmma: too many products under way");
    p.group = committed_;
    p.begins = sums == Sums::begin;
    p.sums = pending_of(c, n);
    pending_[p.sums].last_group = committed_;
    products_[n_products_++] = p;
  }
  int pending_of(FragmentC* c, int n) {
    for (int i = 0; i < n_pending_; ++i)
      if (pending_[i].to == c) return i;
    if (n_pending_ == kMostPending) throw std::runtime_error("wgmma: too many sums under way");
    Pending& p = pending_[n_pending_];
    p.to = c;
    p.n = n;
    std::copy(c, c + n, p.x);
    std::memset(static_cast<void*>(c), 0xff, static_cast<size_t>(n) * sizeof *c);
    return n_pending_++;
  }
  // Rows of this warp alone: what the other three do with theirs is the same.
  static void multiply(void* const* lanes, int index) {
    const auto lane_of = [&](int lane) { return static_cast<WarpgroupProducts*>(lanes[lane]); };
    const Product& p = lane_of(0)->products_[index];
    const int n = 8 * lane_of(0)->pending_[p.sums].n, warp = static_cast<int>(threadIdx.x) / 32 % 4;
    simt::agree_in_warpgroup(p.right.descriptor);
    simt::agree_in_warpgroup(p.left.descriptor);
    float am[16][16], bm[16][128];
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < n; ++j)
        bm[k][j] = p.value(shared_element(p.right, p.along, static_cast<unsigned>(k), static_cast<unsigned>(j)), 0);
      if (p.left_registers == nullptr)
        for (int m = 0; m < 16; ++m)
          am[m][k] = p.value(
              shared_element(p.left, Along::columns, static_cast<unsigned>(k), static_cast<unsigned>(16 * warp + m)),
              0);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const Product& mine = lane_of(lane)->products_[index];
      const int g = lane / 4, t = lane % 4;
      if (mine.right.descriptor != p.right.descriptor || mine.left.descriptor != p.left.descriptor)
        throw std::runtime_error("wgmma: lanes disagree about their factors");
      if (p.left_registers == nullptr) continue;
      if (std::memcmp(mine.left_registers, &mine.left_bits, sizeof mine.left_bits) != 0)
        throw std::runtime_error("wgmma: a left factor was overwritten before the wait");
      for (int i = 0; i < 4; ++i)
        for (int h = 0; h < 2; ++h) am[g + i % 2 * 8][2 * t + i / 2 * 8 + h] = p.value(mine.left_bits.x[i], h);
    }
    for (int lane = 0; lane < 32; ++lane) {
      Pending& out = lane_of(lane)->pending_[p.sums];
      const int g = lane / 4, t = lane % 4;
      for (int j = 0; j < n / 8; ++j)
        for (int i = 0; i < 4; ++i) {
          double sum = p.begins ? 0.0 : static_cast<double>(out.x[j].x[i]);
          for (int k = 0; k < 16; ++k) sum += static_cast<double>(am[g + i / 2 * 8][k] * bm[k][8 * j + 2 * t + i % 2]);
          out.x[j].x[i] = static_cast<float>(sum);
        }
    }
  }
  // Groups before `done` are made: those sums go to their registers.
  void finish(int done) {
    int kept = 0;
    for (int p = 0; p < n_products_; ++p)
      if (products_[p].group >= done) products_[kept++] = products_[p];
    n_products_ = kept;
    for (int i = n_pending_ - 1; i >= 0; --i) {
      if (pending_[i].last_group >= done) continue;
      std::copy(pending_[i].x, pending_[i].x + pending_[i].n, pending_[i].to);
      --n_pending_;
      if (i == n_pending_) continue;
      pending_[i] = pending_[n_pending_];
      for (int p = 0; p < n_products_; ++p)
        if (products_[p].sums == n_pending_) products_[p].sums = i;
    }
  }

  bool begun_ = false;
  int committed_ = 0, n_products_ = 0, n_pending_ = 0;
  Product products_[kMostProducts];
  Pending pending_[kMostPending];
};

template <class F, int kN>
void settle(F (&)[kN]) {}

#endif

}  // namespace rw::cuda
