#include "libcore/comm/segment.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "libcore/base/check.h"

namespace rw {

std::shared_ptr<std::byte> heap_bytes(int64_t bytes) {
  CHECK(bytes >= 0, "%lld bytes", static_cast<long long>(bytes));
  const size_t rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64 + 64;
  void* p = std::aligned_alloc(64, rounded);
  if (!p) throw std::bad_alloc();
  std::memset(p, 0, rounded);
  return {static_cast<std::byte*>(p), [](std::byte* q) { std::free(q); }};
}

SharedBuffer allocate_private(int64_t bytes) {
  auto memory = heap_bytes(bytes);
  return {memory.get(), bytes, memory};
}

void SegmentTable::add(const std::shared_ptr<Segment>& segment) {
  std::erase_if(known_, [](const Known& k) { return k.segment.expired(); });
  known_.push_back({++n_made_, segment});
}

std::optional<Place> SegmentTable::find(const void* data, int64_t bytes, int rank) const {
  const auto* p = static_cast<const std::byte*>(data);
  for (const Known& k : known_) {
    auto segment = k.segment.lock();
    if (!segment) continue;
    const std::byte* part = segment->parts[static_cast<size_t>(rank)];
    if (p >= part && p + bytes <= part + segment->bytes) return Place{segment, k.id, p - part};
  }
  return std::nullopt;
}

int64_t SegmentTable::bytes() const {
  int64_t total = 0;
  for (const Known& k : known_)
    if (const auto segment = k.segment.lock()) total += segment->bytes;
  return total;
}

std::shared_ptr<Segment> SegmentTable::segment(uint32_t id) const {
  for (const Known& k : known_)
    if (k.id == id) return k.segment.lock();
  return nullptr;
}

}  // namespace rw
