// Predictions beside published training runs, as JSON; with --fit also the calibration that fits them best. See
// docs/planner_accuracy.md.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/plan/published/published_memory.h"
#include "libcore/plan/published/published_score.h"

using namespace rw;

namespace {

constexpr double kFar = 0.25;

// What is known about rows that are predicted worst, by line of the table.
struct Known {
  int64_t line;
  const char* reason;
};
constexpr Known kReasons[] = {
    {260,
     "nanotron, 1.3B parameters over 512 GPUs: 5 % of the peak. A step of one micro-batch takes 0.38 s, twice what "
     "its products, bytes and collectives need: the host's launches and hundreds of collectives a tensor each"},
    {263,
     "nanotron, tp 16: the group crosses nodes, and its NICs are shared with the data-parallel traffic of other "
     "groups; the source's other run with tp 16 is 18 % slower than predicted too"},
    {266,
     "nanotron, ZeRO-0 at one micro-batch: half of the gradients' time seems to be hidden, which its traits deny; "
     "the source's runs on half as many GPUs say the opposite"},
    {279,
     "nanotron, 80B on 32 GPUs: half the speed of the same model and software on 64 (line 275), no cause given; 66 "
     "of 80 GiB are tensors, near where the allocator begins to retry"},
};

Json summary_json(const std::vector<double>& errors) {
  const ErrorSummary s = summarise(errors);
  const auto percent = [](double share) { return std::round(1e4 * share) / 100; };
  return {{"rows", s.n},
          {"median_percent", percent(s.median)},
          {"mean_percent", percent(s.mean)},
          {"p90_percent", percent(s.p90)},
          {"worst_percent", percent(s.worst)},
          {"bias_percent", percent(s.bias)}};
}

std::vector<double> values(const std::vector<PublishedError>& errors) {
  std::vector<double> all;
  for (const PublishedError& e : errors) all.push_back(e.error());
  return all;
}

Json numbers_json(const PublishedNumbers& numbers) {
  Json devices = Json::object(), trainers = Json::object();
  for (const auto& [name, d] : numbers.devices)
    devices[name] = {{"gemm-fraction", d.gemm_fraction},
                     {"attention-fraction", d.attention_fraction},
                     {"memory-fraction", d.memory_fraction},
                     {"overlap", d.overlap},
                     {"misaligned-fraction", d.misaligned_fraction}};
  for (const auto& [name, t] : numbers.trainers)
    trainers[name] = {{"compute-factor", t.compute_factor}, {"communication-factor", t.communication_factor}};
  return {{"devices", devices}, {"trainers", trainers}};
}

Json accuracy_json(const std::vector<PublishedError>& errors) {
  Json by_source = Json::object(), far = Json::array(), order = Json::object();
  for (const auto& [source, of] : errors_by_source(errors)) by_source[source] = summary_json(of);
  for (const PublishedError& e : errors) {
    if (std::fabs(e.error()) <= kFar) continue;
    const char* reason = "";
    for (const Known& k : kReasons)
      if (k.line == e.row->line) reason = k.reason;
    far.push_back({{"line", e.row->line},
                   {"source", e.row->source},
                   {"model", e.row->model_name},
                   {"layout", e.row->layout.text()},
                   {"measured_s", e.row->step_s},
                   {"predicted_s", e.predicted.total()},
                   {"error_percent", 100 * e.error()},
                   {"reason", reason}});
  }
  double sum = 0;
  const auto taus = order_by_group(errors);
  for (const auto& [group, tau] : taus) order[group] = tau, sum += tau;
  return {{"all", summary_json(values(errors))},
          {"by_source", by_source},
          {"kendall_tau", {{"mean", sum / static_cast<double>(taus.size())}, {"groups", order}}},
          {"beyond_25_percent", far}};
}

Json exclusions_json(const std::vector<PublishedRow>& rows) {
  Json reasons = Json::object();
  for (const PublishedRow& row : rows)
    if (!row.excluded.empty()) reasons[row.excluded] = reasons.value(row.excluded, 0) + 1;
  return reasons;
}

// A source's rows, predicted with a calibration that has not seen them: with its trainer's numbers where other sources
// have the trainer (else 1), and with two numbers of its own.
Json left_out_json(const PublishedPricer& pricer, const std::vector<const PublishedRow*>& used,
                   const PublishedNumbers& shipped) {
  std::set<std::string> sources;
  for (const PublishedRow* row : used) sources.insert(source_of(*row));
  Json all = Json::object();
  for (const std::string& source : sources) {
    std::vector<const PublishedRow*> rest, own;
    std::set<std::string> known;
    for (const PublishedRow* row : used) {
      (source_of(*row) == source ? own : rest).push_back(row);
      if (source_of(*row) != source) known.insert(row->numbers);
    }
    PublishedNumbers numbers = fit_published(pricer, rest, shipped).numbers;
    bool trainer_is_known = true;
    for (const PublishedRow* row : own)
      if (!known.contains(row->numbers)) numbers.trainers[row->numbers] = {1, 1}, trainer_is_known = false;
    const PublishedNumbers refit = fit_published(pricer, own, numbers, FitScope::trainers).numbers;
    all[source] = {{"trainer_elsewhere", trainer_is_known},
                   {"unseen", summary_json(values(published_errors(pricer, own, numbers)))},
                   {"unseen_but_two_numbers", summary_json(values(published_errors(pricer, own, refit)))}};
  }
  return all;
}

Json memory_json(const std::string& table) {
  std::map<std::string, std::vector<double>> by_trainer;
  std::vector<double> all;
  Json died = Json::array(), reasons = Json::object();
  for (const PublishedMemory& row : published_memory(table)) {
    if (!row.excluded.empty()) {
      reasons[row.excluded] = reasons.value(row.excluded, 0) + 1;
    } else if (row.out_of_memory()) {
      // All of them ran on 80 GiB.
      died.push_back({{"line", row.line}, {"predicted_gib", row.predicted}, {"over_the_device", row.predicted > 80}});
    } else {
      all.push_back(row.predicted / row.reported - 1);
      by_trainer[row.trainer].push_back(all.back());
    }
  }
  Json trainers = Json::object();
  for (const auto& [name, errors] : by_trainer) trainers[name] = summary_json(errors);
  return {{"all", summary_json(all)}, {"by_trainer", trainers}, {"out_of_memory", died}, {"excluded", reasons}};
}

struct Flags {
  std::string table, dplan;
  bool fit = false, left_out = true;
};

// Seconds and peak memory of a command of dplan, its output thrown away.
Json timed(const Flags& flags, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), flags.dplan);
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child < 0) fail(ErrorKind::runtime, "fork: {}", std::strerror(errno));
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(127);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) < 0) fail(ErrorKind::runtime, "wait4: {}", std::strerror(errno));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail(ErrorKind::runtime, "{} failed with status {}; expected a plan", arguments[0], status);
  std::string command;
  for (size_t i = 1; i < arguments.size(); ++i) command += (i == 1 ? "" : " ") + arguments[i];
  return {{"command", "dplan " + command},
          {"seconds", took.count()},
          {"peak_mib", static_cast<double>(usage.ru_maxrss) / 1024}};
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--fit") flags.fit = true;
    else if (flag == "--no-left-out") flags.left_out = false;
    else if (flag == "--dplan" && i + 1 < argc) flags.dplan = argv[++i];
    else if (flags.table.empty() && flag[0] != '-') flags.table = flag;
    else
      fail(ErrorKind::usage, "planner_bench: expected TABLE.csv [--fit] [--no-left-out] [--dplan PATH], found {}",
           flag);
  }
  if (flags.table.empty()) fail(ErrorKind::usage, "planner_bench: expected the table of published runs");
  return flags;
}

Json run(const Flags& flags) {
  const std::vector<PublishedRow> rows = published_rows(flags.table);
  const std::vector<const PublishedRow*> used = used_rows(rows);
  const PublishedPricer pricer(rows);
  const PublishedNumbers shipped = shipped_numbers(rows);
  Json report = {{"benchmark", "planner"}, {"step_time", accuracy_json(published_errors(pricer, used, shipped))}};
  report["excluded"] = exclusions_json(rows);
  report["numbers"] = numbers_json(shipped);
  if (flags.fit) {
    const PublishedFit fit = fit_published(pricer, used, shipped);
    report["fit"] = {{"cost_before", fit.cost_before},
                     {"cost", fit.cost},
                     {"numbers", numbers_json(fit.numbers)},
                     {"step_time", accuracy_json(published_errors(pricer, used, fit.numbers))}};
  }
  if (flags.left_out) report["left_out"] = left_out_json(pricer, used, shipped);
  report["memory"] = memory_json(flags.table);
  if (!flags.dplan.empty())
    report["speed"] = {timed(flags, {"train", "--model", "llama-3.1-405b", "--cluster", "h100-sxm", "--nodes", "2048",
                                     "--global-batch", "2048", "--seq-len", "8192"}),
                       timed(flags, {"train", "--model", "gpt-1t", "--cluster", "h100-sxm", "--nodes", "16384",
                                     "--global-batch", "16384", "--seq-len", "2048"})};
  return report;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::printf("%s\n", run(parse(argc, argv)).dump(2).c_str());
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.kind() == ErrorKind::usage ? 2 : 1;
  }
}
