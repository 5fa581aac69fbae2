// `dbench validate`: the small check before a big deployment. Trains and serves a small model with this installation's
// own programs, step by step, each beside its prediction and its saved baseline.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/bench/record/bench_record.h"

namespace rw {

struct ValidateSpec {
  std::string model = "tiny-llama", precision = "f32", cluster;
  int64_t ranks = 2, scale_ranks = 0, threads = 1, seq_len = 64, micro_batch = 4;
  int64_t warmup = 2, measure = 5, repeats = 3;
  int64_t requests = 16, concurrency = 4, input_len = 32, output_len = 16;
  std::vector<std::string> stage = {"train", "serve", "serve-tp", "scale-up"};
  std::string baseline, launcher = "mpirun --oversubscribe -n {n}";
  std::string threshold = "10%";
  double most_over_prediction = 2, timeout = 300;
  bool save = false;
};
FieldList fields(ValidateSpec& spec);

enum class StageVerdict : uint8_t { pass, warn, fail };
const char* stage_verdict_name(StageVerdict verdict);
struct StageResult {
  std::string name;
  StageVerdict verdict = StageVerdict::pass;
  double seconds = 0;
  std::vector<std::string> notes;    // why it is not a pass, what was compared
  std::vector<BenchRecord> records;  // named "validate" and by the stage, as baselines know them
};

// What to do about what a program said before it failed: a launcher that has too few slots or refuses root; "" for
// anything else.
std::string launch_advice(const std::string& said);
// The verdict from a stage's records: a regression against the baseline fails; slower than predicted by more than
// most_over_prediction, or no baseline though one was named, warns. Pure but for the baselines' files.
void judge_stage(StageResult& stage, const ValidateSpec& spec);

struct ValidateJob {
  const ValidateSpec& spec;
  std::filesystem::path programs;  // the folder of dbench and dserve
  std::function<void(const std::string& stage, const std::string& what)> progress;
};
// All stages in order; "serve" needs "train", whose weights it serves. A stage that fails does not stop the others.
// Error{usage} for what is asked and cannot be.
std::vector<StageResult> run_validate(const ValidateJob& job);
// With --save, and when no stage failed: the records become the baseline. Apart, so that what was measured is told even
// where it cannot be kept.
void save_validation(const ValidateSpec& spec, const std::vector<StageResult>& stages);
StageVerdict worst_verdict(const std::vector<StageResult>& stages);
std::string validate_table(const std::vector<StageResult>& stages);

}  // namespace rw
