// A grid of simulated thread blocks: one block after the other, the threads of a block as fibers that take turns at
// barriers and warp operations. What a GPU leaves open (which thread runs first) is a parameter here: a kernel that is
// right gives the same bits in every order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/simt/cuda_types.cuh"

namespace rw::simt {

// forward, reverse: each thread in turn until it waits. greedy_up, greedy_down: a warp runs until it waits at a block
// barrier, before the next one starts: what a GPU does to a kernel that lacks a barrier.
enum class Order : uint8_t { forward, reverse, greedy_up, greedy_down };
constexpr Order kOrders[] = {Order::forward, Order::reverse, Order::greedy_up, Order::greedy_down};
// Of the kernels that this host thread runs from now on.
void set_order(Order order);
Order order();

constexpr unsigned kWarpSize = 32;
constexpr size_t kMostSharedBytes = 227 << 10;  // a block's, of the devices that have most

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;  // dynamic
  const char* kernel = "";
  const void* address = nullptr;  // of the kernel
  size_t most_shared_bytes = kMostSharedBytes;  // that a block of this device may have
  // Dynamic and declared together, of a kernel for which more has not been asked (cudaFuncSetAttribute).
  size_t unasked_shared_bytes = kMostSharedBytes;
};
// Runs `body` once a thread. std::runtime_error names the kernel, block and thread: a shape that no GPU takes, threads
// that leave while others wait at a barrier, lanes that disagree in a warp operation, or what body throws.
void run_grid(const Launch& launch, const std::function<void()>& body);

// ---- inside a kernel ------------------------------------------------------------------------------------------------

struct ThreadView {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};
const ThreadView& here();

void sync_threads();
int sync_threads_or(int predicate);
// Memory of the block, the same for all its threads that ask at the same place (`tag`: an address that only this
// declaration has); begins as NaN. Dynamic memory has no tag.
void* shared_memory(const void* tag, size_t bytes);
void* dynamic_shared_memory();

// All lanes of `mask` meet; the last to arrive calls `act` with what each brought (lanes not in the mask: null), writes
// into what they brought, and all go on. `op` names the operation: lanes that meet in different ones are a fault.
using WarpAct = void (*)(void* const* brought);
void meet_in_warp(const char* op, uint32_t mask, void* mine, WarpAct act);
unsigned lane();

// Asynchronous copies of this thread to shared memory (cp.async): made when it waits for their group, so that what is
// read too soon is what lay there before. `bytes` of 16; the others are zeros.
void copy_later(void* to, const void* from, int bytes);
void commit_copies();
// Until at most n groups are under way.
void wait_for_copies(int n);
// Tensor cores that read shared memory themselves see what a thread wrote there after its fence (fence.proxy.async) and
// a barrier. shared_writes_fenced: every thread of the block had one before the last barrier, and this one has not made
// copies since.
void fence_shared_writes();
bool shared_writes_fenced();
// By one lane of each warp: the warps of a warpgroup (four) say the same things in the same order, and as many.
void agree_in_warpgroup(uint64_t what);

}  // namespace rw::simt
