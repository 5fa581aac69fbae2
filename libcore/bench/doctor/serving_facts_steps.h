// Reads a server's step log (steps.jsonl) line by line; serve_records.h says what of it is kept.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/doctor/serve_records.h"

namespace rw {

class StepReading {
 public:
  // Lines of another form, or of sequences that were never told of, are passed over.
  void line(const Json& line);
  StepFacts facts() const;

 private:
  struct Live {
    int64_t prompt_tokens = 0;
    uint64_t beginning = 0;  // hash of the prompt's first four pages; 0: it is shorter
    bool may_cache = false, begun = false, computes = false;
  };
  struct Step {
    int64_t decodes = 0, prefill_tokens = 0;
    double context = 0;  // tokens before the decodes, together
    double seconds = 0;
  };
  void arrival(const Json& line);
  void plan(const Json& plan);
  void begin(Live& live, int64_t cached);
  void forget(int64_t id);
  double slowdown() const;

  StepFacts facts_;
  std::unordered_map<int64_t, Live> live_;
  std::unordered_set<uint64_t> seen_;                // hashes of all beginnings in whole pages
  std::unordered_map<uint64_t, int64_t> computing_;  // sequences at it now, by their beginning
  double prompt_tokens_ = 0, shared_tokens_ = 0, begun_tokens_ = 0, cached_tokens_ = 0;
  Step pending_;
  std::vector<Step> steps_;  // with decodes
};

}  // namespace rw
