// What a simulated device is: its streams, its memory, its last fault. The simulator's own: the runtime's functions are
// written over it.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/simt/guarded_memory.h"
#include "kernels/simt/runtime.cuh"

namespace rw::simt {

struct Queue;
struct Device;

// A point of a stream that others may wait for.
struct Point {
  bool reached = false;
  Queue* queue = nullptr;  // on which it stands; null: recorded nowhere yet
  double at_s = 0;
  std::weak_ptr<struct Capture> capture = {};  // recorded in one: it is reached by no run, it orders the graph
  bool captured = false;
  size_t position = 0;  // of the captured work before it
};

// A piece of a stream's work: something to do, a point that is then reached, or a point to wait for.
struct Item {
  std::function<bool()> run = nullptr;  // whether it is done
  std::shared_ptr<Point> reaches = nullptr, waits = nullptr;
};

// A graph under way. Its work is kept in the order in which it was put on its streams, which is one that their events
// allow: that is how it is replayed, on one stream.
struct Capture {
  std::vector<Item> items;
  const Queue* origin = nullptr;
  std::vector<Queue*> queues;  // that take part
  bool broken = false;         // by a call that no capture allows
};

struct Queue {
  Device* device = nullptr;
  std::deque<std::shared_ptr<Item>> work;
  bool running = false;
  std::shared_ptr<Capture> capture = nullptr;
  bool loose = false;      // holds captured work that none of the others waits for
  size_t captured_to = 0;  // position of its last
};

struct Device : std::enable_shared_from_this<Device> {
  Device();
  std::recursive_mutex mutex;  // of all that is below
  int number = 0;              // as its host thread calls it
  Queue default_queue;
  std::vector<Queue*> queues;            // the default one first
  std::map<const char*, size_t> blocks;  // device memory
  std::unique_ptr<GuardedMemory> guard;  // null: memory of the host's own allocator
  size_t bytes = 0, limit = 0, allocations = 0;
  std::map<const void*, size_t> dynamic_shared;  // that kernels may have, where it was asked for
  std::string fault;
  cudaError_t error = cudaSuccess;  // of the last call, until it is asked for
  int devices = 8;                  // seen by this process
  int capability = 90;
};

// The device that this host thread works on: its own, until it uses another's stream.
Device& device();
// Keeps `error` for cudaGetLastError, and returns it.
cudaError_t tell(cudaError_t error);
// The stream's queue; its device becomes this host thread's.
Queue& queue_of(cudaStream_t stream);
// The cause of what its device refuses from now on; cudaSuccess: none.
cudaError_t fault_code(const Device& device);

// For a queue as for a stream (runtime.cuh): puts an item on it, or into its graph.
void put(Queue& queue, Item item);
// Does the queue's work, in order, until `until` is reached (null: all of it).
void run(Queue& queue, const Point* until);

double clock_s();

// Opens a device's memory to this host for a while, where it is guarded.
class OpenMemory {
 public:
  explicit OpenMemory(Device& device) : guard_(device.guard.get()) {
    if (guard_ != nullptr) guard_->open();
  }
  ~OpenMemory() {
    if (guard_ != nullptr) guard_->close();
  }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

 private:
  GuardedMemory* guard_;
};

// The block of `blocks` that holds an address.
DeviceBlock block_at(const std::map<const char*, size_t>& blocks, const void* address);

}  // namespace rw::simt

// The runtime's opaque handle, as it is here.
struct CUstream_st {
  std::shared_ptr<rw::simt::Device> device;
  rw::simt::Queue queue;
};
struct CUevent_st {
  std::shared_ptr<rw::simt::Point> point = std::make_shared<rw::simt::Point>();
};
