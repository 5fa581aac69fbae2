#include "libcore/bench/record/run_records.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/version.h"
#include "libcore/bench/record/json_line_file.h"

namespace rw {
namespace {

namespace fs = std::filesystem;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMostLogBytes = 1 << 20;

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}
double number(const Json& object, const char* key) {
  const Json* v = member(object, key);
  return v != nullptr && v->is_number() ? v->get<double>() : kUnknown;
}
std::string text(const Json& object, const char* key) {
  const Json* v = member(object, key);
  return v != nullptr && v->is_string() ? v->get<std::string>() : "";
}
// -1 where there is none: a step of another kind would put its line in the wrong place.
int64_t step_of(const Json& line) {
  const Json* v = member(line, "step");
  return v != nullptr && v->is_number_integer() ? v->get<int64_t>() : -1;
}
std::map<std::string, double> numbers(const Json& object, const char* key) {
  std::map<std::string, double> out;
  if (const Json* inner = member(object, key); inner != nullptr && inner->is_object())
    for (const auto& [name, value] : inner->items())
      if (value.is_number()) out[name] = value.get<double>();
  return out;
}

StepRecord step_record(const Json& line) {
  StepRecord s;
  s.step = step_of(line);
  for (const auto& [key, field] : {std::pair{"loss", &StepRecord::loss},
                                   {"lr", &StepRecord::lr},
                                   {"grad_norm", &StepRecord::grad_norm},
                                   {"step_s", &StepRecord::step_s},
                                   {"tokens_per_s", &StepRecord::tokens_per_s},
                                   {"tokens", &StepRecord::tokens},
                                   {"samples", &StepRecord::samples},
                                   {"model_flops", &StepRecord::model_flops},
                                   {"loss_scale", &StepRecord::loss_scale}})
    s.*field = number(line, key);
  const Json none = Json::object();
  const Json* mfu = member(line, "mfu");
  s.mfu_full = number(mfu != nullptr ? *mfu : none, "full");
  s.mfu_causal = number(mfu != nullptr ? *mfu : none, "causal");
  s.mfu_hardware = number(mfu != nullptr ? *mfu : none, "hardware");
  const Json* seconds = member(line, "seconds");
  for (size_t c = 0; c < s.seconds.size(); ++c)
    s.seconds[c] = number(seconds != nullptr ? *seconds : none, time_category_name(static_cast<TimeCategory>(c)));
  const Json* communication = member(line, "communication");
  const Json& talk = communication != nullptr ? *communication : none;
  s.exposed_s = number(talk, "exposed_s");
  s.communication_s = number(talk, "total_s");
  s.calls = numbers(talk, "calls");
  s.bytes = numbers(talk, "bytes");
  s.memory_bytes = numbers(line, "memory_bytes");
  const Json* slowest = member(line, "slowest");
  s.slowest_rank = number(slowest != nullptr ? *slowest : none, "rank");
  s.slowest_s = number(slowest != nullptr ? *slowest : none, "compute_s");
  s.slowest_peers_s = number(slowest != nullptr ? *slowest : none, "peers_s");
  s.batch_fingerprint = text(line, "batch_fingerprint");
  if (const Json* skipped = member(line, "skipped")) s.skipped = skipped->is_boolean() && skipped->get<bool>();
  return s;
}

// Calls `use` with each line that is a JSON object and its text; the others are counted and told.
void each_line(const fs::path& file, RunRecords& run, const std::function<void(const Json&, const std::string&)>& use) {
  const int64_t torn = for_each_json_line(file, use);
  if (torn > 0)
    run.notes.push_back(fmt::format("{}: {} line{} no whole JSON object and {} passed over", file.string(), torn,
                                    torn == 1 ? " is" : "s are", torn == 1 ? "was" : "were"));
  run.torn_lines += torn;
}

void read_steps(RunRecords& run) {
  const fs::path file = run.dir / "metrics.jsonl";
  int64_t other = 0;
  each_line(file, run, [&](const Json& line, const std::string&) {
    const double step_s = number(line, "step_s");
    if (step_of(line) < 0 || !(step_s > 0)) ++other;
    else run.steps.push_back(step_record(line));
  });
  if (other > 0)
    run.notes.push_back(fmt::format("{}: {} line{} without a \"step\" and a \"step_s\" above 0 {} passed over",
                                    file.string(), other, other == 1 ? "" : "s", other == 1 ? "was" : "were"));
  // A resumed run computes its last steps again.
  std::stable_sort(run.steps.begin(), run.steps.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  std::vector<StepRecord> once;
  for (StepRecord& s : run.steps) {
    if (!once.empty() && once.back().step == s.step) once.back() = std::move(s);
    else once.push_back(std::move(s));
  }
  run.steps = std::move(once);
}

void read_events(RunRecords& run, const std::string& run_id) {
  const fs::path file = run.dir / "events.jsonl";
  each_line(file, run, [&](const Json& line, const std::string& whole) {
    if (const std::string other = text(line, "run_id"); !run_id.empty() && !other.empty() && other != run_id)
      fail(ErrorKind::input,
           "{}: expected events of run {} (run.json), found one of run {}: files of two runs lie in one folder; keep "
           "each run's together",
           file.string(), run_id, other);
    run.events.push_back({text(line, "event"), text(line, "time"), step_of(line), whole});
  });
}

void read_resources(RunRecords& run) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(run.dir)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("resources") && name.ends_with(".jsonl")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files)
    each_line(file, run, [&](const Json& line, const std::string& whole) {
      run.resources.push_back({text(line, "time"), text(line, "host"), number(line, "clock_s"), step_of(line), whole});
    });
  // Clocks of hosts differ, the lines' UTC does not; lines of a second stay in the order of their file.
  std::stable_sort(run.resources.begin(), run.resources.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
}

void read_watchdog(RunRecords& run) {
  const fs::path dir = run.dir / "watchdog";
  if (!fs::is_directory(dir)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".jsonl")) run.watchdog.push_back(entry.path());
  }
  std::sort(run.watchdog.begin(), run.watchdog.end());
}

// The ends of the files: that is where a job says why it stopped.
void read_logs(RunRecords& run) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(run.dir))
    if (std::error_code unknown;
        entry.is_regular_file(unknown) && (entry.path().filename() == "log.txt" || entry.path().extension() == ".log"))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const auto bytes = static_cast<int64_t>(fs::file_size(file));
    in.seekg(std::max<int64_t>(0, bytes - (kMostLogBytes - static_cast<int64_t>(run.log.size()))));
    run.log.append(std::istreambuf_iterator<char>(in), {});
    if (static_cast<int64_t>(run.log.size()) >= kMostLogBytes) break;
  }
}

int64_t major_version(const std::string& version) {
  int64_t major = -1;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

}  // namespace

RunRecords read_run_records(const fs::path& dir) {
  if (!fs::is_directory(dir))
    fail(ErrorKind::input, "{}: expected a run directory (dtrain --out), found {}", dir.string(),
         fs::exists(dir) ? "a file" : "nothing");
  RunRecords run;
  run.dir = dir;
  const fs::path identity = dir / "run.json";
  const auto is_there = [&](const char* name) {
    std::error_code unknown;
    return fs::symlink_status(dir / name, unknown).type() != fs::file_type::not_found;
  };
  if (!is_there("run.json") && !is_there("metrics.jsonl") && !is_there("events.jsonl"))
    fail(ErrorKind::input,
         "{}: expected a run directory, found neither run.json, metrics.jsonl nor events.jsonl in it; dtrain --out "
         "DIR makes one",
         dir.string());
  std::string run_id;
  if (is_there("run.json")) {
    const Json json = parse_json(read_regular_file(identity), identity.string());
    if (!json.is_object())
      fail(ErrorKind::input, "{}: expected an object, found {}", identity.string(), json.type_name());
    if (const std::string by = text(json, "tool_version"); major_version(by) > major_version(version()))
      fail(ErrorKind::input, "{}: written by version {}, this is {}: use that version's dbench", identity.string(), by,
           version());
    run_id = text(json, "run_id");
    run.identity = json.dump();
  }
  read_steps(run);
  read_events(run, run_id);
  read_resources(run);
  read_watchdog(run);
  read_logs(run);
  return run;
}

std::vector<const StepRecord*> settled_steps(const RunRecords& run) {
  const size_t n = run.steps.size(), warm_up = n > 3 ? n / 3 : 0;
  std::vector<const StepRecord*> settled;
  for (size_t i = warm_up; i < n; ++i) settled.push_back(&run.steps[i]);
  return settled;
}

}  // namespace rw
