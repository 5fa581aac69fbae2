// Logits that lie on a device, as the sampler sees them: a pass of the device's own tells what of a row decides, and
// only that is read; a row itself comes over where somebody asks for it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/exec.h"
#include "libcore/serve/sampler_scan.h"

namespace rw {

class DeviceLogits {
 public:
  struct Plan {
    const float* logits;    // (rows, columns), on the device
    int64_t rows, columns;  // columns: this rank's of the vocabulary
    Arena* host;            // of the copies of rows
  };
  // Takes its memory from the arena, which is the device's, as `exec` is.
  DeviceLogits(const Plan& plan, const Exec& exec, Arena& arena);

  // Asks, one to a slot, for the logits at an address inside of plan.logits.
  void clear() { asks_.clear(); }
  void ask(int64_t slot, const float* row, SampleAsk ask);
  // Answers them, in one pass and one read. Answers stay until their slot is asked again.
  void answer();
  const SampleFacts& facts(int64_t slot) const { return facts_[static_cast<size_t>(slot)]; }
  // The `n` best of a slot, falling, or as many as there are columns; ids count from first_id.
  void best(int64_t slot, int64_t n, int32_t first_id, std::vector<TokenLogit>& best) const;
  // The logit of a column that an answer told of.
  float logit(int64_t slot, int64_t column) const;

  // A copy of a row in the host's memory, which a slot keeps until it asks for another.
  float* fetch(int64_t slot, const float* row);

 private:
  const float* best_z(int64_t slot) const { return best_z_.data() + slot * kMostSampleBest; }
  const int32_t* best_column(int64_t slot) const { return best_column_.data() + slot * kMostSampleBest; }

  Plan plan_;
  Exec exec_;
  Mirrored<SampleAsk> wire_;     // (rows)
  Mirrored<std::byte> results_;  // of SampleScan, one behind the other
  float* rows_;                  // (rows, columns) of the host
  std::vector<int64_t> asks_;    // slots
  // By slot.
  std::vector<SampleFacts> facts_;
  std::vector<SampleAsk> asked_;
  std::vector<float> best_z_;
  std::vector<int32_t> best_column_;
};

}  // namespace rw
