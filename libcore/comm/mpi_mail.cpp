#include "libcore/comm/mpi_mail.h"

#include <algorithm>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/units.h"

namespace rw {

MpiMail::MpiMail(std::shared_ptr<MpiLink> link, std::vector<std::string> labels)
    : link_(std::move(link)),
      labels_(std::move(labels)),
      self_(tickets_, label(link_->rank())),
      awaited_(labels_.size()) {}

int64_t MpiMail::send(const void* data, int64_t bytes, int peer, int tag) {
  if (peer == link_->rank()) return self_.send(data, bytes, tag);
  Message m{.id = tickets_.open(),
            .bytes = bytes,
            .peer = peer,
            .tag = tag,
            .data = nullptr,
            .is_send = true,
            .transfers = {}};
  const int64_t id = m.id;
  link_->start_send(m.transfers, data, bytes, peer, tag);
  moving_.push_back(std::move(m));
  return id;
}

int64_t MpiMail::recv(void* data, int64_t bytes, int peer, int tag) {
  if (peer == link_->rank()) return self_.recv(data, bytes, tag);
  const int64_t id = tickets_.open();
  awaited_[static_cast<size_t>(peer)].push_back({.id = id,
                                                 .bytes = bytes,
                                                 .peer = peer,
                                                 .tag = tag,
                                                 .data = static_cast<std::byte*>(data),
                                                 .is_send = false,
                                                 .transfers = {}});
  return id;
}

bool MpiMail::done(int64_t id) {
  if (tickets_.done(id)) return true;
  self_.settle(id);
  return tickets_.done(id);
}

bool MpiMail::step() {
  if (tickets_.n_open() == 0) return false;
  bool moved = false;
  for (auto& queue : awaited_)
    while (!queue.empty()) {
      Message& m = queue.front();
      const auto found = link_->probe(m.peer);
      if (!found) break;
      check_message("mpi", label(m.peer), {std::min(m.bytes, MpiLink::kMaxMessage), m.tag}, {found->bytes, found->tag});
      link_->start_recv(m.transfers, m.data, m.bytes, m.peer, m.tag);
      moving_.push_back(std::move(m));
      queue.pop_front();
      moved = true;
    }
  const auto end = std::remove_if(moving_.begin(), moving_.end(), [&](Message& m) {
    if (!m.transfers.done()) return false;
    tickets_.close(m.id);
    return true;
  });
  moved = moved || end != moving_.end();
  moving_.erase(end, moving_.end());
  return moved;
}

std::string MpiMail::complaint(int64_t id) const {
  auto describe = [&](const Message& m) {
    return fmt::format("{} of {} (tag {}, group mpi): {} did not {}", m.is_send ? "send" : "recv",
                       format_bytes(static_cast<double>(m.bytes)), m.tag, label(m.peer),
                       m.is_send ? "take it" : "send");
  };
  for (const Message& m : moving_)
    if (m.id == id) return describe(m);
  for (const auto& queue : awaited_)
    for (const Message& m : queue)
      if (m.id == id) return describe(m);
  return fmt::format("message {} (group mpi) did not pass", id);
}

}  // namespace rw
