// What a measurement leaves behind, whatever was measured: the one form that every `dbench` subcommand writes with
// --json and that `compare`, `baseline`, `validate` and `report` read.
//
// {"bench": "train", "name": "tiny-llama tp 2", "time": UTC, "tool_version", "machine": {...}, "config": {...},
//  "repeats": 5, "cpu_share": 0.99, "quiet": true,
//  "metrics": [{"name": "step_s", "unit": "s", "better": "lower", "kind": "time", "samples": [...], "median",
//               "predicted": 0.18, "limit": 0.1}, ...],
//  "details": {...}}
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

// Which way is good; neither: a fact that is never judged.
enum class Better : uint8_t { lower, higher, neither };
// time: varies from run to run, compared statistically. count: exact (bytes sent, calls, allocations): any change in
// the bad direction counts. fact: shown, not judged.
enum class MetricKind : uint8_t { time, count, fact };
const char* better_name(Better better);
const char* metric_kind_name(MetricKind kind);

struct BenchMetric {
  std::string name;  // "step_s", "kernel.gemm qkv 2048 x 2304 x 768.us"
  std::string unit;  // "s", "tokens/s", "bytes", "" of a share
  Better better = Better::lower;
  MetricKind kind = MetricKind::time;
  std::vector<double> samples;  // in the order they were taken, a repeat each
  std::optional<double> predicted;
  std::optional<double> limit;  // what the hardware allows
};

struct BenchRecord {
  std::string bench;  // the subcommand
  std::string name;   // of the case; with `bench` it is what records are matched by
  std::string time, tool_version;
  std::string machine, config;  // JSON texts: machine_json(); what was asked, as fields_json gives it
  int64_t repeats = 1;
  double cpu_share = 1;  // CPU seconds over wall, of the threads that measured; below kQuietShare times say nothing
  bool quiet = true;
  std::vector<BenchMetric> metrics;
  std::string details = "{}";  // JSON text: the subcommand's own
};

// Fills time, tool_version and machine.
BenchRecord new_record(const std::string& bench, const std::string& name, const Json& config);
// Of what was measured on a device other than the CPUs (machine.h, set_device).
void set_device(BenchRecord& record, const std::string& device);
const BenchMetric* find_metric(const BenchRecord& record, const std::string& name);
Json record_json(const BenchRecord& record);
// Error{input} names `where`, the key, what was expected and found.
BenchRecord parse_record(const Json& json, const std::string& where);
// A file (or "-", standard input) of one record, of JSON lines of records, or of one array; other JSON objects that say
// no "bench" are an error.
std::vector<BenchRecord> read_records(const std::string& path);

}  // namespace rw
