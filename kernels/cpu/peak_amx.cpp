// Four accumulator tiles, two by two operand tiles: what a GEMM's inner loop has, without its loads.
#include <immintrin.h>

#include "kernels/cpu/gemm_amx_tiles.h"
#include "kernels/cpu/peak_loops.h"

namespace rw {
namespace {

void run(int64_t iterations, float* sink) {
  load_tile_config(16);
  alignas(64) uint16_t tiny[16][32];
  for (auto& row : tiny)
    for (auto& v : row) v = 0x2000;  // 1e-19 as bf16: the sums stay finite
  stored_before_tiles(tiny);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, tiny, 64);
  _tile_loadd(5, tiny, 64);
  _tile_loadd(6, tiny, 64);
  _tile_loadd(7, tiny, 64);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float out[4][16][16];
  _tile_stored(0, out[0], 64);
  _tile_stored(1, out[1], 64);
  _tile_stored(2, out[2], 64);
  _tile_stored(3, out[3], 64);
  _tile_release();
  *sink += out[0][0][0] + out[1][1][1] + out[2][2][2] + out[3][3][3];
}

}  // namespace

const PeakLoop peak_amx_bf16_dot = {"amx tdpbf16ps", 4 * 16 * 16 * 32 * 2, run};

}  // namespace rw
