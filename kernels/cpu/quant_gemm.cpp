// The product with quantised weights. A block of at most 256 rows goes through four panels of weights at a time, over a
// stretch of k that keeps its rows in L2; blocks of k are multiplied exactly and added to f32 sums in rising k.
#include <omp.h>

#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_dot.h"
#include "kernels/cpu/quant_lines.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

constexpr int64_t kBlockRows = 256, kPanels = 4, kRowsInCache = 1 << 19;
constexpr int64_t kAloneRows = 4;  // up to here each thread rounds a for itself rather than waiting for the others

int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

struct Space {
  int64_t rows, copies;        // bytes of rows of a, how often
  int64_t sums, wide, thread;  // bytes of a thread: sums of c, a stretch of int4 as int8, both
};
Space space_for(const QuantGemm& g, const QuantLayout& l, int64_t threads) {
  const int64_t sums = min_of(up_to(4, g.m), kBlockRows) * kPanels * kQuantColumns * 4;
  const int64_t wide = l.bits == QuantBits::int4 ? kQuantMaxBlock * kQuantColumns : 0;
  return {.rows = up_to(64, quant_rows_bytes(g.m, l)),
          .copies = g.m <= kAloneRows ? threads : 1,
          .sums = sums,
          .wide = wide,
          .thread = sums + wide};
}

void quantise(const QuantGemm& g, const QuantLayout& l, const QuantRows& rows, int64_t row) {
  with_type(g.t, [&](auto element) {
    using T = decltype(element);
    const T* x = static_cast<const T*>(g.a) + row * (g.lda ? g.lda : g.k);
    for (int64_t b = 0; b < l.blocks; ++b) {
      const int64_t first = b * l.block;
      quantise_row(rows, x + first, row, b, min_of(l.block, g.k - first), first / kQuantStep, l.steps(b));
    }
  });
}

// All tiles of rows, by vectors.
void multiply_by_rows(const QuantBlocks& q) {
  const QuantRows& rows = q.rows;
  for (int64_t i = 0; i < q.blocks; ++i) {
    const int64_t b = q.first + i, steps = i + 1 < q.blocks ? q.steps : q.last_steps;
    const char *head = q.head + i * q.head_stride, *lines = q.lines + i * q.line_stride;
    for (int64_t t = q.first_tile; t < q.first_tile + q.tiles; ++t) {
      const int64_t in_tile = rows_in(rows, t), row_bytes = kSplitBytes ? kQuantStep : 2 * kQuantStep;
      for (int64_t r = 0; r < in_tile; r += 4) {
        const DotRows x{.a = step_of(rows, t, b * q.steps) + r * row_bytes,
                        .step_bytes = in_tile * 2 * kQuantStep,
                        .lower = in_tile * kQuantStep};
        const int64_t n = min_of(4, in_tile - r), row = t * kQuantTileRows + r;
        for (int64_t half = 0; half < 2; ++half) {
          int32_t sums[4][16];
          dot_rows(n, sums, x, lines + half * steps * kQuantStep * 16, steps);
          for (int64_t k = 0; k < n; ++k) {
            const int64_t at = b * rows.padded + row + k;
            float* c = q.c + (row + k - q.first_tile * kQuantTileRows) * kQuantColumns + 16 * half;
            for (int64_t j = 0; j < 16; j += kW) {
              vi sum;
              __builtin_memcpy(&sum, sums[k] + j, sizeof sum);
              store(c + j,
                    add_group(load(c + j), sum - rows.sums[at], splat(rows.scales[at]), column_scales(head, half, j)));
            }
          }
        }
      }
    }
  }
}

// What one thread does: `panels` of c for all rows.
class Worker {
 public:
  Worker(const QuantGemm& g, const QuantLayout& l, const QuantRows& rows, char* sums, char* wide, bool by_tiles)
      : g_(g),
        l_(l),
        rows_(rows),
        sums_(reinterpret_cast<float*>(sums)),
        wide_(wide),
        by_tiles_(by_tiles),
        stretch_(max_of(1, kQuantStretch / l.block)) {}

  void run(Range panels) const {
#if defined(__AVX512VNNI__)
    if (by_tiles_) cpu_amx::quant_tiles_enter(min_of(g_.m, kQuantTileRows));
#endif
    const int64_t cached = max_of(1, kRowsInCache / (2 * min_of(g_.m, kBlockRows) * l_.block));
    for (int64_t row = 0; row < g_.m; row += kBlockRows) {
      const int64_t rows = min_of(kBlockRows, g_.m - row), held = up_to(4, rows) * kQuantColumns;
      for (int64_t p = panels.begin; p < panels.end; p += kPanels) {
        const int64_t n = min_of(kPanels, panels.end - p);
        __builtin_memset(sums_, 0, static_cast<uint64_t>(n * held) * 4);
        for (int64_t b = 0; b < l_.blocks; b += cached) {
          for (int64_t i = 0; i < n; ++i) {
            const int64_t end = min_of(b + cached, l_.blocks);
            for (int64_t j = b; j < end; j += stretch_)
              multiply(row, rows, p + i, {j, min_of(j + stretch_, end)}, sums_ + i * held);
          }
        }
        for (int64_t i = 0; i < n; ++i) write(row, rows, p + i, sums_ + i * held);
      }
    }
#if defined(__AVX512VNNI__)
    if (by_tiles_) cpu_amx::quant_tiles_leave();
#endif
  }

 private:
  void multiply(int64_t row, int64_t rows, int64_t panel, Range blocks, float* sums) const {
    const char* head = static_cast<const char*>(g_.b_packed) + panel * l_.panel + l_.offset(blocks.begin);
    const int64_t n = blocks.end - blocks.begin, stride = l_.offset(1), steps = l_.block / kQuantStep;
    QuantBlocks q{.c = sums,
                  .rows = rows_,
                  .first_tile = row / kQuantTileRows,
                  .tiles = (rows + kQuantTileRows - 1) / kQuantTileRows,
                  .first = blocks.begin,
                  .blocks = n,
                  .steps = steps,
                  .last_steps = l_.steps(blocks.end - 1),
                  .head = head,
                  .lines = head + l_.head,
                  .head_stride = stride,
                  .line_stride = stride,
                  .ahead = head + n * stride,
                  .ahead_bytes = n * stride};
    if (l_.bits == QuantBits::int4) {
      q.lines = wide_;
      q.line_stride = l_.block * kQuantColumns;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t here = l_.steps(blocks.begin + i);
        for (int64_t half = 0; half < 2; ++half) {
          widen_lines(wide_ + i * q.line_stride + half * here * kQuantStep * 16,
                      head + i * stride + l_.head + half * here * l_.half_step, own_scales(head + i * stride, half),
                      l_.group, here);
        }
      }
    }
#if defined(__AVX512VNNI__)
    if (by_tiles_) return cpu_amx::multiply_by_tiles(q);
#endif
    multiply_by_rows(q);
  }

  void write(int64_t row, int64_t rows, int64_t panel, const float* sums) const {
    const int64_t ldc = g_.ldc ? g_.ldc : g_.n, column = panel * kQuantColumns;
    const FinishTile f{.c = static_cast<char*>(g_.c) + (row * ldc + column) * dtype_bytes(g_.ct),
                       .tile = sums,
                       .bias = g_.bias ? g_.bias + column : nullptr,
                       .ldc = ldc,
                       .rows = rows,
                       .cols = min_of(kQuantColumns, g_.n - column),
                       .ct = g_.ct,
                       .write = Write::overwrite};
    if (g_.t == DType::f16) finish_tile<kQuantColumns, f16>(f);
    else finish_tile<kQuantColumns, bf16>(f);
  }

  const QuantGemm& g_;
  const QuantLayout& l_;
  const QuantRows& rows_;
  float* sums_;
  char* wide_;
  bool by_tiles_;
  int64_t stretch_;  // blocks
};

}  // namespace

int64_t quant_gemm_workspace(const QuantGemm& g, Stream stream) {
  const Space s = space_for(g, QuantLayout(g.bits, g.group, g.n, g.k), stream.threads);
  return s.copies * s.rows + stream.threads * s.thread;
}

namespace {

void product(const QuantGemm& g, Stream stream, bool by_tiles) {
  CHECK(g.ct == DType::f32 || g.ct == g.t, "quant_gemm: %s product into %s, expected f32 or %s", dtype_name(g.t),
        dtype_name(g.ct), dtype_name(g.t));
  if (g.m == 0 || g.n == 0) return;
  CHECK(g.workspace, "quant_gemm: (%lld,%lld,%lld) needs a workspace", static_cast<long long>(g.m),
        static_cast<long long>(g.n), static_cast<long long>(g.k));
  const QuantLayout l(g.bits, g.group, g.n, g.k);
  const Space s = space_for(g, l, stream.threads);
  char* const workspace = static_cast<char*>(g.workspace);
#pragma omp parallel num_threads(stream.threads) if (stream.threads > 1)
  {
    const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    const QuantRows rows = quant_rows_at(workspace + (s.copies > 1 ? me * s.rows : 0), g.m, l);
    if (s.copies > 1) {
      for (int64_t row = 0; row < g.m; ++row) quantise(g, l, rows, row);
    } else {
#pragma omp for schedule(static)
      for (int64_t row = 0; row < g.m; ++row) quantise(g, l, rows, row);
    }
    char* const mine = workspace + s.copies * s.rows + me * s.thread;
    Worker(g, l, rows, mine, mine + s.sums, by_tiles).run(piece_of(l.panels, 1, me, team));
  }
}

}  // namespace

#if defined(__AVX512VNNI__)
void quant_gemm(const QuantGemm& g, Stream stream) { product(g, stream, amx_int8_ready()); }
void quant_gemm_without_tiles(const QuantGemm& g, Stream stream) { product(g, stream, false); }
#else
void quant_gemm(const QuantGemm& g, Stream stream) { product(g, stream, false); }
#endif

}  // namespace rw::RW_ISA
