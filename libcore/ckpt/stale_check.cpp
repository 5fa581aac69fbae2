#include "libcore/ckpt/stale_check.h"

#include <algorithm>

namespace rw {
namespace {

bool is_weight(const std::string& name) { return name.find('/') == std::string::npos; }

std::vector<PieceRecord> sorted_pieces(std::vector<PieceRecord> pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const PieceRecord& a, const PieceRecord& b) { return a.box.offset < b.box.offset; });
  return pieces;
}

}  // namespace

void StaleCheck::remember(const Manifest& manifest) {
  before_.clear();
  for (const TensorRecord& t : manifest.tensors)
    if (is_weight(t.info.name) && !t.pieces.empty()) before_[t.info.name] = sorted_pieces(t.pieces);
}

Staleness StaleCheck::compare(const Manifest& manifest) const {
  Staleness found;
  size_t compared = 0;
  for (const TensorRecord& t : manifest.tensors) {
    const auto then = before_.find(t.info.name);
    if (then == before_.end() || then->second.size() != t.pieces.size()) continue;
    const std::vector<PieceRecord> now = sorted_pieces(t.pieces);
    bool same_boxes = true, same_bytes = true;
    for (size_t i = 0; i < now.size(); ++i) {
      same_boxes = same_boxes && now[i].box == then->second[i].box;
      same_bytes = same_bytes && now[i].digest == then->second[i].digest;
    }
    if (!same_boxes) continue;
    ++compared;
    if (same_bytes) found.unchanged.push_back(t.info.name);
  }
  found.all_unchanged = compared > 0 && found.unchanged.size() == compared;
  return found;
}

}  // namespace rw
