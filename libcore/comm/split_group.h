// Who belongs to this rank's group after a split.
#pragma once
#include <cstdint>
#include <vector>

namespace rw {

struct SplitWish {
  int64_t color, key;
};

// The ranks whose color is that of `rank`, ordered by (key, rank).
std::vector<int> split_group(const std::vector<SplitWish>& wishes, int rank);

}  // namespace rw
