// How often `dbench compare` is wrong: false alarms on pairs of measurements of the same thing, planted changes that it
// finds. A table on standard error, one JSON object on standard output; docs/benchmarks_ci.md explains the numbers.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/bench/record/statistics.h"

using namespace rw;

namespace {

enum class Noise { normal, lognormal, heavy_tailed, drifting, bimodal };
constexpr Noise kNoises[] = {Noise::normal, Noise::lognormal, Noise::heavy_tailed, Noise::drifting, Noise::bimodal};
const char* noise_name(Noise noise) {
  constexpr const char* kNames[] = {"normal", "lognormal", "heavy-tailed", "drifting", "bimodal"};
  return kNames[static_cast<size_t>(noise)];
}

struct Pair {
  std::vector<double> base, now;
};

struct Plan {
  Noise noise = Noise::normal;
  double cv = 0.03, slowdown = 0;
  int64_t n = 10;
  bool by_turns = true;  // base, new, base, new; else all of base first
};

// `position`: of the whole time of measuring, 0 to 1.
double draw(const Plan& plan, double position, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const double z = normal(random), cv = plan.cv;
  switch (plan.noise) {
    case Noise::normal: return std::max(0.01, 1 + cv * z);
    case Noise::lognormal: return std::exp(cv * z);
    case Noise::heavy_tailed: return 1 + cv * std::abs(std::student_t_distribution<double>(2)(random));
    case Noise::drifting: return std::max(0.01, 1 + cv * z + 3 * cv * position);
    case Noise::bimodal:
      return std::max(0.01, 1 + 0.3 * cv * z + (std::bernoulli_distribution(0.3)(random) ? 3 * cv : 0));
  }
  std::abort();
}

Pair draw_pair(const Plan& plan, std::mt19937_64& random) {
  Pair pair;
  const double all = static_cast<double>(2 * plan.n);
  for (int64_t i = 0; i < plan.n; ++i) {
    const double at = static_cast<double>(i);
    pair.base.push_back(draw(plan, (plan.by_turns ? 2 * at : at) / all, random));
    pair.now.push_back(draw(plan, (plan.by_turns ? 2 * at + 1 : at + static_cast<double>(plan.n)) / all, random) *
                       (1 + plan.slowdown));
  }
  return pair;
}

struct Tally {
  int64_t n = 0, better = 0, same = 0, worse = 0, too_noisy = 0;
  void add(ChangeVerdict v) {
    ++n;
    ++(v == ChangeVerdict::better  ? better
       : v == ChangeVerdict::same  ? same
       : v == ChangeVerdict::worse ? worse
                                   : too_noisy);
  }
  void add(const Tally& t) { n += t.n, better += t.better, same += t.same, worse += t.worse, too_noisy += t.too_noisy; }
  double percent(int64_t count) const {
    return 100 * static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, n));
  }
  Json json() const {
    return {{"n", n}, {"worse", worse}, {"better", better}, {"same", same}, {"too_noisy", too_noisy}};
  }
};

Change judge(const Pair& pair, bool paired, uint64_t seed) {
  ChangeQuestion question;
  question.base = pair.base;
  question.now = pair.now;
  question.paired = paired;
  question.seed = seed;
  return judge_change(question);
}

class Report {
 public:
  explicit Report(int64_t trials) : trials_(trials) {}
  void head(const std::string& title) {
    fmt::print(stderr, "\n{}\n{:<44} {:>6} {:>8} {:>8} {:>8} {:>10}\n", title, "", "n", "worse %", "better %", "same %",
               "too noisy %");
  }
  void row(const std::string& section, const std::string& name, const Tally& t, Json facts = Json::object()) {
    fmt::print(stderr, "{:<44} {:>6} {:>8.1f} {:>8.1f} {:>8.1f} {:>10.1f}\n", name, t.n, t.percent(t.worse),
               t.percent(t.better), t.percent(t.same), t.percent(t.too_noisy));
    facts["name"] = name;
    facts.update(t.json());
    out_[section].push_back(std::move(facts));
  }
  Tally trials_of(const Plan& plan, bool paired, uint64_t seed) const {
    std::mt19937_64 random(seed);
    Tally tally;
    for (int64_t i = 0; i < trials_; ++i)
      tally.add(judge(draw_pair(plan, random), paired, static_cast<uint64_t>(i)).verdict);
    return tally;
  }
  int64_t trials() const { return trials_; }
  Json& json() { return out_; }

 private:
  int64_t trials_;
  Json out_ = Json::object();
};

using Series = std::map<std::string, std::map<int64_t, std::vector<double>>>;  // job -> run -> step_s

Series read_series(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorKind::input, "{}: cannot be read", path);
  Series series;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line.starts_with("job,")) continue;
    std::istringstream cells(line);
    std::string job, run, step, seconds;
    if (!std::getline(cells, job, ',') || !std::getline(cells, run, ',') || !std::getline(cells, step, ',') ||
        !std::getline(cells, seconds))
      fail(ErrorKind::input, "{}: expected job,run,step,step_s, found {}", path, line);
    series[job][std::stoll(run)].push_back(std::stod(seconds));
  }
  return series;
}

// The 200 pairs of the same thing: 160 synthetic, 32 of each noise with 3 to 20 samples and 0.5 to 10 % of noise, half
// of them paired; 40 cut from recorded runs.
Tally synthetic_pairs(Report& report) {
  constexpr int64_t kSizes[] = {3, 5, 7, 10, 20};
  constexpr double kCvs[] = {0.005, 0.01, 0.03, 0.1};
  std::mt19937_64 random(160);
  Tally all;
  for (const Noise noise : kNoises) {
    Tally tally;
    for (size_t i = 0; i < 32; ++i)
      tally.add(
          judge(draw_pair({.noise = noise, .cv = kCvs[(i / 2) % 4], .n = kSizes[(i / 2) % 5]}, random), i % 2 == 0, i)
              .verdict);
    report.row("same_thing", std::string("synthetic, ") + noise_name(noise), tally);
    all.add(tally);
  }
  return all;
}

Tally recorded_pairs(Report& report, const Series& series) {
  Tally all;
  for (const auto& [job, runs] : series) {
    Tally turns, blocks, medians;
    std::vector<double> median;
    for (const auto& [run, steps] : runs) median.push_back(quantile_of(steps, 0.5));
    int64_t k = 0;
    for (auto it = runs.begin(); k < 16; ++it, ++k) {
      Pair pair;
      const std::vector<double>& steps = it->second;
      for (size_t i = 0; i + 1 < steps.size(); i += 2) {
        pair.base.push_back(steps[k < 8 ? i : i / 2]);
        pair.now.push_back(steps[k < 8 ? i + 1 : steps.size() / 2 + i / 2]);
      }
      (k < 8 ? turns : blocks).add(judge(pair, k < 8, static_cast<uint64_t>(k)).verdict);
    }
    // Runs as samples: six by turns with six others, from four places.
    for (size_t i = 0; i < 4; ++i) {
      Pair pair;
      for (size_t r = 4 * i; r < 4 * i + 12; r += 2) {
        pair.base.push_back(median[r]);
        pair.now.push_back(median[r + 1]);
      }
      medians.add(judge(pair, i % 2 == 0, i).verdict);
    }
    report.row("same_thing", "recorded " + job + ", steps by turns", turns);
    report.row("same_thing", "recorded " + job + ", ten steps, then ten", blocks);
    report.row("same_thing", "recorded " + job + ", medians of runs by turns", medians);
    for (const Tally* t : {&turns, &blocks, &medians}) all.add(*t);
  }
  return all;
}

void more_synthetic(Report& report) {
  report.head(fmt::format("the same thing, {} draws a row (10 samples a side, 3 %)", report.trials()));
  for (const Noise noise : kNoises)
    for (const bool paired : {true, false})
      report.row("same_thing_drawn", fmt::format("{}, {}", noise_name(noise), paired ? "paired" : "not paired"),
                 report.trials_of({.noise = noise}, paired, 7));
  report.row("same_thing_drawn", "drifting, all of base first",
             report.trials_of({.noise = Noise::drifting, .by_turns = false}, false, 7));
}

void planted(Report& report) {
  for (const double slowdown : {0.0, 0.02, 0.05, 0.1}) {
    report.head(fmt::format("planted: {:g} % slower, threshold 5 %, noise 3 %", 100 * slowdown));
    for (const bool paired : {true, false})
      for (const int64_t n : {2, 3, 5, 7, 10, 20})
        report.row("planted", fmt::format("{} {}", n, paired ? "pairs" : "samples a side"),
                   report.trials_of({.slowdown = slowdown, .n = n}, paired, 11),
                   {{"samples", n}, {"paired", paired}, {"slowdown", slowdown}, {"cv", 0.03}});
  }
  report.head("planted: 5 % slower, threshold 5 %, not paired, by noise");
  for (const double cv : {0.01, 0.02, 0.05, 0.1})
    for (const int64_t n : {3, 5, 10, 20, 40})
      report.row("planted", fmt::format("noise {:g} %, {} samples a side", 100 * cv, n),
                 report.trials_of({.cv = cv, .slowdown = 0.05, .n = n}, false, 13),
                 {{"samples", n}, {"paired", false}, {"slowdown", 0.05}, {"cv", cv}});
}

// Files of 200 metrics: how many files have an alarm, with and without the control of false discoveries.
void many_metrics(Report& report) {
  constexpr int64_t kMetrics = 200;
  const int64_t files = std::max<int64_t>(10, report.trials() / 10);
  std::mt19937_64 random(17);
  int64_t alarmed = 0, alarmed_alone = 0;
  for (int64_t f = 0; f < files; ++f) {
    std::vector<double> p;
    std::vector<bool> worse;
    for (int64_t m = 0; m < kMetrics; ++m) {
      const Change c = judge(draw_pair({.n = 5}, random), false, static_cast<uint64_t>(m));
      p.push_back(c.p_worse);
      worse.push_back(c.verdict == ChangeVerdict::worse);
    }
    const std::vector<bool> real = control_false_discoveries(p, 0.05);
    bool any = false, any_alone = false;
    for (size_t m = 0; m < p.size(); ++m) any = any || (worse[m] && real[m]), any_alone = any_alone || worse[m];
    alarmed += any;
    alarmed_alone += any_alone;
  }
  fmt::print(stderr,
             "\n{} files of {} unchanged metrics (5 samples a side, 3 %): {} alarm; {} would without the control\n",
             files, kMetrics, alarmed, alarmed_alone);
  report.json()["many_metrics"] = {
      {"files", files}, {"metrics", kMetrics}, {"alarms", alarmed}, {"alarms_without_control", alarmed_alone}};
}

int run(const std::string& series_path, int64_t trials) {
  Report report(trials);
  report.head("the same thing twice: 200 pairs");
  Tally all = synthetic_pairs(report);
  all.add(recorded_pairs(report, read_series(series_path)));
  report.row("same_thing", "all", all);
  more_synthetic(report);
  planted(report);
  many_metrics(report);
  Tally found;  // of the bound there have to be enough: 4 times as many
  for (const uint64_t seed : {19, 20, 21, 22}) found.add(report.trials_of({.slowdown = 0.05, .n = 10}, true, seed));
  const double false_alarms = all.percent(all.worse), power = found.percent(found.worse);
  fmt::print(stderr,
             "\nfalse alarms {:.1f} % of {} pairs (at most 5 %); 5 % slowdown found {:.1f} % of {} times by 10 pairs "
             "(90 % or more)\n",
             false_alarms, all.n, power, found.n);
  report.json()["false_alarm_percent"] = false_alarms;
  report.json()["found_percent"] = power;
  fmt::print("{}\n", report.json().dump());
  return false_alarms <= 5 && power >= 90 ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) fail(ErrorKind::usage, "usage: compare_bench SERIES.csv [TRIALS]");
    return run(argv[1], argc > 2 ? std::stoll(argv[2]) : 1000);
  } catch (const Error& e) {
    fmt::print(stderr, "compare_bench: error: {}\n", e.what());
    return exit_code(e.kind());
  }
}
