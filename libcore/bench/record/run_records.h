// A run directory of dtrain, read once for all who look at it: doctor, report, cost, `dbench train`. Lines that are cut
// off or of another kind are passed over and counted; a missing number is NaN, never 0.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "libcore/telemetry/categories.h"

namespace rw {

struct StepRecord {
  int64_t step = 0;
  double loss = 0, lr = 0, grad_norm = 0, step_s = 0, tokens_per_s = 0, tokens = 0, samples = 0;
  double model_flops = 0, mfu_full = 0, mfu_causal = 0, mfu_hardware = 0, loss_scale = 0;  // loss_scale: NaN without
  std::array<double, static_cast<size_t>(TimeCategory::n_categories)> seconds{};           // of rank 0
  double exposed_s = 0, communication_s = 0;
  std::map<std::string, double> calls, bytes;  // "replica.all_reduce"; this step's
  std::map<std::string, double> memory_bytes;  // by owner, with "planned", "outside_arena", ...
  std::string batch_fingerprint;
  bool skipped = false;
  // The rank that computed longest against those that do the same work, and their median; NaN where none has peers.
  double slowest_rank = 0, slowest_s = 0, slowest_peers_s = 0;
  double second(TimeCategory c) const { return seconds[static_cast<size_t>(c)]; }
};
struct EventRecord {
  std::string event, time;  // time: UTC
  int64_t step = -1;
  std::string line;  // JSON text, whole: an object
};
struct ResourceRecord {
  std::string time, host;
  double clock_s = 0;
  int64_t step = -1;
  std::string line;  // JSON text, whole: an object
};

struct RunRecords {
  std::filesystem::path dir;
  std::string identity;             // run.json, JSON text; "" when there is none
  std::vector<StepRecord> steps;    // metrics.jsonl, by step; a step that was computed twice (resume) once, the last
  std::vector<EventRecord> events;  // events.jsonl, in order
  std::vector<ResourceRecord> resources;        // of all hosts' files, by clock
  std::vector<std::filesystem::path> watchdog;  // rank-N.jsonl files that a failure left
  std::string log;                 // log.txt or *.log in the folder, when somebody kept the output; at most 1 MiB
  int64_t torn_lines = 0;          // not JSON, or not an object
  std::vector<std::string> notes;  // for people: "metrics.jsonl: 2 lines were cut off"
  bool is_empty() const { return steps.empty() && events.empty(); }
};

// Error{input}: not a directory, or one with neither run.json, metrics.jsonl nor events.jsonl; records that name
// another run than run.json does ("run_id") or that were written by a newer major version.
RunRecords read_run_records(const std::filesystem::path& dir);
// Steps without the warm-up: the first third of them when there are more than three, else all.
std::vector<const StepRecord*> settled_steps(const RunRecords& run);

}  // namespace rw
