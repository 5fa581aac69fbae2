// Which tiles the blocks of attention work on, and how many blocks there are.
#include "kernels/cuda/attention_tiles.cuh"

#include <doctest/doctest.h>

#include <vector>

// After the above: the toolkit's names.
#include "kernels/simt/runtime.cuh"

using namespace rw;

namespace {

constexpr int kRows = 16;

// visits (tiles of all sequences, heads): how often each was worked on; tiles of sequence s from first_tile[s] on.
template <cuda::Heaviest kHeaviest>
void count_visits(int* visits, const int* first_tile, cuda::Sequences sequences) {
  cuda::TileWalk<kRows, kHeaviest> walk;
  for (cuda::Tile tile; walk.next(sequences, tile);) {
    int s = 0;
    while (sequences.cu_seqlens[s] != tile.begin || sequences.cu_seqlens[s + 1] == tile.begin) ++s;
    const bool right = tile.length == sequences.cu_seqlens[s + 1] - tile.begin && tile.first % kRows == 0;
    const int at = (first_tile[s] + tile.first / kRows) * sequences.heads + tile.head;
    if (threadIdx.x == 37 && right) visits[at] += 1;
  }
}

}  // namespace

TEST_CASE("attention tiles: every tile once, for any number of blocks") {
  for (const int n : {1, 2, 31, 33, 70}) {
    std::vector<int32_t> cu{5};  // rows before the first sequence are nobody's
    std::vector<int> first_tile{0};
    for (int s = 0; s < n; ++s) {
      const int length = s % 5 == 3 ? 0 : 1 + s * 7 % 61;
      cu.push_back(cu.back() + length);
      first_tile.push_back(first_tile.back() + (length + kRows - 1) / kRows);
    }
    const cuda::Sequences sequences{cu.data(), n, 3};
    const auto tiles = static_cast<size_t>(first_tile.back() * sequences.heads);
    for (const unsigned blocks : {1U, 2U, 7U, 64U, 1000U})
      for (const simt::Order order : {simt::Order::forward, simt::Order::greedy_down}) {
        CAPTURE(n);
        CAPTURE(blocks);
        simt::set_order(order);
        std::vector<int> up(tiles, 0), down(tiles, 0);
        LAUNCH(count_visits<cuda::Heaviest::first>, dim3(blocks), dim3(64), 0, nullptr, up.data(), first_tile.data(),
               sequences);
        LAUNCH(count_visits<cuda::Heaviest::last>, dim3(blocks), dim3(64), 0, nullptr, down.data(), first_tile.data(),
               sequences);
        RW_CUDA(cudaStreamSynchronize(nullptr));
        CHECK(up == std::vector<int>(tiles, 1));
        CHECK(down == up);
      }
  }
  simt::set_order(simt::Order::forward);
}

TEST_CASE("attention tiles: as many blocks as a device holds at once") {
  using cuda::resident_blocks;
  constexpr size_t kOptIn = 227 << 10;
  CHECK(resident_blocks(132, kOptIn, {.threads = 128, .registers = 255, .shared_bytes = 100 << 10}) == 264);
  CHECK(resident_blocks(132, kOptIn, {.threads = 256, .registers = 255, .shared_bytes = 100 << 10}) == 132);
  CHECK(resident_blocks(132, kOptIn, {.threads = 128, .registers = 255, .shared_bytes = 114 << 10}) == 132);
  CHECK(resident_blocks(7, kOptIn, {.threads = 128, .registers = 32, .shared_bytes = 0}) == 7 * 16);
  CHECK(resident_blocks(7, kOptIn, {.threads = 1024, .registers = 255, .shared_bytes = kOptIn}) == 7);
}
