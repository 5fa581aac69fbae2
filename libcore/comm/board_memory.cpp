#include "libcore/comm/board_memory.h"

#include <algorithm>
#include <utility>

namespace rw {
namespace {

// 128 KiB for up to 4 ranks, then less, so that the rings of all pairs stay at some MiB.
int64_t ring_bytes_for(int64_t ranks) {
  return std::clamp<int64_t>((512 << 10) / ranks / 4096 * 4096, 4096, 128 << 10);
}
int64_t page_up(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

int64_t entries_at(int64_t ranks) { return ranks * static_cast<int64_t>(sizeof(Bell)); }
int64_t mails_at(int64_t ranks) {
  return entries_at(ranks) + kBoardSlots * ranks * static_cast<int64_t>(sizeof(Entry));
}
int64_t rings_at(int64_t ranks) {
  return page_up(mails_at(ranks) + ranks * ranks * static_cast<int64_t>(sizeof(Mail)));
}
int64_t stages_at(int64_t ranks) { return rings_at(ranks) + ranks * ranks * ring_bytes_for(ranks); }

}  // namespace

int64_t BoardMemory::bytes(int ranks) { return stages_at(ranks) + ranks * kBoardSlots * kStageBytes; }

BoardMemory::BoardMemory(std::shared_ptr<std::byte> memory, int ranks)
    : memory_(std::move(memory)),
      ranks_(ranks),
      ring_bytes_(ring_bytes_for(ranks)),
      entries_(entries_at(ranks)),
      mails_(mails_at(ranks)),
      rings_(rings_at(ranks)),
      stages_(stages_at(ranks)) {}

Bell& BoardMemory::bell(int rank) const { return at<Bell>(0)[rank]; }
Entry& BoardMemory::entry(int64_t slot, int rank) const { return at<Entry>(entries_)[slot * ranks_ + rank]; }
Mail& BoardMemory::mail(int from, int to) const { return at<Mail>(mails_)[from * ranks_ + to]; }
std::byte* BoardMemory::ring(int from, int to) const {
  return at<std::byte>(rings_) + (from * ranks_ + to) * ring_bytes_;
}
std::byte* BoardMemory::stage(int rank, int64_t slot) const {
  return at<std::byte>(stages_) + (rank * kBoardSlots + slot) * kStageBytes;
}

}  // namespace rw
