// Memory is planned before step 1 and named: an arena takes each block once, by owner, touches it once, and keeps it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace rw {

class DeviceMemory;

enum class MemoryOwner {
  weights,
  packed_weights,
  gradients,
  optimizer,
  activations,
  workspace,
  data,
  comm,
  kv,
  n_owners
};
const char* memory_owner_name(MemoryOwner o);

// count: for the meta device. Nothing is allocated; addresses are handed out that must not be touched.
enum class ArenaKind { memory, count };

// An array that the host writes and ops read. Where ops read the host's memory both are one, and Upload does nothing.
template <typename T>
struct Mirrored {
  T* host = nullptr;
  T* device = nullptr;
};

class Arena {
 public:
  explicit Arena(ArenaKind kind = ArenaKind::memory) : kind_(kind) {}
  // Of a device; it outlives the arena. Null: of the host.
  explicit Arena(DeviceMemory* device) : device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // A zeroed, 4 KiB-aligned block that lives as long as the arena; already touched by `threads` threads.
  // Error{runtime} when memory is short: owner, bytes asked, bytes held by owner.
  void* take(int64_t bytes, MemoryOwner owner, int threads = 1);
  template <typename T>
  T* take_n(int64_t n, MemoryOwner owner, int threads = 1) {
    return static_cast<T*>(take(n * static_cast<int64_t>(sizeof(T)), owner, threads));
  }
  // The same, touched by nobody yet: it becomes resident as it is used. For pools that may never be filled.
  void* take_untouched(int64_t bytes, MemoryOwner owner);
  // Memory of the host, there whatever the device is: page-locked where that has memory of its own.
  void* take_host(int64_t bytes, MemoryOwner owner);
  template <typename T>
  T* take_host_n(int64_t n, MemoryOwner owner) {
    return static_cast<T*>(take_host(n * static_cast<int64_t>(sizeof(T)), owner));
  }
  // Counted once, as on a host. In a counting arena both are the host's: what ops are priced by is read from there.
  template <typename T>
  Mirrored<T> take_mirrored(int64_t n, MemoryOwner owner) {
    T* host = take_host_n<T>(n, owner);
    if (device_ == nullptr) return {.host = host, .device = host};
    held_[static_cast<size_t>(owner)] -= blocks_.back().bytes;
    return {.host = host, .device = take_n<T>(n, owner)};
  }
  ArenaKind kind() const { return kind_; }
  DeviceMemory* device() const { return device_; }  // null: its blocks are the host's
  // Counts memory that lies elsewhere (shared gradient buckets).
  void adopt(int64_t bytes, MemoryOwner owner);

  int64_t bytes(MemoryOwner owner) const { return held_[static_cast<size_t>(owner)]; }
  int64_t total_bytes() const;

 private:
  enum class Place : uint8_t { mapped, device, device_host };
  struct Block {
    void* data;
    int64_t bytes;
    Place place;
  };
  void* map(int64_t rounded, int64_t bytes, MemoryOwner owner);
  void* keep(void* data, int64_t rounded, int64_t bytes, MemoryOwner owner, Place place);

  ArenaKind kind_ = ArenaKind::memory;
  DeviceMemory* device_ = nullptr;
  int64_t next_fake_ = int64_t{1} << 40;
  std::vector<Block> blocks_;
  std::array<int64_t, static_cast<size_t>(MemoryOwner::n_owners)> held_{};
};

// malloc keeps big blocks instead of returning them (first touch is slow on many virtual machines). First thing in
// main.
void keep_freed_memory();
int64_t resident_bytes();       // VmRSS of this process
int64_t peak_resident_bytes();  // VmHWM
int64_t available_bytes();      // what the system can give without swapping; INT64_MAX where it does not say

}  // namespace rw
