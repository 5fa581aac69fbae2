// Messages between the ranks of an MPI link, any number under way. A receive looks at the next message before it takes
// it, so that one of another size or tag is an Error that says so.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/mpi_link.h"
#include "libcore/comm/self_mail.h"
#include "libcore/comm/tickets.h"

namespace rw {

class MpiMail {
 public:
  // `link` carries nothing else. labels: (ranks).
  MpiMail(std::shared_ptr<MpiLink> link, std::vector<std::string> labels);

  // The memory must stay as it is until done().
  int64_t send(const void* data, int64_t bytes, int peer, int tag);
  int64_t recv(void* data, int64_t bytes, int peer, int tag);
  bool done(int64_t id);
  void check_can_end(int64_t id) const { self_.check_can_end(id); }
  bool step();  // moves what can be moved; true when something did
  std::string complaint(int64_t id) const;

 private:
  struct Message {
    int64_t id, bytes;
    int peer, tag;
    std::byte* data;  // of a receive
    bool is_send;
    Transfers transfers;
  };
  const std::string& label(int rank) const { return labels_[static_cast<size_t>(rank)]; }

  std::shared_ptr<MpiLink> link_;
  std::vector<std::string> labels_;
  Tickets tickets_;
  SelfMail self_;
  std::vector<Message> moving_;               // MPI has them
  std::vector<std::deque<Message>> awaited_;  // (ranks) receives whose message has not been seen, in order
};

}  // namespace rw
