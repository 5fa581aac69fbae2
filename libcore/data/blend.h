// How several sources share a stream of samples: in every window of kBlendWindow samples each source gets its exact
// share (rounded to whole samples), and at no point inside a window is it a whole sample ahead of or behind its share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rw {

inline constexpr int64_t kBlendWindow = 65536;

class Blend {
 public:
  // Relative weights, positive and finite. Error{usage} when one is too small to get a sample in a window.
  explicit Blend(const std::vector<double>& weights);
  struct Turn {
    int64_t source, index;
  };                              // index: how many earlier samples came from that source
  Turn at(int64_t sample) const;  // sample >= 0, unbounded; a pure function
  int64_t per_window(int64_t source) const { return counts_[static_cast<size_t>(source)]; }

 private:
  std::vector<int64_t> counts_;  // (sources), sum kBlendWindow
  struct Slot {
    int32_t source, index;
  };
  std::vector<Slot> slots_;  // (kBlendWindow), or empty with one source
};

}  // namespace rw
