// A model that computes nothing but remembers what it was told to write where, so that every read of a page can be
// checked: a slot holds a digest of all tokens up to its position. The next token is a function of that digest alone.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "libcore/serve/step_plan.h"
#include "libcore/serve/step_runner.h"

namespace rw::test {

class NullModel final : public StepRunner {
 public:
  NullModel(int64_t n_pages, int64_t block_tokens)
      : block_(block_tokens), memory_(static_cast<size_t>(n_pages * block_tokens)) {}

  static uint64_t mix(uint64_t h, int32_t token) {
    h = (h ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ULL;
    return h ^ (h >> 29);
  }
  static int32_t token_of(uint64_t digest) { return static_cast<int32_t>(digest % 97); }
  // What `prompt` goes on with when nobody else is there.
  static std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int64_t n) {
    uint64_t h = 0;
    for (const int32_t t : prompt) h = mix(h, t);
    std::vector<int32_t> out;
    for (int64_t i = 0; i < n; ++i) {
      out.push_back(token_of(h));
      h = mix(h, out.back());
    }
    return out;
  }

  StepOutput run(const StepPlan& plan) override {
    for (const SequenceId id : plan.ends) n_faults += sequences_.erase(id) != 1;
    for (const SequenceStart& s : plan.starts) n_faults += !sequences_.try_emplace(s.id, Sequence{s.tokens, {}}).second;
    for (const PageGrant& g : plan.grants) {
      std::vector<int32_t>& pages = sequences_.at(g.id).pages;
      pages.insert(pages.end(), g.pages.begin(), g.pages.end());
    }
    for (const SequenceRows& r : plan.rows) {
      const Sequence& q = sequences_.at(r.id);
      uint64_t h = 0;
      for (int64_t p = 0; p < r.first + r.n; ++p) {
        h = mix(h, q.tokens.at(static_cast<size_t>(p)));
        if (p >= r.first) slot(q, p) = h;
      }
    }
    StepOutput result;
    for (const SequenceRows& r : plan.rows) {
      Sequence& q = sequences_.at(r.id);
      uint64_t h = 0;
      for (int64_t p = 0; p < r.first + r.n; ++p) {
        h = mix(h, q.tokens[static_cast<size_t>(p)]);
        n_faults += slot(q, p) != h;  // somebody else's, or never computed
      }
      result.sequences.push_back({.id = r.id, .sampled = r.sample});
      if (!r.sample) continue;
      n_faults += r.first + r.n != static_cast<int64_t>(q.tokens.size());
      result.sequences.back().token.id = token_of(h);
      q.tokens.push_back(token_of(h));
    }
    n_tokens += plan.n_tokens();
    return result;
  }
  void idle() override {}
  size_t n_sequences() const { return sequences_.size(); }

  int64_t n_faults = 0, n_tokens = 0;

 private:
  struct Sequence {
    std::vector<int32_t> tokens, pages;
  };
  uint64_t& slot(const Sequence& q, int64_t p) {
    return memory_.at(static_cast<size_t>(q.pages.at(static_cast<size_t>(p / block_)) * block_ + p % block_));
  }
  int64_t block_;
  std::vector<uint64_t> memory_;
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace rw::test
