#include "libcore/comm/self_mail.h"

#include <algorithm>
#include <cstring>

#include "libcore/base/error.h"

namespace rw {

int64_t SelfMail::send(const void* data, int64_t bytes, int tag) {
  const int64_t id = tickets_.open();
  sent_.push_back({id, bytes, tag, static_cast<const std::byte*>(data), {}});
  deliver();
  return id;
}

int64_t SelfMail::recv(void* data, int64_t bytes, int tag) {
  const int64_t id = tickets_.open();
  awaited_.push_back({id, bytes, tag, static_cast<std::byte*>(data)});
  deliver();
  return id;
}

void SelfMail::deliver() {
  while (!sent_.empty() && !awaited_.empty()) {
    const Sent& s = sent_.front();
    const Awaited& a = awaited_.front();
    check_message("self", label_, {a.bytes, a.tag}, {s.bytes, s.tag});
    if (a.bytes > 0) std::memmove(a.data, s.data, static_cast<size_t>(a.bytes));
    if (!tickets_.done(s.id)) tickets_.close(s.id);
    tickets_.close(a.id);
    sent_.pop_front();
    awaited_.pop_front();
  }
}

void SelfMail::check_can_end(int64_t id) const {
  for (const Awaited& a : awaited_)
    CHECK(a.id != id, "waiting for a message of %lld bytes with tag %d from this rank itself, which has not sent it",
          static_cast<long long>(a.bytes), a.tag);
}

void SelfMail::settle(int64_t id) {
  for (Sent& s : sent_) {
    if (s.id != id || tickets_.done(id)) continue;
    s.kept.assign(s.data, s.data + s.bytes);
    s.data = s.kept.data();
    tickets_.close(id);
  }
}

void check_message(const std::string& group, const std::string& from, MessageShape expected, MessageShape found) {
  if (found.bytes != expected.bytes || found.tag != expected.tag)
    fail(ErrorKind::runtime, "recv (group {}): expected {} bytes with tag {} from {}, found {} bytes with tag {}",
         group, expected.bytes, expected.tag, from, found.bytes, found.tag);
}

}  // namespace rw
