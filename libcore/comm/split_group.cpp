#include "libcore/comm/split_group.h"

#include <algorithm>

namespace rw {

std::vector<int> split_group(const std::vector<SplitWish>& wishes, int rank) {
  std::vector<int> group;
  for (int r = 0; r < static_cast<int>(wishes.size()); ++r)
    if (wishes[static_cast<size_t>(r)].color == wishes[static_cast<size_t>(rank)].color) group.push_back(r);
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  return group;
}

}  // namespace rw
