#include "libcore/bench/train/train_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "libcore/base/median.h"
#include "libcore/base/units.h"
#include "libcore/bench/record/statistics.h"
#include "libcore/bench/train/mfu_reading.h"
#include "libcore/device/arena.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

using OfStep = std::function<double(const StepRecord&)>;

std::vector<double> values_of(const std::vector<StepRecord>& steps, const OfStep& f) {
  std::vector<double> values;
  for (const StepRecord& s : steps) values.push_back(f(s));
  return values;
}

double quantile(const std::vector<StepRecord>& steps, const OfStep& f, double share) {
  return quantile_of(values_of(steps, f), share);
}

class Writer {
 public:
  Writer(BenchRecord& record, const TrainSeries& series) : record_(record), series_(series) {}

  BenchMetric& add(const std::string& name, const char* unit, Better better, MetricKind kind) {
    BenchMetric m;
    m.name = name;
    m.unit = unit;
    m.better = better;
    m.kind = kind;
    record_.metrics.push_back(std::move(m));
    return record_.metrics.back();
  }
  // Quantiles of the steps, one a repeat.
  BenchMetric& quantiles(const std::string& name, const char* unit, Better better, MetricKind kind, const OfStep& f,
                         double share = 0.5) {
    BenchMetric& m = add(name, unit, better, kind);
    for (const auto& steps : series_.repeats) m.samples.push_back(quantile(steps, f, share));
    return m;
  }
  void count(const std::string& name, const char* unit, double value) {
    add(name, unit, Better::lower, MetricKind::count).samples = {value};
  }

 private:
  BenchRecord& record_;
  const TrainSeries& series_;
};

void add_times(Writer& w, const TrainSeries& s, const TrainExpectation& e) {
  const std::optional<Prediction>& p = e.prediction;
  BenchMetric& step =
      w.quantiles("step_s", "s", Better::lower, MetricKind::time, [](const StepRecord& r) { return r.step_s; });
  if (p) step.predicted = p->step_s;
  step.limit = e.kernels.flops_s;
  BenchMetric& speed = w.add("tokens_per_s", "tokens/s", Better::higher, MetricKind::time);
  for (const auto& steps : s.repeats) {
    const double seconds = quantile(
        steps, [](const StepRecord& r) { return r.step_s; }, 0.5);
    speed.samples.push_back(static_cast<double>(s.layout.global_batch * s.layout.seq_len) / seconds);
  }
  if (p) speed.predicted = p->tokens_per_s;
  for (const auto& [name, share] : {std::pair{"step_p90_s", 0.9}, std::pair{"step_p99_s", 0.99}})
    w.quantiles(
        name, "s", Better::lower, MetricKind::fact, [](const StepRecord& r) { return r.step_s; }, share);
  const auto mfu = [&](const char* name, const OfStep& f, double ByConvention::*predicted) {
    BenchMetric& m = w.quantiles(std::string("mfu.") + name, "", Better::higher, MetricKind::fact, f);
    // Of the peak that the run's own MFU is of: the cluster's is another measurement.
    if (p) m.predicted = p->tflops_per_device.*predicted * 1e12 / s.peak_flops_per_rank;
  };
  mfu(
      "full", [](const StepRecord& r) { return r.mfu_full; }, &ByConvention::full);
  mfu(
      "causal", [](const StepRecord& r) { return r.mfu_causal; }, &ByConvention::causal);
  mfu(
      "hardware", [](const StepRecord& r) { return r.mfu_hardware; }, &ByConvention::hardware);
  // The trainer charges the update to compute and late messages to the bubble.
  std::map<TimeCategory, double> predicted;
  if (p)
    predicted = {{TimeCategory::compute, p->time.compute + p->time.optimizer},
                 {TimeCategory::communication, p->time.exposed_tp + p->time.exposed_dp},
                 {TimeCategory::bubble, p->time.bubble + p->time.exposed_pp}};
  for (int c = 0; c < static_cast<int>(TimeCategory::n_categories); ++c) {
    const auto category = static_cast<TimeCategory>(c);
    BenchMetric& m = w.quantiles(std::string(time_category_name(category)) + "_s", "s", Better::lower, MetricKind::fact,
                                 [category](const StepRecord& r) { return r.second(category); });
    if (predicted.count(category) > 0) m.predicted = predicted[category];
    if (category == TimeCategory::compute) m.limit = e.kernels.flops_s;
  }
  w.quantiles("communication_exposed_s", "s", Better::lower, MetricKind::fact,
              [](const StepRecord& r) { return r.exposed_s; });
}

bool is_exact_memory(const std::string& name) {
  if (name == "planned") return true;
  for (int o = 0; o < static_cast<int>(MemoryOwner::n_owners); ++o)
    if (name == memory_owner_name(static_cast<MemoryOwner>(o))) return true;
  return false;
}

// Of a step: a checkpoint's own calls, in a few of them, do not count.
std::map<std::string, double> usual_counts(const TrainSeries& s, std::map<std::string, double> StepRecord::*counts) {
  std::map<std::string, std::vector<double>> all;
  for (const StepRecord& r : s.repeats.front())
    for (const auto& [name, n] : r.*counts) all[name].push_back(n);
  std::map<std::string, double> usual;
  for (auto& [name, values] : all)
    if (2 * values.size() > s.repeats.front().size()) usual[name] = median(values);
  return usual;
}

void add_counts(Writer& w, const TrainSeries& s, const TrainExpectation& e) {
  const StepRecord& last = s.repeats.front().back();
  for (const auto& [name, bytes] : last.memory_bytes) {
    const bool exact = is_exact_memory(name);
    // The process's high-water mark: of the first training alone it is that training's.
    if (!exact && !s.is_first) continue;
    BenchMetric& m =
        w.add("memory." + name + ".bytes", "bytes", Better::lower, exact ? MetricKind::count : MetricKind::fact);
    m.samples = {bytes};
    // The prediction is of the worst stage.
    if (name == "planned" && e.prediction && s.layout.pp == 1) m.predicted = e.prediction->memory.total();
  }
  for (const auto& [name, n] : usual_counts(s, &StepRecord::calls)) w.count("calls." + name, "", n);
  for (const auto& [name, n] : usual_counts(s, &StepRecord::bytes)) w.count("bytes." + name, "bytes", n);
  w.count("kernel_calls", "", static_cast<double>(e.kernels.all_calls));
  w.count("kernel_flops", "FLOP", e.kernels.flops);
  w.count("kernel_bytes", "bytes", e.kernels.bytes);
}

std::string reading_of(const BenchRecord& record, const TrainSeries& s, const TrainExpectation& e) {
  const double step = median_of_metric(record, "step_s");
  const auto share = [&](const char* name) { return median_of_metric(record, name) / step; };
  MfuFacts f;
  f.mfu = median_of_metric(record, "mfu.full");
  f.is_gpu = !s.backend.starts_with("cpu");
  f.params = static_cast<double>(n_params(s.model));
  f.compute = share("compute_s");
  f.communication = share("communication_s");
  f.bubble = share("bubble_s");
  f.data = share("data_s");
  f.checkpoint = share("checkpoint_s");
  f.roofline = e.kernels.roofline_s / median_of_metric(record, "compute_s");
  return mfu_reading(f);
}

std::string value_text(const BenchMetric& m, double v) {
  if (!std::isfinite(v)) return "-";
  if (m.unit == "s") return fmt::format("{:.3f} ms", 1e3 * v);
  if (m.unit == "bytes") return format_bytes(v);
  if (m.unit == "tokens/s") return v < 100 ? fmt::format("{:.3g}", v) : fmt::format("{:.0f}", v);
  if (m.name.starts_with("mfu.")) return fmt::format("{:.1f} %", 100 * v);
  return fmt::format("{:.6g}", v);
}

}  // namespace

double median_of_metric(const BenchRecord& record, const std::string& name) {
  const BenchMetric* m = find_metric(record, name);
  return m != nullptr ? quantile_of(m->samples, 0.5) : std::nan("");
}

BenchRecord train_record(const TrainSeries& s, const TrainExpectation& e, const TrainBenchSpec& spec) {
  TrainBenchSpec copy = spec;
  copy.train = s.what.spec;
  if (spec.train.data.empty()) copy.train.data.clear();  // random: where it lay says nothing
  const std::string& model = copy.train.model.empty() ? copy.train.init_from : copy.train.model;
  BenchRecord record = new_record("train",
                                  fmt::format("{}: {}, {}, {} x {} tokens", model, s.layout.text(),
                                              copy.train.precision, s.layout.global_batch, s.layout.seq_len),
                                  fields_json(fields(copy)));
  set_device(record, s.device);
  record.repeats = static_cast<int64_t>(s.repeats.size());
  record.cpu_share = s.cpu_share;
  record.quiet = s.is_quiet;
  Writer writer(record, s);
  add_times(writer, s, e);
  add_counts(writer, s, e);
  Json details = {{"case", s.what.name},
                  {"layout", layout_json(s.layout)},
                  {"ranks", s.what.ranks},
                  {"threads_per_rank", s.threads},
                  {"backend", s.backend},
                  {"device", s.device},
                  {"params", n_params(s.model)},
                  {"peak_flops_per_rank", s.peak_flops_per_rank},
                  {"measured_steps", s.repeats.front().size()},
                  {"kernel_calls", e.kernels.calls},
                  {"mfu_reading", reading_of(record, s, e)}};
  if (e.prediction)
    details["prediction"] = {{"cluster", e.cluster},
                             {"provenance", provenance_name(e.prediction->provenance)},
                             {"quiet", e.was_quiet},
                             {"error_bar", e.prediction->error_bar}};
  if (!e.note.empty()) details["note"] = e.note;
  record.details = details.dump();
  return record;
}

std::string not_quiet_text(const std::vector<BenchRecord>& records) {
  std::string names;
  for (const BenchRecord& r : records)
    if (!r.quiet) names += (names.empty() ? "" : ", ") + Json::parse(r.details)["case"].get<std::string>();
  if (names.empty()) return {};
  return fmt::format(
      "NOT QUIET: others were on the machine during {}: its times, and what is compared with them, say "
      "little.\n",
      names);
}

std::string train_table(const BenchRecord& record) {
  const Json details = Json::parse(record.details);
  std::string text = fmt::format(
      "{}\n  repeats: {}, steps of each: {}, ranks: {}, threads of each: {}{}\n\n  {:<34} {:>14} {:>14} {:>9}\n",
      record.name, record.repeats, details["measured_steps"].dump(), details["ranks"].dump(),
      details["threads_per_rank"].dump(),
      record.quiet ? "" : "; NOT QUIET: others were on the machine, times say little", "", "measured", "predicted",
      "measured/");
  for (const BenchMetric& m : record.metrics) {
    if (m.name.starts_with("kernel_")) continue;
    const double measured = quantile_of(m.samples, 0.5);
    const bool compared = m.predicted && *m.predicted > 0;
    text += fmt::format("  {:<34} {:>14} {:>14} {:>9}\n", m.name, value_text(m, measured),
                        m.predicted ? value_text(m, *m.predicted) : "",
                        compared ? fmt::format("{:.2f}", measured / *m.predicted) : "");
  }
  text += fmt::format("  {:<34} {:>14.0f}   {:.4g} GFLOP, {} a step and rank\n", "kernel calls",
                      median_of_metric(record, "kernel_calls"), median_of_metric(record, "kernel_flops") * 1e-9,
                      format_bytes(median_of_metric(record, "kernel_bytes")));
  text += "\n" + details["mfu_reading"].get<std::string>() + "\n";
  if (details.contains("prediction") && !details["prediction"]["quiet"].get<bool>())
    text +=
        "NOT QUIET: this host was measured for the prediction while others were on it: it does better than "
        "predicted.\n";
  if (details.contains("note")) text += details["note"].get<std::string>() + "\n";
  return text;
}

}  // namespace rw
