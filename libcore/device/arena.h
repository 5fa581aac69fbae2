// Memory is planned before step 1 and named: an arena takes each block once, by owner, touches it once, and keeps it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace rw {

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

class Arena {
 public:
  Arena() = default;
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
  // Counts memory that lies elsewhere (shared gradient buckets).
  void adopt(int64_t bytes, MemoryOwner owner);

  int64_t bytes(MemoryOwner owner) const { return held_[static_cast<size_t>(owner)]; }
  int64_t total_bytes() const;

 private:
  struct Block {
    void* data;
    int64_t bytes;
  };
  std::vector<Block> blocks_;
  std::array<int64_t, static_cast<size_t>(MemoryOwner::n_owners)> held_{};
};

// malloc keeps big blocks instead of returning them (first touch is slow on many virtual machines). First thing in
// main.
void keep_freed_memory();
int64_t resident_bytes();  // VmRSS of this process

}  // namespace rw
