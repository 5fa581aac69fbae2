#include "libcore/comm/board_mail.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/patience.h"

namespace rw {
namespace {

// From here on a copy into the ring and one out of it cost more than the sender's wait for the receiver.
constexpr int64_t kLendBytes = 16 << 10;

// `n` bytes at a position of a ring, around its end if need be.
void copy_in(std::byte* ring, uint64_t capacity, uint64_t position, const void* from, uint64_t n) {
  const uint64_t at = position % capacity, first = std::min(n, capacity - at);
  std::memcpy(ring + at, from, first);
  std::memcpy(ring, static_cast<const std::byte*>(from) + first, n - first);
}
void copy_out(const std::byte* ring, uint64_t capacity, uint64_t position, void* to, uint64_t n) {
  const uint64_t at = position % capacity, first = std::min(n, capacity - at);
  std::memcpy(to, ring + at, first);
  std::memcpy(static_cast<std::byte*>(to) + first, ring, n - first);
}

}  // namespace

BoardMail::BoardMail(BoardMemory memory, const SegmentTable& segments, BoardMailConfig config)
    : memory_(std::move(memory)),
      segments_(segments),
      config_(std::move(config)),
      self_(tickets_, config_.labels[static_cast<size_t>(config_.rank)]),
      peers_(config_.labels.size()) {}

BoardMail::Ring BoardMail::ring_between(int from, int to) const {
  return {memory_.mail(from, to), memory_.ring(from, to), static_cast<uint64_t>(memory_.ring_bytes())};
}

int64_t BoardMail::send(const void* data, int64_t bytes, int peer, int tag) {
  if (peer == config_.rank) return self_.send(data, bytes, tag);
  Sending s{
      .id = tickets_.open(), .bytes = bytes, .tag = tag, .data = static_cast<const std::byte*>(data), .place = {}};
  const int64_t id = s.id;
  if (bytes >= kLendBytes) s.place = segments_.find(data, bytes, config_.rank);
  peers_[static_cast<size_t>(peer)].sending.push_back(std::move(s));
  push(peer);
  return id;
}

int64_t BoardMail::recv(void* data, int64_t bytes, int peer, int tag) {
  if (peer == config_.rank) return self_.recv(data, bytes, tag);
  const int64_t id = tickets_.open();
  peers_[static_cast<size_t>(peer)].receiving.push_back(
      {.id = id, .bytes = bytes, .tag = tag, .data = static_cast<std::byte*>(data)});
  pull(peer);
  return id;
}

bool BoardMail::done(int64_t id) {
  if (tickets_.done(id)) return true;
  self_.settle(id);
  return tickets_.done(id);
}

bool BoardMail::step() {
  if (tickets_.n_open() == 0) return false;
  bool moved = false;
  for (int p = 0; p < static_cast<int>(peers_.size()); ++p) {
    moved = push(p) || moved;
    moved = pull(p) || moved;
  }
  return moved;
}

bool BoardMail::push(int peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (p.sending.empty() && p.lent.empty()) return false;
  const Ring r = ring_between(config_.rank, peer);
  const uint64_t written_before = r.mail.written.load();
  uint64_t written = written_before;
  bool moved = false;
  while (!p.lent.empty() && r.mail.read.load() >= p.lent.front().end) {
    tickets_.close(p.lent.front().message.id);
    p.lent.pop_front();
    moved = true;
  }
  while (!p.sending.empty()) {
    Sending& s = p.sending.front();
    const uint64_t space = r.capacity - (written - r.mail.read.load());
    if (!s.announced) {
      if (space < sizeof(Header)) break;
      const Header header{.bytes = s.bytes,
                          .tag = s.tag,
                          .segment = s.place ? static_cast<int64_t>(s.place->id) : 0,
                          .offset = s.place ? s.place->offset : 0};
      copy_in(r.data, r.capacity, written, &header, sizeof header);
      written += sizeof header;
      s.announced = true;
    } else if (s.place) {
      p.lent.push_back({std::move(s), written});
      p.sending.pop_front();
      continue;
    } else if (s.n_written == s.bytes) {
      tickets_.close(s.id);
      p.sending.pop_front();
      continue;
    } else {
      // A quarter of the ring at a time keeps the receiver copying while we do.
      const uint64_t n = std::min({static_cast<uint64_t>(s.bytes - s.n_written), space, r.capacity / 4});
      if (n == 0) break;
      copy_in(r.data, r.capacity, written, s.data + s.n_written, n);
      s.n_written += static_cast<int64_t>(n);
      written += n;
    }
    r.mail.written.store(written);
    ring(memory_.bell(peer));
  }
  return moved || written != written_before;
}

bool BoardMail::pull(int peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (p.receiving.empty()) return false;
  const Ring r = ring_between(peer, config_.rank);
  const uint64_t read_before = r.mail.read.load();
  uint64_t read = read_before;
  while (!p.receiving.empty()) {
    Receiving& m = p.receiving.front();
    const uint64_t there = r.mail.written.load() - read;
    if (!m.announced) {
      if (there < sizeof(Header)) break;
      Header header{};
      copy_out(r.data, r.capacity, read, &header, sizeof header);
      check_message(config_.group, label(peer), {m.bytes, m.tag}, {header.bytes, header.tag});
      m.announced = true;
      if (header.segment != 0) {
        const auto segment = segments_.segment(static_cast<uint32_t>(header.segment));
        if (!segment)
          fail(ErrorKind::runtime, "recv (group {}): {} sent {} from a shared buffer that {} has released",
               config_.group, label(peer), format_bytes(static_cast<double>(m.bytes)), label(config_.rank));
        std::memcpy(m.data, segment->parts[static_cast<size_t>(peer)] + header.offset, static_cast<size_t>(m.bytes));
        m.n_read = m.bytes;
      }
      read += sizeof header;
    } else if (m.n_read == m.bytes) {
      tickets_.close(m.id);
      p.receiving.pop_front();
      continue;
    } else {
      const uint64_t n = std::min({static_cast<uint64_t>(m.bytes - m.n_read), there, r.capacity / 4});
      if (n == 0) break;
      copy_out(r.data, r.capacity, read, m.data + m.n_read, n);
      m.n_read += static_cast<int64_t>(n);
      read += n;
    }
    r.mail.read.store(read);
    ring(memory_.bell(peer));
  }
  return read != read_before;
}

std::string BoardMail::describe(const char* what, int64_t bytes, int tag) const {
  return fmt::format("{} of {} (tag {}, group {})", what, format_bytes(static_cast<double>(bytes)), tag, config_.group);
}

std::string BoardMail::complaint(int64_t id) const {
  for (int q = 0; q < static_cast<int>(peers_.size()); ++q) {
    const Peer& p = peers_[static_cast<size_t>(q)];
    for (const Receiving& m : p.receiving)
      if (m.id == id) return describe("recv", m.bytes, m.tag) + ": " + label(q) + " did not send";
    for (const Sending& s : p.sending)
      if (s.id == id) return describe("send", s.bytes, s.tag) + ": " + label(q) + " did not take it";
    for (const Lent& l : p.lent)
      if (l.message.id == id)
        return describe("send", l.message.bytes, l.message.tag) + ": " + label(q) + " did not take it";
  }
  return fmt::format("message {} (group {}) did not pass", id, config_.group);
}

}  // namespace rw
