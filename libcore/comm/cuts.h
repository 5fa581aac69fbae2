// What communicators do with cuts (comm.h).
#pragma once
#include <cstddef>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/comm/reduce.h"

namespace rw {

// They are ascending and one more than ranks.
void check_cuts(Cuts cuts, int ranks);

// (ranks) part r is [cuts[r], cuts[r + 1]) - cuts[0]: from the first element that is anybody's.
inline std::vector<Slice> parts_of(Cuts cuts) {
  std::vector<Slice> parts;
  for (size_t r = 0; r + 1 < cuts.size(); ++r) parts.push_back({cuts[r] - cuts[0], cuts[r + 1] - cuts[r]});
  return parts;
}
inline int64_t dealt_out(Cuts cuts) { return cuts.back() - cuts.front(); }
inline std::byte* first_dealt(void* data, Cuts cuts, DType t) {
  return cuts[0] == 0 ? static_cast<std::byte*>(data) : static_cast<std::byte*>(data) + cuts[0] * dtype_bytes(t);
}

}  // namespace rw
