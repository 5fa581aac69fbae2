#include "libcore/bench/doctor/log_triage_scan.h"

#include <deque>

#include "libcore/base/check.h"

namespace rw {

LiteralSet::LiteralSet(const std::vector<std::string_view>& literals) : next_(1), first_end_(1, -1) {
  const auto add_end = [&](uint32_t state, int32_t literal) {
    ends_.push_back({literal, first_end_[state]});
    first_end_[state] = static_cast<int32_t>(ends_.size()) - 1;
  };
  for (size_t i = 0; i < literals.size(); ++i) {
    CHECK(!literals[i].empty(), "literal %zu is empty", i);
    uint32_t state = 0;
    for (const char c : literals[i]) {
      uint32_t& to = next_[state][static_cast<unsigned char>(c)];
      if (to != 0) {
        state = to;
        continue;
      }
      state = to = static_cast<uint32_t>(next_.size());
      next_.emplace_back();  // `to` is gone with it
      first_end_.push_back(-1);
    }
    add_end(state, static_cast<int32_t>(i));
  }
  // Breadth first: a state falls back to the longest proper suffix that is a state, which is nearer to the root and so
  // is complete already. A missing edge becomes the fallback's.
  std::vector<uint32_t> fallback(next_.size(), 0);
  std::deque<uint32_t> queue;
  for (const uint32_t child : next_[0])
    if (child != 0) queue.push_back(child);
  while (!queue.empty()) {
    const uint32_t state = queue.front();
    queue.pop_front();
    for (int32_t end = first_end_[fallback[state]]; end >= 0;) {
      const End inherited = ends_[static_cast<size_t>(end)];
      add_end(state, inherited.literal);
      end = inherited.next;
    }
    for (size_t c = 0; c < 256; ++c) {
      uint32_t& to = next_[state][c];
      const uint32_t else_to = next_[fallback[state]][c];
      if (to == 0) {
        to = else_to;
        continue;
      }
      fallback[to] = else_to;
      queue.push_back(to);
    }
  }
}

}  // namespace rw
