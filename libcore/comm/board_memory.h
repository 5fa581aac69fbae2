// The memory of a board: what the ranks of a node write to and read from to work together. It lies on the heap when the
// ranks are threads and in a shared mapping when they are processes, so it holds offsets and lock-free atomics only.
//
//   bells    (ranks)            wake a rank that sleeps
//   entries  (slots, ranks)     what a rank posted for the piece of work in a slot, and how far it is
//   mails    (ranks, ranks)     positions in the byte rings from rank i to rank j
//   rings    (ranks, ranks, ring_bytes)
//   stages   (ranks, slots, kStageBytes)   copies of data that peers cannot reach where it is
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace rw {

inline constexpr int64_t kBoardSlots = 16;
inline constexpr int64_t kStageBytes = 64 << 10;

struct alignas(64) Bell {
  std::atomic<uint32_t> count;      // a futex: changes when somebody wakes this rank
  std::atomic<uint32_t> waiting;    // 1 while the rank sleeps or is about to
  std::atomic<int32_t> pid;         // of the rank's process; 0 when ranks are threads
  std::atomic<uint64_t> pid_space;  // which the number belongs to
};

// How far a rank is with the piece in a slot.
enum class Phase : uint64_t { posted = 1, reduced = 2, finished = 3 };

struct alignas(64) Entry {
  std::atomic<uint64_t> state;  // (sequence number + 1) * 4 + phase; only grows
  int64_t request;              // what follows is written before `state` says posted and stays until all ranks finished
  int64_t n;
  int64_t offset;    // of the data in `segment`
  uint32_t segment;  // 0: in the slot's stage
  int32_t root;
  uint8_t op, dtype, reduce, in_place;
  uint64_t parts;  // hash of how the elements are dealt out
};

struct Mail {
  alignas(64) std::atomic<uint64_t> written;  // bytes since the start, by the sender
  alignas(64) std::atomic<uint64_t> read;     // by the receiver
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Entry) == 64 && sizeof(Bell) == 64 && sizeof(Mail) == 128);

class BoardMemory {
 public:
  static int64_t bytes(int ranks);
  // `memory` is zeroed, of bytes(ranks), aligned to 64.
  BoardMemory(std::shared_ptr<std::byte> memory, int ranks);

  Bell& bell(int rank) const;
  Entry& entry(int64_t slot, int rank) const;
  Mail& mail(int from, int to) const;
  std::byte* ring(int from, int to) const;
  std::byte* stage(int rank, int64_t slot) const;
  int64_t ring_bytes() const { return ring_bytes_; }

 private:
  template <typename T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(memory_.get() + offset);
  }
  std::shared_ptr<std::byte> memory_;
  int64_t ranks_, ring_bytes_, entries_, mails_, rings_, stages_;
};

}  // namespace rw
