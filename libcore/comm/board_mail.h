// Messages between the ranks of a board, any number under way. A message is a header and its bytes in the byte ring
// from the sender to the receiver, written as far as the ring has space while the receiver reads, so that any length
// passes. A long message whose memory the ranks share is read where it lies: the ring carries its header alone, and the
// memory is the sender's again when the receiver has read past that.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "libcore/comm/board_memory.h"
#include "libcore/comm/segment.h"
#include "libcore/comm/self_mail.h"
#include "libcore/comm/tickets.h"

namespace rw {

struct BoardMailConfig {
  int rank = 0;
  std::vector<std::string> labels;  // (ranks)
  std::string group;
};

class BoardMail {
 public:
  // `segments` outlives this.
  BoardMail(BoardMemory memory, const SegmentTable& segments, BoardMailConfig config);

  // The memory must stay as it is until done().
  int64_t send(const void* data, int64_t bytes, int peer, int tag);
  int64_t recv(void* data, int64_t bytes, int peer, int tag);
  bool done(int64_t id);
  void check_can_end(int64_t id) const { self_.check_can_end(id); }
  bool step();                              // moves what can be moved; true when something did
  std::string complaint(int64_t id) const;  // "recv of 4 B (tag 9, group thread): rank 1 did not send"

 private:
  struct Header {
    int64_t bytes, tag;
    int64_t segment, offset;  // segment 0: the bytes follow in the ring
  };
  struct Sending {
    int64_t id, bytes;
    int tag;
    const std::byte* data;
    std::optional<Place> place;  // of data, when it is read there
    bool announced = false;
    int64_t n_written = 0;
  };
  struct Lent {  // announced, read where it lies
    Sending message;
    uint64_t end;  // of its header in the ring
  };
  struct Receiving {
    int64_t id, bytes;
    int tag;
    std::byte* data;
    bool announced = false;  // the header was read
    int64_t n_read = 0;
  };
  struct Peer {
    std::deque<Sending> sending;
    std::deque<Lent> lent;
    std::deque<Receiving> receiving;
  };
  // One direction of a pair, as one end sees it.
  struct Ring {
    Mail& mail;
    std::byte* data;
    uint64_t capacity;
  };
  Ring ring_between(int from, int to) const;
  bool push(int peer);
  bool pull(int peer);
  std::string describe(const char* what, int64_t bytes, int tag) const;
  const std::string& label(int rank) const { return config_.labels[static_cast<size_t>(rank)]; }

  BoardMemory memory_;
  const SegmentTable& segments_;
  BoardMailConfig config_;
  Tickets tickets_;
  SelfMail self_;
  std::vector<Peer> peers_;
};

}  // namespace rw
