#include "kernels/cpu/gemm_panels.h"

#include <omp.h>

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {
namespace {

// A block of A, packed over all of k, and the f32 tiles of a block of C that wait for the rest of k: sized for an L2 of
// 1 to 2 MiB, shared with the panels of B that stream through it.
constexpr int64_t kBlockABytes = 1 << 20;
constexpr int64_t kMaxBlockRows = 256;
constexpr int64_t kBlockCBytes = 1 << 18;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

struct Shape {
  int64_t m_panels, n_panels, k;  // k padded
  int64_t a_panel_bytes, b_panel_bytes, tile_floats;
  int64_t block_m, block_n;  // panels in a block of A, of B
  int64_t k_blocks;
  int64_t thread_bytes, b_bytes;  // workspace: of a thread, of B packed at run time
};

Shape shape_of(const PanelKernel& p, const Gemm& g) {
  Shape s{};
  s.m_panels = ceil_div(g.m, p.mr);
  s.n_panels = ceil_div(g.n, p.nr);
  s.k = round_up(g.k, p.kr);
  s.a_panel_bytes = round_up(s.k * p.a_bytes_per_k, 64);
  s.b_panel_bytes = round_up(s.k * p.b_bytes_per_k, 64);
  s.tile_floats = p.mr * p.nr;
  s.k_blocks = std::max<int64_t>(1, ceil_div(s.k, p.kc));
  const int64_t k_in_cache = std::max<int64_t>(1, std::min(s.k, 2 * p.kc));
  const int64_t panels = std::min(kMaxBlockRows / p.mr, kBlockABytes / (k_in_cache * p.a_bytes_per_k));
  s.block_m = std::clamp<int64_t>(panels, 1, std::max<int64_t>(1, s.m_panels));
  s.block_n = std::max<int64_t>(1, s.n_panels);
  if (s.k_blocks > 1) s.block_n = std::clamp<int64_t>(kBlockCBytes / 4 / s.tile_floats / s.block_m, 1, s.block_n);
  const int64_t tiles = s.k_blocks > 1 ? s.block_m * s.block_n : 1;
  s.thread_bytes = s.block_m * s.a_panel_bytes + round_up(tiles * s.tile_floats * 4, 64);
  s.b_bytes = g.b_packed ? 0 : s.n_panels * s.b_panel_bytes;
  return s;
}

// How many threads share the rows and how many the columns: least work for the busiest, then least packing and reading.
struct Grid {
  int64_t rows, cols;
};
Grid grid_for(const PanelKernel& p, const Shape& s, int threads) {
  Grid best{1, 1};
  int64_t best_work = INT64_MAX, best_traffic = INT64_MAX;
  for (int64_t rows = 1; rows <= std::min<int64_t>(threads, s.m_panels); ++rows) {
    const int64_t cols = std::min(threads / rows, s.n_panels);
    const int64_t m = ceil_div(s.m_panels, rows), n = ceil_div(s.n_panels, cols);
    const int64_t work = m * n, traffic = m * p.mr + n * p.nr;
    if (work < best_work || (work == best_work && traffic < best_traffic)) {
      best = {rows, cols}, best_work = work, best_traffic = traffic;
    }
  }
  return best;
}

struct Range {
  int64_t begin, end;
};
Range part(int64_t n, int64_t parts, int64_t i) { return {n * i / parts, n * (i + 1) / parts}; }

void check_gemm(const Gemm& g) {
  CHECK(g.m >= 0 && g.n >= 0 && g.k >= 0, "gemm: (%ld,%ld,%ld)", g.m, g.n, g.k);
  CHECK(g.ct == DType::f32 || g.ct == g.t, "gemm: %s product into %s, expected f32 or %s", dtype_name(g.t),
        dtype_name(g.ct), dtype_name(g.t));
  CHECK(g.write == Write::overwrite || g.ct == DType::f32, "gemm: accumulation into %s", dtype_name(g.ct));
}

const char* offset(const void* p, int64_t elements, DType t) {
  return static_cast<const char*>(p) + elements * dtype_bytes(t);
}

void pack_a_block(const PanelKernel& p, const Gemm& g, const Shape& s, Range panels, char* dst) {
  const bool trans = g.a_trans == Trans::yes;
  const int64_t ld = g.lda ? g.lda : (trans ? g.m : g.k);
  for (int64_t i = panels.begin; i < panels.end; ++i) {
    p.pack_a({.dst = dst + (i - panels.begin) * s.a_panel_bytes,
              .src = offset(g.a, i * p.mr * (trans ? 1 : ld), g.t),
              .ld = ld,
              .lines = std::min(p.mr, g.m - i * p.mr),
              .k = g.k,
              .axis = trans ? KAxis::k_outer : KAxis::k_inner,
              .src_t = g.t});
  }
}

void pack_b_panel(const PanelKernel& p, const GemmPack& g, int64_t j) {
  const bool trans = g.b_trans == Trans::yes;
  const int64_t ld = g.ldb ? g.ldb : (trans ? g.k : g.n);
  const int64_t panel_bytes = round_up(round_up(g.k, p.kr) * p.b_bytes_per_k, 64);
  p.pack_b({.dst = static_cast<char*>(g.packed) + j * panel_bytes,
            .src = offset(g.b, j * p.nr * (trans ? ld : 1), g.src_t),
            .ld = ld,
            .lines = std::min(p.nr, g.n - j * p.nr),
            .k = g.k,
            .axis = trans ? KAxis::k_inner : KAxis::k_outer,
            .src_t = g.src_t});
}

// The product of a block of A with one panel of B over the k-th block of k.
struct Block {
  const char* a;  // packed panels of A
  const char* b;  // the panels of B
  float* tiles;
  Range rows, cols;  // in panels
};
void multiply_block(const PanelKernel& p, const Gemm& g, const Shape& s, const Block& block) {
  const int64_t ldc = g.ldc ? g.ldc : g.n, n_rows = block.rows.end - block.rows.begin;
  for (int64_t kb = 0; kb < s.k_blocks; ++kb) {
    const int64_t k0 = kb * p.kc, k = std::min(p.kc, s.k - k0);
    const bool last = kb + 1 == s.k_blocks;
    for (int64_t j = block.cols.begin; j < block.cols.end; ++j) {
      const char* b = block.b + j * s.b_panel_bytes + k0 * p.b_bytes_per_k;
      const char* ahead = j + 1 < block.cols.end ? b + s.b_panel_bytes
                          : last                 ? b  // the caller goes on elsewhere
                                 : block.b + block.cols.begin * s.b_panel_bytes + (k0 + k) * p.b_bytes_per_k;
      const int64_t ahead_bytes = ceil_div(k * p.b_bytes_per_k, n_rows * 64) * 64;
      for (int64_t i = block.rows.begin; i < block.rows.end; ++i) {
        const int64_t r = i - block.rows.begin;
        float* tile = block.tiles;
        if (s.k_blocks > 1) tile += ((j - block.cols.begin) * n_rows + r) * s.tile_floats;
        const int64_t rows = std::min(p.mr, g.m - i * p.mr);
        char* c = const_cast<char*>(offset(g.c, i * p.mr * ldc + j * p.nr, g.ct));
        const int64_t cols = std::min(p.nr, g.n - j * p.nr);
        p.multiply({.tile = tile,
                    .a = block.a + r * s.a_panel_bytes + k0 * p.a_bytes_per_k,
                    .b = b,
                    .rows = rows,
                    .k = k,
                    .write = kb == 0 ? Write::overwrite : Write::accumulate,
                    .ahead = ahead + r * ahead_bytes,
                    .ahead_bytes = ahead_bytes,
                    .c = last ? c : nullptr,
                    .c_stride = ldc * dtype_bytes(g.ct),
                    .c_row_bytes = cols * dtype_bytes(g.ct)});
        if (!last) continue;
        p.finish({.c = c,
                  .tile = tile,
                  .bias = g.bias ? g.bias + j * p.nr : nullptr,
                  .ldc = ldc,
                  .rows = rows,
                  .cols = cols,
                  .ct = g.ct,
                  .write = g.write});
      }
    }
  }
}

}  // namespace

int64_t panels_packed_bytes(const PanelKernel& p, const GemmPack& g) {
  return ceil_div(g.n, p.nr) * round_up(round_up(g.k, p.kr) * p.b_bytes_per_k, 64);
}

void panels_pack(const PanelKernel& p, const GemmPack& g, Stream stream) {
  CHECK(g.src_t == g.t || g.src_t == DType::f32, "gemm_pack: from %s to %s, expected f32 or %s to start from",
        dtype_name(g.src_t), dtype_name(g.t), dtype_name(g.t));
  const int64_t panels = ceil_div(g.n, p.nr);
#pragma omp parallel for num_threads(stream.threads) schedule(static)
  for (int64_t j = 0; j < panels; ++j) pack_b_panel(p, g, j);
}

int64_t panels_workspace(const PanelKernel& p, const Gemm& g, Stream stream) {
  const Shape s = shape_of(p, g);
  return s.b_bytes + stream.threads * s.thread_bytes;
}

void panels_gemm(const PanelKernel& p, const Gemm& g, Stream stream) {
  check_gemm(g);
  if (g.m == 0 || g.n == 0) return;
  CHECK(g.workspace, "gemm: (%ld,%ld,%ld) needs a workspace", g.m, g.n, g.k);
  const Shape s = shape_of(p, g);
  const Grid grid = grid_for(p, s, stream.threads);
  char* const workspace = static_cast<char*>(g.workspace);
  const char* const b = g.b_packed ? static_cast<const char*>(g.b_packed) : workspace;
  const GemmPack pack{
      .packed = workspace, .b = g.b, .n = g.n, .k = g.k, .ldb = g.ldb, .b_trans = g.b_trans, .src_t = g.t, .t = g.t};
  const int64_t places = grid.rows * grid.cols;
#pragma omp parallel num_threads(stream.threads) if (stream.threads > 1)
  {
    if (!g.b_packed) {
#pragma omp for schedule(static)
      for (int64_t j = 0; j < s.n_panels; ++j) pack_b_panel(p, pack, j);
    }
    const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    char* const a = workspace + s.b_bytes + me * s.thread_bytes;
    float* const tiles = reinterpret_cast<float*>(a + s.block_m * s.a_panel_bytes);
    p.enter(std::min(g.m, p.mr));
    for (int64_t place = me; place < places; place += team) {
      const Range rows = part(s.m_panels, grid.rows, place / grid.cols);
      const Range cols = part(s.n_panels, grid.cols, place % grid.cols);
      for (int64_t i = rows.begin; i < rows.end; i += s.block_m) {
        const Range block_rows{i, std::min(i + s.block_m, rows.end)};
        pack_a_block(p, g, s, block_rows, a);
        for (int64_t j = cols.begin; j < cols.end; j += s.block_n) {
          multiply_block(p, g, s, {a, b, tiles, block_rows, {j, std::min(j + s.block_n, cols.end)}});
        }
      }
    }
    p.leave();
  }
}

}  // namespace rw
