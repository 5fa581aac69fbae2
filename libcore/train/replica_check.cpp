#include "libcore/train/replica_check.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/core.h>
#include "libcore/base/hash.h"

namespace rw {
namespace {

// Digests of what this rank holds of every parameter, in table order. Slices of ZeRO-3 are digested as they lie.
std::vector<uint64_t> digests(TrainStep& step) {
  std::vector<uint64_t> result;
  if (step.weights().sharded()) {
    for (const ShardPiece& p : step.shards().own_pieces())
      result.push_back(hash64(step.weights().at(p), static_cast<size_t>(p.n) * sizeof(float)));
  } else {
    for (const LocalParam& p : step.layout().params())
      result.push_back(
          hash64(step.weights().masters() + p.slice.offset, static_cast<size_t>(p.slice.n) * sizeof(float)));
  }
  return result;
}

std::string box_key(const LocalParam& p, RowSpan rows) { return p.name + " " + box_text(rows_box(p, rows)); }

// One line a box: "key digest".
std::string describe(TrainStep& step) {
  std::string text;
  const std::vector<uint64_t> all = digests(step);
  size_t i = 0;
  const auto add = [&](const LocalParam& p, RowSpan rows) { text += box_key(p, rows) + "\t" + hex64(all[i++]) + "\n"; };
  if (step.weights().sharded()) {
    for (const ShardPiece& p : step.shards().own_pieces()) add(step.layout().params()[p.param], p.rows);
  } else {
    for (const LocalParam& p : step.layout().params()) add(p, {.first = 0, .rows = p.box.extent[0]});
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
