#include "libcore/plan/measure/measured_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/median.h"
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

std::vector<Json> metrics_lines(const std::filesystem::path& file) {
  std::vector<Json> lines;
  std::istringstream text(read_file(file));
  for (std::string line; std::getline(text, line);) {
    Json parsed = Json::parse(line, nullptr, false);
    if (!parsed.is_discarded() && parsed.contains("step_s") && parsed.contains("seconds")) lines.push_back(parsed);
  }
  return lines;
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
  out.precision = run["precision"].get<std::string>();
  out.backend = run["backend"].get<std::string>();
  out.threads = run["threads_per_rank"].get<int64_t>();
  const Json& hosts = run["hosts"];
  out.ranks = static_cast<int64_t>(hosts.size());
  TrainSpec spec = spec_of(run["config"], where);
  out.ranks_per_node =
      spec.ranks_per_node > 0 ? spec.ranks_per_node : std::count(hosts.begin(), hosts.end(), hosts.front());
  out.layout = settle_layout(spec, out.model, out.ranks);

  const std::vector<Json> lines = metrics_lines(dir / "metrics.jsonl");
  constexpr size_t kFewest = 4;
  if (lines.size() < kFewest)
    fail(ErrorKind::input, "{}: expected at least {} steps, found {}; train longer", (dir / "metrics.jsonl").string(),
         kFewest, lines.size());
  std::vector<double> steps;
  std::array<std::vector<double>, static_cast<size_t>(TimeCategory::n_categories)> seconds;
  for (size_t i = lines.size() / 3; i < lines.size(); ++i) {
    const Json& s = lines[i]["seconds"];
    double checkpoint = 0;
    for (size_t c = 0; c < seconds.size(); ++c) {
      const double v = s.value(time_category_name(static_cast<TimeCategory>(c)), 0.0);
      seconds[c].push_back(v);
      if (static_cast<TimeCategory>(c) == TimeCategory::checkpoint) checkpoint = v;
    }
    steps.push_back(lines[i]["step_s"].get<double>() - checkpoint);
  }
  out.steps = static_cast<int64_t>(steps.size());
  out.step_s = median(steps);
  for (size_t c = 0; c < seconds.size(); ++c) out.seconds[c] = median(seconds[c]);
  return out;
}

}  // namespace rw
