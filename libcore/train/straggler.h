// Ranks that are slower than those who do the same work.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace rw {

struct Straggler {
  int64_t rank;
  double seconds, peers_s;  // of the last step: this rank's, and its peers' median
};

// Pure: compute seconds in, stragglers out. Seconds must be a rank's own work, without waiting for others: who waits is
// slow as well, and not at fault.
class StragglerWatch {
 public:
  static constexpr double kSlower = 1.2;  // times the median of the peers
  static constexpr int64_t kSteps = 20;   // in a row

  // group(rank): which ranks do the same work, such as the pipeline stage. A rank alone in its group is never slow.
  explicit StragglerWatch(const std::vector<int64_t>& group_of_rank);

  // (ranks) of one step. Ranks that have now been slow for kSteps steps in a row; each once, until a step within the
  // limit clears it. Times that are not finite or not above 0 count as within the limit.
  std::vector<Straggler> observe(std::span<const double> seconds);
  // The rank that took most against its peers; rank -1 where no rank has peers.
  Straggler slowest(std::span<const double> seconds) const;

 private:
  // Calls visit(rank, seconds, peers_s); peers_s is 0 where there is nothing to compare.
  template <typename Visit>
  void compare(std::span<const double> seconds, Visit visit) const;

  std::vector<std::vector<int64_t>> groups_;  // ranks
  std::vector<int64_t> slow_steps_;           // (ranks) in a row until now
};

}  // namespace rw
