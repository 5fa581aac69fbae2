#include "libcore/plan/measure/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "libcore/base/error.h"
#include "libcore/model/exec.h"
#include "libcore/plan/price/least_squares.h"
#include "libcore/plan/price/predict.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

// What is fitted: where it lies, within what, and how much a prior holds it (the deviation, of its logarithm, that is
// as bad as a residual of one deviation).
struct Knob {
  const char* name;
  double* value;
  double low, high, prior;
};
std::vector<Knob> knobs(DeviceType& d, NodeType& n) {
  constexpr double kWide = 1.0, kNarrow = 0.5;
  std::vector<Knob> all = {{"gemm-fraction", &d.gemm_fraction, 0.02, 1, kWide},
                           {"gemm-half-size", &d.gemm_half_size, 1, 4096, kNarrow},
                           {"attention-fraction", &d.attention_fraction, 0.005, 1, kNarrow},
                           {"memory-fraction", &d.memory_fraction, 0.05, 1, kWide},
                           {"launch", &d.launch, 1e-8, 1e-3, kWide},
                           {"overlap", &d.overlap, 0.01, 1, kNarrow}};
  if (d.gemm_half_size <= 0) all.erase(all.begin() + 1);  // sizes do not matter for this type
  if (n.devices > 1) {
    all.push_back({"link-bandwidth", &n.link_bandwidth, n.link_bandwidth / 30, n.link_bandwidth * 30, kWide});
    all.push_back({"link-latency", &n.link_latency, 1e-8, 1e-2, kWide});
  }
  return all;
}

// One run with what its predictions share, whatever the calibration.
struct Priceable {
  explicit Priceable(const MeasuredRun& r)
      : run(r),
        works(std::make_shared<WorkCache>(r.model, precision_type(r.precision), this_cpu_ops(),
                                          static_cast<int>(r.threads))) {}
  Prediction price(const ClusterSpec& cluster) const {
    PredictQuery query{.model = run.model, .cluster = cluster};
    query.precision = run.precision;
    query.backend = &this_cpu_ops();
    query.threads = static_cast<int>(run.threads);
    query.works = works;
    Predictor predictor(query);
    return predictor.predict(run.layout);
  }
  const MeasuredRun& run;
  std::shared_ptr<WorkCache> works;
};

double seconds_of(const MeasuredRun& run, TimeCategory c) { return run.seconds[static_cast<size_t>(c)]; }
double compute_of(const Prediction& p) { return p.time.compute + p.time.optimizer; }
double communication_of(const Prediction& p) { return p.time.exposed_tp + p.time.exposed_dp; }

std::vector<Priceable> priceable(const ClusterSpec& cluster, const std::vector<MeasuredRun>& runs) {
  std::vector<Priceable> all;
  for (const MeasuredRun& run : runs) {
    if (run.ranks > cluster.device_count())
      fail(ErrorKind::usage, "{}: a run of {} ranks; the cluster {} has {} devices: describe it with as many",
           run.where, run.ranks, cluster.name, cluster.device_count());
    const DeviceType& d = cluster.device_of(cluster.nodes.front());
    if (!run.backend.empty() && run.backend.starts_with("cpu") != d.is_cpu())
      fail(ErrorKind::usage, "{}: a run on {}; the devices of cluster {} are {} ({}): give runs on such devices",
           run.where, run.backend, cluster.name, d.is_cpu() ? "CPUs" : "GPUs", d.name);
    all.emplace_back(run);
  }
  return all;
}

std::vector<RunResidual> residuals_of(const std::vector<Priceable>& runs, const ClusterSpec& before,
                                      const ClusterSpec& after) {
  std::vector<RunResidual> all;
  for (const Priceable& p : runs) {
    const Prediction was = p.price(before), is = p.price(after);
    all.push_back({.where = p.run.where,
                   .layout = p.run.layout.text(),
                   .measured = p.run.step_s,
                   .before = was.step_s,
                   .after = is.step_s,
                   .compute = seconds_of(p.run, TimeCategory::compute),
                   .compute_after = compute_of(is),
                   .communication = seconds_of(p.run, TimeCategory::communication),
                   .communication_after = communication_of(is)});
  }
  return all;
}

double mean_error(const std::vector<RunResidual>& runs, double RunResidual::*predicted) {
  double sum = 0;
  for (const RunResidual& r : runs) sum += std::abs(r.*predicted / r.measured - 1);
  return sum / static_cast<double>(runs.size());
}

// What the runs themselves leave doubtful.
std::vector<std::string> notes_of(const std::vector<MeasuredRun>& runs) {
  constexpr int64_t kFewSteps = 8;  // whose median one slow step moves
  std::vector<std::string> notes;
  std::map<std::string, int> times;  // by the folder, however it was written
  for (const MeasuredRun& run : runs) {
    notes.insert(notes.end(), run.notes.begin(), run.notes.end());
    std::error_code error;
    const std::filesystem::path real = std::filesystem::weakly_canonical(run.where, error);
    if (++times[error ? run.where : real.string()] == 2)
      notes.push_back(fmt::format("{}: the same run is given more than once and counts as often", run.where));
    if (run.steps < kFewSteps)
      notes.push_back(fmt::format("{}: the medians are of {} steps; train so long that {} or more count", run.where,
                                  run.steps, kFewSteps));
  }
  return notes;
}

}  // namespace

Calibration calibrate(const ClusterSpec& cluster, const std::vector<MeasuredRun>& runs) {
  if (runs.empty()) fail(ErrorKind::usage, "calibrate: expected at least one run directory");
  constexpr double kDeviation = 0.02;  // relative, of a measured median
  constexpr double kSmall = 0.02;      // of a step: communication below it is not worth fitting
  const std::vector<Priceable> all = priceable(cluster, runs);
  Calibration out{.cluster = cluster, .numbers = {}, .runs = {}, .notes = notes_of(runs)};
  ClusterSpec& fitted = out.cluster;
  NodeType& node = fitted.nodes.front();
  DeviceType& device = *std::find_if(fitted.devices.begin(), fitted.devices.end(),
                                     [&](const DeviceType& d) { return d.name == node.device; });
  const std::vector<Knob> turned = knobs(device, node);
  std::vector<FitParameter> parameters;
  for (const Knob& k : turned) parameters.push_back({std::clamp(*k.value, k.low, k.high), k.low, k.high});
  const auto residuals = [&](const std::vector<double>& values) {
    for (size_t i = 0; i < turned.size(); ++i) *turned[i].value = values[i];
    std::vector<double> r;
    for (const Priceable& p : all) {
      const Prediction now = p.price(fitted);
      const double step = p.run.step_s;
      r.push_back(std::log(now.step_s / step) / kDeviation);
      r.push_back((compute_of(now) - seconds_of(p.run, TimeCategory::compute)) / step / kDeviation);
      const double communication = seconds_of(p.run, TimeCategory::communication);
      r.push_back((communication_of(now) - communication) / std::max(step, communication) / (kDeviation + kSmall));
    }
    for (size_t i = 0; i < turned.size(); ++i) r.push_back(std::log(values[i] / parameters[i].start) / turned[i].prior);
    return r;
  };
  const Fit fit = fit_least_squares(parameters, residuals);
  residuals(fit.parameters);
  for (size_t i = 0; i < turned.size(); ++i)
    out.numbers.push_back({turned[i].name, parameters[i].start, fit.parameters[i]});
  out.runs = residuals_of(all, cluster, fitted);
  out.mean_error_before = mean_error(out.runs, &RunResidual::before);
  out.mean_error_after = mean_error(out.runs, &RunResidual::after);
  constexpr double kExplained = 0.1;
  if (out.mean_error_after <= kExplained) device.provenance = provenance_name(Provenance::measured);
  else
    out.notes.push_back(
        fmt::format("the fit misses the runs by {:.0f} % on average, more than {:.0f} %: {} stays marked {}",
                    100 * out.mean_error_after, 100 * kExplained, device.name, device.provenance));
  return out;
}

std::vector<RunResidual> compare_runs(const ClusterSpec& cluster, const std::vector<MeasuredRun>& runs) {
  return residuals_of(priceable(cluster, runs), cluster, cluster);
}

}  // namespace rw
