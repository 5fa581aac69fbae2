// Is what is about to be committed really new? A save that writes the same weights again after steps that must have
// changed them is the worst kind of failure: it looks like success.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "libcore/ckpt/manifest.h"

namespace rw {

struct Staleness {
  bool all_unchanged = false;          // every tensor that could be compared is as before
  std::vector<std::string> unchanged;  // those that are, by name
};

class StaleCheck {
 public:
  // What the next manifest is compared with. Optimizer state ("adam.m/...") is left out.
  void remember(const Manifest& manifest);
  // Only tensors cut into the same boxes as before can be compared; none: nothing is unchanged.
  Staleness compare(const Manifest& manifest) const;

 private:
  std::map<std::string, std::vector<PieceRecord>> before_;  // pieces sorted by offset
};

}  // namespace rw
