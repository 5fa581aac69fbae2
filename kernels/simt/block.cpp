#include "kernels/simt/block.cuh"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/simt/fiber.h"

namespace rw::simt {
namespace {

enum class State : uint8_t { ready, at_barrier, in_warp, done };

struct Block;
struct Copy {
  void* to;
  const void* from;
  int bytes, group;
};
struct Copies {
  std::vector<Copy> under_way;
  int committed = 0;
  bool fenced = false;  // since the last barrier
  bool made_since_fence = false;
};
struct Thread {
  ThreadView view;
  State state = State::ready;
  unsigned flat = 0;
  Block* block = nullptr;
  Copies copies;
  Fiber fiber;
};
// One operation under way in a warp.
struct Meeting {
  uint32_t mask = 0, arrived = 0;
  const char* op = nullptr;
  void* brought[kWarpSize];
};
struct SharedPiece {
  const void* tag;
  size_t begin, bytes;
};

// What the warps of a warpgroup said, and how far each has come.
struct Agreement {
  std::vector<uint64_t> said;
  size_t come[4] = {};
};

// What a host thread keeps from launch to launch.
struct Block {
  Block() { make_stack_pool(); }
  Launch launch;
  const std::function<void()>* body = nullptr;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Meeting> warps;
  std::vector<Agreement> warpgroups;
  std::unique_ptr<unsigned char[]> shared;  // kMostSharedBytes and room to align
  std::vector<SharedPiece> pieces;
  size_t shared_used = 0, declared = 0;
  unsigned n = 0, at_barrier = 0, done = 0;
  int barrier_or = 0, barrier_result = 0;
  bool fenced = false;  // by all threads, before the last barrier
  std::exception_ptr error;

  unsigned char* shared_begin() const {
    return reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(shared.get()) + 1023) & ~uintptr_t{1023});
  }
};

thread_local constinit Thread* running = nullptr;
thread_local constinit Order order_now = Order::forward;

// Memory is taken back when the host thread ends; a launch inside a launch is not a thing that CUDA code does here.
Block& block_of_thread() {
  thread_local Block block;
  return block;
}

std::string place(const Thread& t) {
  const auto text = [](const char* what, unsigned x, unsigned y, unsigned z) {
    return std::string(what) + " (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  return std::string(t.block->launch.kernel) + ", " + text("block", t.view.block.x, t.view.block.y, t.view.block.z) +
         ", " + text("thread", t.view.thread.x, t.view.thread.y, t.view.thread.z);
}
[[noreturn]] void fault(const Thread& t, const std::string& what) {
  throw std::runtime_error(what + " in " + place(t));
}

void run_body(void* argument) {
  auto* t = static_cast<Thread*>(argument);
  try {
    (*t->block->body)();
  } catch (...) {
    t->block->error = std::current_exception();
  }
  t->state = State::done;
  ++t->block->done;
  t->fiber.finish();
}

void step(Thread& t) {
  running = &t;
  t.fiber.resume();
  running = nullptr;
  if (t.block->error) std::rethrow_exception(std::exchange(t.block->error, nullptr));
}

// Each lane that can run, once; false when none could.
bool run_warp(Block& b, unsigned warp, bool downwards) {
  const unsigned first = warp * kWarpSize, n = std::min(kWarpSize, b.n - first);
  bool ran = false;
  for (unsigned i = 0; i < n; ++i) {
    Thread& t = *b.threads[first + (downwards ? n - 1 - i : i)];
    if (t.state != State::ready) continue;
    step(t);
    ran = true;
  }
  return ran;
}

void open_barrier(Block& b) {
  b.at_barrier = 0;
  b.barrier_result = std::exchange(b.barrier_or, 0);
  b.fenced = true;
  for (unsigned i = 0; i < b.n; ++i) {
    b.fenced = b.fenced && std::exchange(b.threads[i]->copies.fenced, false);
    b.threads[i]->state = State::ready;
  }
}

[[noreturn]] void stuck(const Block& b) {
  const Thread* waits = nullptr;
  for (unsigned i = 0; i < b.n; ++i) {
    if (b.threads[i]->state == State::done) continue;
    if (waits == nullptr || b.threads[i]->state == State::in_warp) waits = b.threads[i].get();
  }
  if (waits->state == State::at_barrier && b.done > 0)
    fault(*waits, std::to_string(b.done) + " threads have left the kernel while others wait at a block barrier");
  if (waits->state == State::in_warp) {
    const Meeting& m = b.warps[waits->flat / kWarpSize];
    fault(*waits, std::string(m.op) + " waits for lanes that do not come (mask and arrived: " + std::to_string(m.mask) +
                      ", " + std::to_string(m.arrived) + ")");
  }
  fault(*waits, "threads wait at a block barrier and for each other");
}

void run_block(Block& b, uint3 index) {
  b.at_barrier = b.done = 0;
  b.barrier_or = 0;
  b.fenced = false;
  for (Agreement& group : b.warpgroups) group = {};
  b.pieces.clear();
  b.declared = 0;
  b.shared_used = (b.launch.shared_bytes + 127) & ~size_t{127};
  std::memset(b.shared_begin(), 0xFF, std::min(b.shared_used, kMostSharedBytes));
  for (Meeting& m : b.warps) m.arrived = 0, m.op = nullptr;
  for (unsigned i = 0; i < b.n; ++i) {
    Thread& t = *b.threads[i];
    t.state = State::ready;
    t.view.block = index;
    t.copies.under_way.clear();
    t.copies.committed = 0;
    t.copies.fenced = t.copies.made_since_fence = false;
    t.fiber.start(run_body, &t);
  }
  const unsigned warps = (b.n + kWarpSize - 1) / kWarpSize;
  const bool greedy = order_now == Order::greedy_up || order_now == Order::greedy_down;
  const bool downwards = order_now == Order::reverse || order_now == Order::greedy_down;
  while (b.done < b.n) {
    bool ran = false;
    for (unsigned w = 0; w < warps; ++w) {
      const unsigned warp = downwards ? warps - 1 - w : w;
      while (run_warp(b, warp, downwards)) {
        ran = true;
        if (!greedy) break;
      }
    }
    if (b.at_barrier == b.n) open_barrier(b);
    else if (!ran && b.done < b.n) stuck(b);
  }
  for (const Agreement& group : b.warpgroups)
    if (std::any_of(std::begin(group.come), std::end(group.come), [&](size_t n) { return n != group.said.size(); }))
      throw std::runtime_error("warps of a warpgroup made different products in " + place(*b.threads[0]));
}

// A fault leaves fibers that are halfway through: their stacks are given up with them.
void forget_threads(Block& b) { b.threads.clear(); }

}  // namespace

void set_order(Order order) { order_now = order; }
Order order() { return order_now; }

void run_grid(const Launch& launch, const std::function<void()>& body) {
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(what + " in the launch of " + launch.kernel);
  };
  const dim3 &g = launch.grid, &d = launch.block;
  const uint64_t n = uint64_t{d.x} * d.y * d.z;
  if (n == 0 || n > 1024) refuse("a block of " + std::to_string(n) + " threads (1 to 1024)");
  if (g.x == 0 || g.y == 0 || g.z == 0) refuse("an empty grid");
  if (g.x > 0x7fffffffU || g.y > 65535 || g.z > 65535)
    refuse("a grid of " + std::to_string(g.x) + " x " + std::to_string(g.y) + " x " + std::to_string(g.z) +
           " blocks (y and z: at most 65535)");
  if (launch.shared_bytes > launch.most_shared_bytes)
    refuse(std::to_string(launch.shared_bytes) + " bytes of shared memory (at most " +
           std::to_string(launch.most_shared_bytes) + ")");
  if (launch.shared_bytes > launch.unasked_shared_bytes)
    refuse(std::to_string(launch.shared_bytes) + " bytes of shared memory that were not asked for");
  if (running != nullptr) refuse("a kernel that launches a kernel");

  Block& b = block_of_thread();
  b.launch = launch;
  b.body = &body;
  b.n = static_cast<unsigned>(n);
  if (!b.shared) b.shared = std::make_unique<unsigned char[]>(kMostSharedBytes + 1024);
  b.warps.resize((b.n + kWarpSize - 1) / kWarpSize);
  b.warpgroups.resize((b.warps.size() + 3) / 4);
  while (b.threads.size() < n) b.threads.push_back(std::make_unique<Thread>());
  for (unsigned i = 0; i < b.n; ++i) {
    Thread& t = *b.threads[i];
    t.flat = i;
    t.block = &b;
    t.view.thread = {i % d.x, i / d.x % d.y, i / (d.x * d.y)};
    t.view.block_dim = d;
    t.view.grid_dim = g;
  }
  try {
    for (unsigned z = 0; z < g.z; ++z)
      for (unsigned y = 0; y < g.y; ++y)
        for (unsigned x = 0; x < g.x; ++x) run_block(b, {x, y, z});
  } catch (...) {
    forget_threads(b);
    throw;
  }
}

const ThreadView& here() { return running->view; }
unsigned lane() { return running->flat % kWarpSize; }

void sync_threads() {
  Thread& t = *running;
  t.state = State::at_barrier;
  ++t.block->at_barrier;
  t.fiber.suspend();
}

int sync_threads_or(int predicate) {
  Block& b = *running->block;
  b.barrier_or |= predicate != 0 ? 1 : 0;
  sync_threads();
  return b.barrier_result;
}

void* shared_memory(const void* tag, size_t bytes) {
  Thread& t = *running;
  Block& b = *t.block;
  for (const SharedPiece& piece : b.pieces)
    if (piece.tag == tag) return b.shared_begin() + piece.begin;
  const size_t begin = b.shared_used;
  b.shared_used = (begin + bytes + 127) & ~size_t{127};
  if (b.shared_used > b.launch.most_shared_bytes)
    fault(t, std::to_string(b.shared_used) + " bytes of shared memory (at most " +
                 std::to_string(b.launch.most_shared_bytes) + ")");
  b.declared += bytes;
  if (b.launch.shared_bytes > 0 && b.declared + b.launch.shared_bytes > b.launch.unasked_shared_bytes)
    fault(t, std::to_string(b.launch.shared_bytes) + " bytes of shared memory beside " + std::to_string(b.declared) +
                 " declared ones, which were not asked for");
  std::memset(b.shared_begin() + begin, 0xFF, b.shared_used - begin);
  b.pieces.push_back({tag, begin, bytes});
  return b.shared_begin() + begin;
}
void* dynamic_shared_memory() { return running->block->shared_begin(); }

void copy_later(void* to, const void* from, int bytes) {
  Copies& c = running->copies;
  c.under_way.push_back({to, from, bytes, c.committed});
}
void commit_copies() { ++running->copies.committed; }
void wait_for_copies(int n) {
  Copies& c = running->copies;
  const auto done = [&](const Copy& copy) { return copy.group < c.committed - n; };
  for (const Copy& copy : c.under_way) {
    if (!done(copy)) continue;
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, 16);
    else std::memset(copy.to, 0, 16);
    c.made_since_fence = true;
  }
  std::erase_if(c.under_way, done);
}
void fence_shared_writes() {
  running->copies.fenced = true;
  running->copies.made_since_fence = false;
}
bool shared_writes_fenced() { return running->block->fenced && !running->copies.made_since_fence; }

void agree_in_warpgroup(uint64_t what) {
  const unsigned warp = running->flat / kWarpSize;
  Agreement& group = running->block->warpgroups[warp / 4];
  const size_t at = group.come[warp % 4]++;
  if (at == group.said.size()) group.said.push_back(what);
  else if (group.said[at] != what) fault(*running, "warps of a warpgroup disagree about a product");
}

void meet_in_warp(const char* op, uint32_t mask, void* mine, WarpAct act) {
  Thread& t = *running;
  Block& b = *t.block;
  const unsigned warp = t.flat / kWarpSize, lane = t.flat % kWarpSize;
  Meeting& m = b.warps[warp];
  if ((mask >> lane & 1U) == 0) fault(t, std::string(op) + " by a lane that is not in its own mask");
  if (m.arrived == 0) {
    m.mask = mask;
    m.op = op;
    std::fill(std::begin(m.brought), std::end(m.brought), nullptr);
  } else if (m.mask != mask || std::strcmp(m.op, op) != 0) {
    fault(t, std::string("lanes of one warp disagree: ") + m.op + " and " + op);
  }
  m.brought[lane] = mine;
  m.arrived |= 1U << lane;
  if (m.arrived != mask) {
    t.state = State::in_warp;
    t.fiber.suspend();
    return;
  }
  if (act != nullptr) act(m.brought);
  m.arrived = 0;
  for (unsigned i = 0; i < kWarpSize; ++i)
    if ((mask >> i & 1U) != 0 && i != lane) b.threads[warp * kWarpSize + i]->state = State::ready;
}

}  // namespace rw::simt
