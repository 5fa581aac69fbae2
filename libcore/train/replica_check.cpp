#include "libcore/train/replica_check.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/core.h>
#include "libcore/base/hash.h"

namespace rw {
namespace {

// What this rank holds, sharded weights as they are cut: a line a box, "key digest".
std::string describe(TrainStep& step) {
  std::string text;
  std::vector<float> room;
  const auto add = [&](const LocalParam& p, RowSpan rows, const float* data, int64_t n) {
    text += p.name + " " + box_text(rows_box(p, rows)) + "\t" +
            hex64(hash64(step.host().view(data, n, room), static_cast<size_t>(n) * sizeof(float))) + "\n";
  };
  WeightStore& weights = step.weights();
  if (weights.sharded()) {
    for (const ShardPiece& p : step.shards().own_pieces())
      add(step.layout().params()[p.param], p.rows, weights.at(p), p.n);
  } else {
    for (const LocalParam& p : step.layout().params())
      add(p, {.first = 0, .rows = p.box.extent[0]}, weights.masters() + p.slice.offset, p.slice.n);
  }
  return text;
}

}  // namespace

std::string replica_difference(TrainStep& step) {
  const std::vector<std::string> texts = step.mesh().world->gather_text(describe(step));
  std::map<std::string, std::map<std::string, std::vector<size_t>>> ranks_of;  // box -> digest -> ranks
  for (size_t r = 0; r < texts.size(); ++r)
    for (size_t at = 0; at < texts[r].size();) {
      const size_t tab = texts[r].find('\t', at), end = texts[r].find('\n', tab);
      ranks_of[texts[r].substr(at, tab - at)][texts[r].substr(tab + 1, end - tab - 1)].push_back(r);
      at = end + 1;
    }
  for (const auto& [box, digests] : ranks_of) {
    if (digests.size() == 1) continue;
    size_t most = 0;
    for (const auto& [digest, ranks] : digests) most = std::max(most, ranks.size());
    std::string odd;
    bool kept = false;
    for (const auto& [digest, ranks] : digests) {
      if (ranks.size() == most && !kept) {
        kept = true;
        continue;
      }
      for (const size_t r : ranks) odd += (odd.empty() ? "" : ", ") + std::to_string(r);
    }
    return fmt::format("replicas differ: {} is not the same on rank{} {} as on the others", box,
                       odd.find(',') == std::string::npos ? "" : "s", odd);
  }
  return "";
}

}  // namespace rw
