// Messages of a rank to itself: matched in order, copied once when both ends are known.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "libcore/comm/tickets.h"

namespace rw {

class SelfMail {
 public:
  // `label` is this rank's, for errors. Numbers come from `tickets`, which outlives this.
  SelfMail(Tickets& tickets, std::string label) : tickets_(tickets), label_(std::move(label)) {}

  int64_t send(const void* data, int64_t bytes, int tag);
  int64_t recv(void* data, int64_t bytes, int tag);
  // Before the caller waits for a message of its own: a send whose receive is still to come is kept as a copy and done.
  // Other numbers: nothing.
  void settle(int64_t id);
  // A receive that nothing was sent for would wait for ever and is a mistake of the caller.
  void check_can_end(int64_t id) const;

 private:
  struct Sent {
    int64_t id, bytes;
    int tag;
    const std::byte* data;
    std::vector<std::byte> kept;  // data points here once the sender has its memory back
  };
  struct Awaited {
    int64_t id, bytes;
    int tag;
    std::byte* data;
  };
  void deliver();

  Tickets& tickets_;
  std::string label_;
  std::deque<Sent> sent_;        // not both of
  std::deque<Awaited> awaited_;  // these hold something
};

// The next message from `from` is not the one that the receiver expects.
struct MessageShape {
  int64_t bytes;
  int64_t tag;
};
void check_message(const std::string& group, const std::string& from, MessageShape expected, MessageShape found);

}  // namespace rw
