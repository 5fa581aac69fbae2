// The replies under way: for time-outs and keep-alive, for what is left at the end, and for ids that may be there once.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace rw {

class GenerationReply;

class LiveRequests {
 public:
  // A name that a request gave itself, and that no other may have meanwhile: let go when the last copy of what this
  // returns goes. Null: it is taken. Outlived by this object.
  std::shared_ptr<const void> hold(const std::string& name);
  // Ticked until its reply is over.
  void add(const std::shared_ptr<GenerationReply>& reply);
  // Drops what is over, ticks the others.
  void tick(double now);
  int64_t count() const;  // not yet over
  // Age of the oldest request that has not had its first token; 0: there is none.
  double oldest_wait_s(double now) const;

 private:
  using Replies = std::vector<std::weak_ptr<GenerationReply>>;  // the engine keeps them alive
  Replies replies() const;

  mutable std::mutex mutex_;
  Replies replies_;
  std::mutex names_mutex_;  // taken by replies that hold their own lock; nothing is locked under it
  std::unordered_set<std::string> names_;
};

}  // namespace rw
