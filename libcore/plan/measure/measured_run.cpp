#include "libcore/plan/measure/measured_run.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/median.h"
#include "libcore/base/toml_table.h"
#include "libcore/spec/train_spec.h"

namespace rw {
namespace {

std::string scalar_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

TrainSpec spec_of(const Json& config, const std::string& where) {
  TrainSpec spec;
  for (const Field& f : fields(spec)) {
    std::string key = f.name;
    std::replace(key.begin(), key.end(), '-', '_');
    const auto at = config.find(key);
    if (at == config.end() || at->is_array()) continue;
    if (scalar_text(*at) != field_text(f)) set_field(f, scalar_text(*at), where);
  }
  return spec;
}

// The seconds of one step, without what a checkpoint took of it.
struct MeasuredStep {
  double step_s = 0;
  std::array<double, static_cast<size_t>(TimeCategory::n_categories)> seconds{};
};

MeasuredStep step_of(const Json& line, const std::string& where) {
  MeasuredStep step;
  const Json& by_category = line["seconds"];
  if (!by_category.is_object())
    fail(ErrorKind::input, "{}: key \"seconds\": expected an object, found {}", where, by_category.type_name());
  for (size_t c = 0; c < step.seconds.size(); ++c) {
    const char* name = time_category_name(static_cast<TimeCategory>(c));
    if (!by_category.contains(name)) continue;
    const double v = json_number(by_category, name, where + ": seconds");
    if (!(v >= 0) || !std::isfinite(v))
      fail(ErrorKind::input, "{}: seconds: key \"{}\": expected 0 or more, found {}", where, name, v);
    step.seconds[c] = v;
  }
  const double whole = json_number(line, "step_s", where);
  step.step_s = whole - step.seconds[static_cast<size_t>(TimeCategory::checkpoint)];
  if (!(step.step_s > 0) || !std::isfinite(step.step_s))
    fail(ErrorKind::input, "{}: key \"step_s\": expected more than 0 and than seconds.checkpoint, found {}", where,
         whole);
  return step;
}

// A run that is killed leaves its last line torn; such lines are passed over and told.
std::vector<MeasuredStep> steps_of(const std::filesystem::path& file, std::vector<std::string>& notes) {
  std::vector<MeasuredStep> steps;
  std::istringstream text(read_file(file));
  int64_t number = 0, torn = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const Json parsed = Json::parse(line, nullptr, false);
    if (parsed.is_discarded()) ++torn;
    else if (parsed.contains("step_s") && parsed.contains("seconds"))
      steps.push_back(step_of(parsed, fmt::format("{}:{}", file.string(), number)));
  }
  if (torn > 0)
    notes.push_back(fmt::format("{}: {} line{} no whole JSON and {} passed over", file.string(), torn,
                                torn == 1 ? " is" : "s are", torn == 1 ? "was" : "were"));
  return steps;
}

// The run's own facts, of the types that dtrain writes.
void read_facts(const Json& run, const std::string& where, MeasuredRun& out) {
  if (!run["config"].is_object())
    fail(ErrorKind::input, "{}: key \"config\": expected an object, found {}", where, run["config"].type_name());
  out.precision = json_string(run, "precision", where);
  if (out.precision != "f32" && out.precision != "bf16" && out.precision != "f16")
    fail(ErrorKind::input, "{}: key \"precision\": expected f32, bf16 or f16, found {}", where,
         toml_quoted(out.precision));
  out.backend = json_string(run, "backend", where);
  out.threads = json_int(run, "threads_per_rank", where);
  constexpr int64_t kMostThreads = 4096;
  if (out.threads < 1 || out.threads > kMostThreads)
    fail(ErrorKind::input, "{}: key \"threads_per_rank\": expected 1 to {}, found {}", where, kMostThreads,
         out.threads);
  const Json& hosts = run["hosts"];
  const bool names = hosts.is_array() && !hosts.empty() &&
                     std::all_of(hosts.begin(), hosts.end(), [](const Json& h) { return h.is_string(); });
  if (!names)
    fail(ErrorKind::input, "{}: key \"hosts\": expected an array with a host's name for each rank, found {}", where,
         hosts.is_array() ? hosts.empty() ? "an empty one" : "other things in it" : hosts.type_name());
  out.ranks = static_cast<int64_t>(hosts.size());
}

}  // namespace

MeasuredRun read_measured_run(const std::filesystem::path& dir) {
  const std::string where = (dir / "run.json").string();
  const Json run = Json::parse(read_file(dir / "run.json"), nullptr, false);
  if (run.is_discarded() || !run.is_object())
    fail(ErrorKind::input, "{}: expected the JSON object that dtrain writes there, found something else", where);
  for (const char* key : {"model_config", "config", "hosts", "precision", "threads_per_rank", "backend"})
    if (!run.contains(key))
      fail(ErrorKind::input, "{}: expected a key \"{}\"; is this a run directory of dtrain?", where, key);
  MeasuredRun out;
  out.where = dir.string();
  out.model = parse_model_spec(run["model_config"], where);
  read_facts(run, where, out);
  const Json& hosts = run["hosts"];
  TrainSpec spec = spec_of(run["config"], where);
  out.ranks_per_node =
      spec.ranks_per_node > 0 ? spec.ranks_per_node : std::count(hosts.begin(), hosts.end(), hosts.front());
  out.layout = settle_layout(spec, out.model, out.ranks);

  const std::vector<MeasuredStep> all = steps_of(dir / "metrics.jsonl", out.notes);
  constexpr size_t kFewest = 4;
  if (all.size() < kFewest)
    fail(ErrorKind::input, "{}: expected at least {} steps, found {}; train longer", (dir / "metrics.jsonl").string(),
         kFewest, all.size());
  std::vector<double> steps;
  std::array<std::vector<double>, static_cast<size_t>(TimeCategory::n_categories)> seconds;
  for (size_t i = all.size() / 3; i < all.size(); ++i) {
    steps.push_back(all[i].step_s);
    for (size_t c = 0; c < seconds.size(); ++c) seconds[c].push_back(all[i].seconds[c]);
  }
  out.steps = static_cast<int64_t>(steps.size());
  out.step_s = median(steps);
  for (size_t c = 0; c < seconds.size(); ++c) out.seconds[c] = median(seconds[c]);
  return out;
}

}  // namespace rw
