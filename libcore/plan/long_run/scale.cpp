#include "libcore/plan/long_run/scale.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr int64_t kMostNodes = 1 << 20;

int64_t parse_nodes(const std::string& text, const std::string& all) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kMostNodes)
    fail(ErrorKind::usage, "--nodes: expected sizes like 1..2048 or 1,2,6, each from 1 to {}, found \"{}\" in \"{}\"",
         kMostNodes, text, all);
  return n;
}

struct Term {
  const char* name;
  double StepSeconds::*seconds;
};
constexpr std::array<Term, 6> kTerms = {{{"compute", &StepSeconds::compute},
                                         {"exposed_tp", &StepSeconds::exposed_tp},
                                         {"exposed_pp", &StepSeconds::exposed_pp},
                                         {"exposed_dp", &StepSeconds::exposed_dp},
                                         {"bubble", &StepSeconds::bubble},
                                         {"optimizer", &StepSeconds::optimizer}}};

double tokens_of_step(const Prediction& p) { return p.tokens_per_s * p.step_s; }

// Device-seconds of a token.
double spent(const ScaleRow& row, double seconds) {
  return seconds * static_cast<double>(row.devices) / tokens_of_step(*row.plan);
}

std::vector<ScaleLoss> losses(const ScaleRow& best, const ScaleRow& row) {
  const double lost = spent(row, row.plan->time.total()) - spent(best, best.plan->time.total());
  std::vector<ScaleLoss> loss;
  if (lost <= 0) return loss;
  for (const Term& term : kTerms) {
    const double more = spent(row, row.plan->time.*term.seconds) - spent(best, best.plan->time.*term.seconds);
    loss.push_back({.term = term.name, .share = more / lost});
  }
  std::stable_sort(loss.begin(), loss.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  return loss;
}

}  // namespace

std::vector<int64_t> parse_node_list(const std::string& text) {
  std::vector<int64_t> nodes;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    at = comma + 1;
    const size_t dots = item.find("..");
    const int64_t first = parse_nodes(item.substr(0, dots), text),
                  last = dots == std::string::npos ? first : parse_nodes(item.substr(dots + 2), text);
    if (last < first) fail(ErrorKind::usage, "--nodes: expected FIRST..LAST with FIRST <= LAST, found \"{}\"", item);
    for (int64_t n = first; n <= last; n *= 2) nodes.push_back(n);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

void analyse_scaling(ScaleAnswer& answer) {
  const ScaleRow* best = nullptr;
  for (const ScaleRow& row : answer.rows)
    if (row.plan && (best == nullptr || spent(row, row.plan->step_s) < spent(*best, best->plan->step_s))) best = &row;
  if (best == nullptr) return;
  answer.best_nodes = best->nodes;
  const ScaleRow* bend = nullptr;
  std::vector<ScalingPoint> points;
  for (ScaleRow& row : answer.rows) {
    if (!row.plan) continue;
    row.efficiency = spent(*best, best->plan->step_s) / spent(row, row.plan->step_s);
    if (row.nodes < best->nodes) continue;
    points.push_back({.n = static_cast<double>(row.nodes), .seconds = 1 / row.plan->tokens_per_s, .weight = 1});
    if (answer.below_80 == 0) bend = &row;
    if (row.efficiency < 0.8 && answer.below_80 == 0) answer.below_80 = row.nodes;
    if (row.efficiency < 0.5 && answer.below_50 == 0) answer.below_50 = row.nodes;
  }
  if (points.size() >= 3) answer.fit = fit_scaling(points);
  answer.loss = losses(*best, *bend);
  if (!answer.loss.empty()) answer.bends_at = bend->nodes;
}

ScaleAnswer scale_plans(const ScaleQuestion& question, const std::function<void(int64_t nodes)>& progress) {
  ScaleAnswer answer;
  size_t refused = 0;  // sizes that the batch or the pins cannot be split over: others may do
  for (const int64_t nodes : question.nodes) {
    progress(nodes);
    PlanSpec spec = question.spec;
    spec.nodes = nodes;
    ClusterSpec cluster = load_cluster_spec(spec.cluster);
    set_node_count(cluster, nodes);
    ScaleRow row{.nodes = nodes,
                 .devices = cluster.device_count(),
                 .global_batch = spec.global_batch,
                 .plan = {},
                 .nothing = {}};
    if (question.batch_per_device > 0) row.global_batch = spec.global_batch = question.batch_per_device * row.devices;
    const PlanInputs inputs(spec);
    try {
      PlanAnswer found = search_plans(inputs.question(), 1);
      if (!found.plans.empty()) row.plan = found.plans.front();
      else row.nothing = found.nothing_fits;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::usage) throw;
      row.nothing = e.what();
      ++refused;
      if (refused == question.nodes.size()) throw;  // not this size is at fault
    }
    answer.rows.push_back(std::move(row));
  }
  analyse_scaling(answer);
  return answer;
}

}  // namespace rw
