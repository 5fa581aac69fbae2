// bf16 matrix product on 16 x 64-byte tiles. A step of k is 32 elements. A panel of A is, per step, two tiles of
// (16 rows, 32 k); a panel of B two tiles of (16 pairs of k, 16 columns, 2): both are read as they lie, 2 KiB a step.
// Four accumulator tiles per 32 x 32 of C: each operand tile is used twice, which is what L1 and L2 can feed.
#include "kernels/cpu/gemm_amx.h"

#include "kernels/cpu/gemm_ahead.h"
#include "kernels/cpu/gemm_amx_tiles.h"
#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/gemm_pairs.h"

namespace rw {
namespace RW_ISA {
namespace {

constexpr int64_t kTile = 16, kTileBytes = 1024;

template <class S, Registers kWant>
void pack_panel(const PackPanel& p) {
  char* dst = static_cast<char*>(p.dst);
  for (int64_t k = 0; k < p.k; k += kStep) {
    for (int64_t half = 0; half < 2; ++half, dst += kTileBytes) {
      __m512i r[16];
      load_block<S, kWant>(p, half * kTile, k, r);
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(dst + 64 * i, r[i]);
    }
  }
}
void pack_a(const PackPanel& p) { pack_panel<bf16, Registers::lines>(p); }
void pack_b(const PackPanel& p) {
  if (p.src_t == DType::f32) pack_panel<float, Registers::pairs>(p);
  else pack_panel<bf16, Registers::pairs>(p);
}

void enter(int64_t rows) { load_tile_config(static_cast<int>(rows < kTile ? rows : kTile)); }
void leave() { _tile_release(); }

constexpr int64_t kTileRow = 2 * kTile * 4;  // bytes between rows of the (32,32) f32 tile of C

void multiply(const MultiplyPanels& p) {
  char* const c = reinterpret_cast<char*>(p.tile);
  const char* a = static_cast<const char*>(p.a);
  const char* b = static_cast<const char*>(p.b);
  const int64_t steps = p.k / kStep;
  const bool both = p.rows > kTile;
  stored_before_tiles(a);
  if (p.write == Write::accumulate) {
    _tile_loadd(0, c, kTileRow);
    _tile_loadd(1, c + 64, kTileRow);
    if (both) {
      _tile_loadd(2, c + kTile * kTileRow, kTileRow);
      _tile_loadd(3, c + kTile * kTileRow + 64, kTileRow);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  Ahead ahead(p, steps);
  if (both) {
    for (int64_t s = 0; s < steps; ++s, a += 2 * kTileBytes, b += 2 * kTileBytes) {
      _tile_loadd(6, b, 64);
      _tile_stream_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_stream_loadd(5, a + kTileBytes, 64);
      ahead.step();
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(2, c + kTile * kTileRow, kTileRow);
    _tile_stored(3, c + kTile * kTileRow + 64, kTileRow);
  } else {
    for (int64_t s = 0; s < steps; ++s, a += 2 * kTileBytes, b += 2 * kTileBytes) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + kTileBytes, 64);
      ahead.step();
      _tile_dpbf16ps(1, 4, 7);
    }
  }
  _tile_stored(0, c, kTileRow);
  _tile_stored(1, c + 64, kTileRow);
}

void finish(const FinishTile& f) { finish_tile<2 * kTile, bf16>(f); }

}  // namespace
}  // namespace RW_ISA

const PanelKernel amx_bf16_kernel = {.mr = 32,
                                     .nr = 32,
                                     .kr = 32,
                                     .a_bytes_per_k = 64,
                                     .b_bytes_per_k = 64,
                                     .kc = 512,
                                     .pack_a = RW_ISA::pack_a,
                                     .pack_b = RW_ISA::pack_b,
                                     .enter = RW_ISA::enter,
                                     .leave = RW_ISA::leave,
                                     .multiply = RW_ISA::multiply,
                                     .finish = RW_ISA::finish};

}  // namespace rw
