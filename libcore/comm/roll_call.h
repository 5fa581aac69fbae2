// Who else came to where this rank gave up. Asked once, when nothing else can be waited for any more.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libcore/comm/comm.h"

namespace rw {

// Where a rank stands: which of the communicators it numbers alike with its peers, and how many operations it started.
struct Attendance {
  int64_t channel = 0, started = 0;
};

class RollCall {
 public:
  // Of a communicator that serves nothing else.
  explicit RollCall(std::unique_ptr<Comm> comm) : comm_(std::move(comm)) {}

  // Where the other members say they stand, within `patience_s`; nothing of those that did not answer. All members
  // that give up there answer each other.
  std::vector<std::optional<Attendance>> ask(const std::vector<int>& members, Attendance mine, double patience_s);
  // "rank 1 on host h2 did not arrive"; what can be said when all did.
  std::string missing(const std::vector<int>& members, Attendance mine, double patience_s);

 private:
  std::unique_ptr<Comm> comm_;
  Attendance mine_;
  std::vector<Attendance> answers_;  // messages may arrive in them for as long as comm_ lives
};

}  // namespace rw
