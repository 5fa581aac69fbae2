#include "libcore/ckpt/buddy_copy.h"

#include <future>
#include <map>
#include <optional>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/ckpt/file_transfer.h"

namespace rw {

namespace fs = std::filesystem;

std::vector<int> buddies(const std::vector<int>& nodes) {
  std::map<int, std::vector<int>> members;
  for (size_t r = 0; r < nodes.size(); ++r) members[nodes[r]].push_back(static_cast<int>(r));
  std::vector<int> buddy(nodes.size(), -1);
  if (members.size() < 2) return buddy;
  for (auto node = members.begin(); node != members.end(); ++node) {
    const auto next = std::next(node) == members.end() ? members.begin() : std::next(node);
    for (size_t i = 0; i < node->second.size(); ++i)
      buddy[static_cast<size_t>(node->second[i])] = next->second[i % next->second.size()];
  }
  return buddy;
}

struct BuddyCopy::Impl {
  std::optional<OutgoingFile> out;
  std::vector<std::unique_ptr<IncomingFile>> in;
  Manifest received;  // of the incoming files alone: what they must hold
  fs::path dir;
  bool is_done = false;
  std::future<std::vector<std::string>> check;

  Comm* comm = nullptr;
  size_t pending_before = 0;
  double moved_s = 0;

  void fail_if_stuck() {
    if (check.valid() || is_done) return;
    size_t pending = out ? out->pending() : 0;
    for (const auto& file : in) pending += file->pending();
    const double now = now_s();
    if (pending != pending_before || moved_s == 0) pending_before = pending, moved_s = now;
    if (now - moved_s > comm->timeout_s())
      fail(ErrorKind::runtime, "no message of the copies for the neighbour node has moved for {:.0f} s", now - moved_s);
  }

  void start_check() {
    check = std::async(std::launch::async, [this] {
      std::vector<std::string> faults = file_faults(expected_files(received, dir), 1, nullptr);
      if (faults.empty())
        for (const FileRecord& file : received.files) fsync_path(dir / file.name);
      return faults;
    });
  }
};

BuddyCopy::BuddyCopy(const fs::path& dir, const std::vector<ShardRecord>& shards, const std::vector<int>& buddies,
                     Comm& comm)
    : impl_(std::make_unique<Impl>()) {
  impl_->dir = dir;
  impl_->comm = &comm;
  for (size_t r = 0; r < buddies.size(); ++r) {
    if (buddies[r] != comm.rank()) continue;
    const auto index = static_cast<int64_t>(impl_->received.files.size());
    impl_->received.files.push_back(shards[r].file);
    for (TensorRecord tensor : shards[r].tensors) {
      for (PieceRecord& piece : tensor.pieces) piece.file = index;
      impl_->received.tensors.push_back(std::move(tensor));
    }
    impl_->in.push_back(
        std::make_unique<IncomingFile>(dir / shards[r].file.name, shards[r].file.bytes, comm, static_cast<int>(r)));
  }
  const auto me = static_cast<size_t>(comm.rank());
  if (buddies[me] >= 0) impl_->out.emplace(dir / shards[me].file.name, comm, buddies[me]);
}

BuddyCopy::~BuddyCopy() = default;

// Receives first: of two ranks that swap files neither then waits for the other.
void BuddyCopy::start() {
  for (const auto& in : impl_->in) in->start();
  if (impl_->out) impl_->out->start();
}

void BuddyCopy::fail_if_stuck() { impl_->fail_if_stuck(); }

bool BuddyCopy::done() {
  if (impl_->is_done) return true;
  if (!impl_->check.valid()) {
    bool moved = !impl_->out || impl_->out->done();
    for (const auto& in : impl_->in) moved = in->done() && moved;
    if (!moved) return false;
    impl_->in.clear();
    impl_->out.reset();
    impl_->start_check();
  }
  if (impl_->check.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  const std::vector<std::string> faults = impl_->check.get();
  impl_->is_done = true;
  if (!faults.empty()) fail(ErrorKind::runtime, "the copy for a neighbour node is damaged: {}", faults.front());
  return true;
}

}  // namespace rw
