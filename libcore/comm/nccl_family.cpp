#include "libcore/comm/nccl_family.h"

#include <exception>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/comm/nccl_channel.h"

namespace rw {

NcclFamily::NcclFamily() : lookout_([this] { look(); }) {}
NcclFamily::~NcclFamily() { settle(); }  // while all that the aborted communicators are of is there

void NcclFamily::enter(NcclChannel* channel) {
  std::lock_guard lock(mutex_);
  channels_.push_back(channel);
}
void NcclFamily::leave(NcclChannel* channel) {
  std::lock_guard lock(mutex_);
  std::erase(channels_, channel);
  if (failed_at_ == channel) failed_at_ = nullptr;
}
void NcclFamily::enter(Comm* host) {
  std::lock_guard lock(mutex_);
  hosts_.push_back(host);
}
void NcclFamily::leave(Comm* host) {
  std::lock_guard lock(mutex_);
  std::erase(hosts_, host);
}

void NcclFamily::look() noexcept {
  try {
    look_around();
  } catch (const std::exception& e) {  // nobody above could tell it
    fail(std::string("looking after communicators: ") + e.what(), nullptr);
  }
}

void NcclFamily::look_around() {
  std::lock_guard lock(mutex_);
  if (has_failed_) return;
  for (NcclChannel* channel : channels_) {
    const std::optional<NcclChannel::Trouble> trouble = channel->trouble();
    if (trouble) return fail(trouble->what, trouble->is_overdue ? channel : nullptr);
  }
  for (NcclChannel* channel : channels_) {
    const std::string waiting = channel->oldest();
    if (waiting.empty()) continue;
    try {
      for (Comm* host : hosts_) host->look_for_dead_peers();
    } catch (const std::exception& e) {
      fail(waiting + ": " + e.what(), nullptr);
    }
    return;
  }
}

void NcclFamily::fail(const std::string& what, NcclChannel* at) noexcept {
  std::lock_guard lock(mutex_);
  if (has_failed_) return;
  failure_ = what;
  failed_at_ = at;
  has_failed_ = true;
  std::vector<void*> comms;
  for (NcclChannel* channel : channels_)
    if (void* comm = channel->give_up()) comms.push_back(comm);
  aborter_.start(std::move(comms));
}

void NcclFamily::check() {
  if (!has_failed_) return;
  std::lock_guard lock(mutex_);
  if (NcclChannel* at = std::exchange(failed_at_, nullptr)) failure_ = at->ask_peers(failure_);
  throw Error(ErrorKind::runtime, failure_);
}

}  // namespace rw
