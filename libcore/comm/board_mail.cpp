// Messages: a byte ring from each rank to each other one. A message is a header and its bytes, written as far as the
// ring has space while the receiver reads, so that any length passes.
#include <algorithm>
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/board.h"

namespace rw {
namespace {

struct Header {
  int64_t bytes;
  int64_t tag;
};

}  // namespace

struct Board::Message {
  int peer, tag;
  int64_t bytes;
  double timeout_s;
};

void Board::write_ring(const std::byte* data, int64_t bytes, const Message& m) {
  Mail& mail = memory_.mail(rank(), m.peer);
  std::byte* ring_data = memory_.ring(rank(), m.peer);
  const auto capacity = static_cast<uint64_t>(memory_.ring_bytes());
  uint64_t written = mail.written.load();
  auto space = [&] { return capacity - (written - mail.read.load()); };
  while (bytes > 0) {
    if (space() == 0)
      wait_for([&] { return space() > 0; }, m.timeout_s,
               [&] {
                 return fmt::format("send of {} (tag {}, group {}): {} did not take it",
                                    format_bytes(static_cast<double>(m.bytes)), m.tag, config_.group, label(m.peer));
               });
    // A quarter of the ring at a time keeps the receiver copying while we do.
    const uint64_t at = written % capacity;
    const uint64_t n = std::min({static_cast<uint64_t>(bytes), space(), capacity - at, capacity / 4});
    std::memcpy(ring_data + at, data, n);
    written += n;
    mail.written.store(written);
    ring(memory_.bell(m.peer));
    data += n;
    bytes -= static_cast<int64_t>(n);
  }
}

void Board::read_ring(std::byte* data, int64_t bytes, const Message& m) {
  Mail& mail = memory_.mail(m.peer, rank());
  const std::byte* ring_data = memory_.ring(m.peer, rank());
  const auto capacity = static_cast<uint64_t>(memory_.ring_bytes());
  uint64_t read = mail.read.load();
  auto there = [&] { return mail.written.load() - read; };
  while (bytes > 0) {
    if (there() == 0)
      wait_for([&] { return there() > 0; }, m.timeout_s,
               [&] {
                 return fmt::format("recv of {} (tag {}, group {}): {} did not send",
                                    format_bytes(static_cast<double>(m.bytes)), m.tag, config_.group, label(m.peer));
               });
    const uint64_t at = read % capacity;
    const uint64_t n = std::min({static_cast<uint64_t>(bytes), there(), capacity - at, capacity / 4});
    std::memcpy(data, ring_data + at, n);
    read += n;
    mail.read.store(read);
    ring(memory_.bell(m.peer));
    data += n;
    bytes -= static_cast<int64_t>(n);
  }
}

void Board::send(const void* data, int64_t bytes, int peer, int tag, double timeout_s) {
  CHECK(peer >= 0 && peer < size() && peer != rank(), "send to rank %d by rank %d of %d", peer, rank(), size());
  const Message m{peer, tag, bytes, timeout_s};
  const Header header{bytes, tag};
  write_ring(reinterpret_cast<const std::byte*>(&header), sizeof header, m);
  write_ring(static_cast<const std::byte*>(data), bytes, m);
}

void Board::recv(void* data, int64_t bytes, int peer, int tag, double timeout_s) {
  CHECK(peer >= 0 && peer < size() && peer != rank(), "recv from rank %d by rank %d of %d", peer, rank(), size());
  const Message m{peer, tag, bytes, timeout_s};
  Header header{};
  read_ring(reinterpret_cast<std::byte*>(&header), sizeof header, m);
  if (header.bytes != bytes || header.tag != tag)
    fail(ErrorKind::runtime, "recv (group {}): expected {} bytes with tag {} from {}, found {} bytes with tag {}",
         config_.group, bytes, tag, label(peer), header.bytes, header.tag);
  read_ring(static_cast<std::byte*>(data), bytes, m);
}

}  // namespace rw
