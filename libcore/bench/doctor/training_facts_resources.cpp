// Resources: CPUs that others use, slow ranks, memory, swap.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "libcore/base/median.h"
#include "libcore/base/units.h"
#include "libcore/bench/doctor/training_facts.h"

namespace rw {
namespace {

constexpr double kBusy = 0.9;      // of a host's CPU time: below, nobody waits for a CPU for long
constexpr double kFewThreads = 6;  // of others, seen in all samples together
constexpr double kThreadsAtOnce = 0.75;
constexpr size_t kFewSamples = 3;   // of a host; fewer say nothing
constexpr double kDriftSteps = 30;  // settled steps, at least, to speak of a trend
constexpr double kSlower = 1.3;     // times the peers' median: less is the noise of a host
constexpr double kLostShare = 0.2;  // of the time that all ranks lose to one
constexpr double kMostOfIt = 0.75;  // of what is lost to slow ranks
constexpr size_t kFewSlowSteps = 8;
constexpr double kSmallLeak = 64e6;  // bytes; buffers and caches that fill up once
constexpr const char* kWhere = "resources.jsonl";

double compute_s(const StepRecord& s) { return s.second(TimeCategory::compute); }

std::vector<double> of_host(const RunView& view, const std::string& host, const char* path) {
  std::vector<double> out;
  for (size_t i = 0; i < view.resources.size(); ++i)
    if (view.run.resources[i].host == host)
      if (const double v = view.resources[i].number(path); std::isfinite(v)) out.push_back(v);
  return out;
}

void set_if_more(Facts& facts, const char* name, const Fact& fact) {
  const Fact* known = facts.find(name);
  if (known == nullptr || fact.value > known->value) facts.set(name, fact);
}

// Threads that want a CPU beyond this run's own and the recording thread: in most samples, while no CPU is idle.
void collect_cpu(const RunView& view, const std::string& host, Facts& facts) {
  const double threads = view.identity.number("threads_per_rank");
  const auto ranks = std::count(view.hosts.begin(), view.hosts.end(), host);
  const double own = ranks > 0 && std::isfinite(threads) ? static_cast<double>(ranks) * threads : std::nan("");
  const std::vector<double> cpus = of_host(view, host, "cpu.cpus");
  if (!cpus.empty() && own > cpus.front())
    set_if_more(
        facts, "cpu.oversubscribed",
        {own / cpus.front(), fmt::format("{} threads of {} ranks on {} CPUs of {}", own, ranks, cpus.front(), host),
         "run.json, resources.jsonl"});
  int64_t n = 0, n_crowded = 0;
  double others = 0, busy = 0;
  for (size_t i = 0; i < view.resources.size(); ++i) {
    if (view.run.resources[i].host != host) continue;
    const double queue = view.resources[i].number("run_queue"), b = view.resources[i].number("cpu.busy");
    if (!std::isfinite(queue) || !std::isfinite(b) || !std::isfinite(own)) continue;
    ++n;
    busy += b;
    const double extra = queue - 1 - own;  // 1: the thread that counts
    if (b < kBusy || extra < 1) continue;
    ++n_crowded;
    others += extra;
  }
  if (n > 0) facts.set("cpu.busy", {busy / static_cast<double>(n), host, kWhere});
  // One thread more at a moment may be a helper of this run's own.
  const bool is_much = others >= kFewThreads && others >= kThreadsAtOnce * static_cast<double>(n);
  if (n_crowded >= static_cast<int64_t>(kFewSamples) && is_much) {
    set_if_more(facts, "cpu.crowded_share", {static_cast<double>(n_crowded) / static_cast<double>(n), host, kWhere});
    set_if_more(facts, "cpu.other_threads",
                {others / static_cast<double>(n_crowded), host, "resources.jsonl (run_queue)"});
  }
  if (const std::vector<double> steal = of_host(view, host, "cpu.steal"); steal.size() >= kFewSamples)
    set_if_more(facts, "cpu.steal", {median(steal), host, kWhere});
  const std::vector<double> clock = of_host(view, host, "clock_mhz.mean");
  if (clock.size() < 3 * kFewSamples) return;
  const size_t third = clock.size() / 3;
  const double early = *std::max_element(clock.begin(), clock.begin() + static_cast<std::ptrdiff_t>(third));
  const double late = median(std::vector<double>(clock.end() - static_cast<std::ptrdiff_t>(third), clock.end()));
  if (early > 0) set_if_more(facts, "cpu.clock_drop", {1 - late / early, host, "resources.jsonl (clock_mhz)"});
}

void collect_memory(const RunView& view, const std::string& host, Facts& facts) {
  const std::vector<double> total = of_host(view, host, "memory_bytes.total"),
                            available = of_host(view, host, "memory_bytes.available"),
                            swap = of_host(view, host, "memory_bytes.swap_used");
  if (!total.empty() && !available.empty() && total.front() > 0) {
    const double least = *std::min_element(available.begin(), available.end());
    set_if_more(facts, "memory.used_share", {1 - least / total.front(), host, "resources.jsonl (memory_bytes)"});
  }
  if (swap.size() >= kFewSamples)
    set_if_more(facts, "memory.swap_growth", {swap.back() - swap.front(), host, "resources.jsonl (memory_bytes)"});
  std::vector<double> resident;
  int64_t pid_sum = 0;
  for (size_t i = 0; i < view.resources.size(); ++i) {
    if (view.run.resources[i].host != host) continue;
    // After a resume the processes are others, and begin anew.
    int64_t pids = 0;
    double sum = 0;
    for (const auto& [path, v] : view.resources[i].numbers)
      if (path.starts_with("resident_bytes.")) pids += std::atoll(path.c_str() + 15), sum += v;
    if (pids != pid_sum) resident.clear(), pid_sum = pids;
    if (pids != 0) resident.push_back(sum);
  }
  if (resident.size() < 12) return;
  const std::span<const double> settled = std::span(resident).subspan(resident.size() / 3);
  const double slope = robust_slope(settled), growth = slope * static_cast<double>(settled.size() - 1);
  // Steady: every third of the time adds its part.
  const size_t third = settled.size() / 3;
  const double first = settled[third] - settled[0], second = settled[2 * third] - settled[third],
               last = settled.back() - settled[2 * third];
  const bool is_steady = std::min({first, second, last}) > 0.15 * (settled.back() - settled[0]);
  if (growth > kSmallLeak && is_steady)
    set_if_more(facts, "memory.leak_share",
                {growth / settled[0], fmt::format("{} more on {}", format_bytes(growth), host),
                 "resources.jsonl (resident_bytes)"});
}

void collect_stragglers(const RunView& view, Facts& facts) {
  std::map<double, int64_t> times;
  for (size_t i = 0; i < view.events.size(); ++i) {
    const FlatRecord& e = view.events[i];
    if (e.word("event") != "straggler") continue;
    const double rank = e.number("rank"), mine = e.number("compute_s"), peers = e.number("peers_s");
    if (!std::isfinite(rank)) continue;
    ++times[rank];
    const double ratio = peers > 0 ? mine / peers : std::nan("");
    const Fact* known = facts.find("rank.slow");
    if (known == nullptr || !(known->value > ratio))
      facts.set("rank.slow", {ratio, fmt::format("rank {} on host {}", rank, e.word("host")),
                              fmt::format("events.jsonl (straggler), step {}", view.run.events[i].step)});
  }
  if (!times.empty()) facts.set("rank.slow_ranks", {static_cast<double>(times.size()), "", "events.jsonl (straggler)"});
}

// A rank that is slow again and again, though not in every step: what all of them lose by it.
void collect_slow_again(const RunView& view, Facts& facts) {
  struct Slow {
    double lost_s = 0, seconds = 0, peers_s = 0;
    size_t n = 0;
  };
  std::map<double, Slow> slow;
  double total = 0, lost = 0;
  for (const StepRecord* s : view.settled) {
    if (s->step_s > 0) total += s->step_s;
    if (!std::isfinite(s->slowest_rank) || !(s->slowest_s > kSlower * s->slowest_peers_s)) continue;
    Slow& r = slow[s->slowest_rank];
    ++r.n;
    r.lost_s += s->slowest_s - s->slowest_peers_s;
    lost += s->slowest_s - s->slowest_peers_s;
    r.seconds += s->slowest_s;
    r.peers_s += s->slowest_peers_s;
  }
  if (slow.empty() || facts.find("rank.slow") != nullptr) return;
  const auto& [rank, r] = *std::max_element(
      slow.begin(), slow.end(), [](const auto& a, const auto& b) { return a.second.lost_s < b.second.lost_s; });
  // Where all ranks are slow in turn, it is none of them.
  if (r.n < kFewSlowSteps || r.lost_s < kLostShare * total || r.lost_s < kMostOfIt * lost) return;
  const auto at = static_cast<size_t>(rank);
  facts.set("rank.slow",
            {r.seconds / r.peers_s,
             fmt::format("rank {}{} (in {} of {} steps)", rank,
                         at < view.hosts.size() ? " on host " + view.hosts[at] : "", r.n, view.settled.size()),
             steps_text(view) + " (slowest)"});
}

// Compute seconds of the same work, late against early: since the last resume, which may have changed the work.
void collect_drift(const RunView& view, Facts& facts) {
  int64_t resumed = -1;
  for (const EventRecord& e : view.run.events)
    if (e.event == "resume") resumed = e.step;
  std::vector<const StepRecord*> since;
  for (const StepRecord* s : view.settled)
    if (s->step > resumed) since.push_back(s);
  const std::vector<double> c = values_of(since, compute_s);
  if (static_cast<double>(c.size()) < kDriftSteps) return;
  const size_t part = c.size() / 4;
  const auto part_median = [&](size_t k) {
    const auto from = c.begin() + static_cast<std::ptrdiff_t>(k * part);
    return median(std::vector<double>(from, from + static_cast<std::ptrdiff_t>(part)));
  };
  // Once slow it stays so: a burst in the middle is no drift.
  const double early = std::max(part_median(0), part_median(1)), late = std::min(part_median(2), part_median(3));
  if (early > 0) facts.set("compute.drift", {late / early, "", steps_text(view)});
}

void collect_replicas(const RunView& view, Facts& facts) {
  for (const FlatRecord& e : view.events)
    if (e.word("event") == "replica_check" && e.number("equal") == 0)
      facts.set("rank.differs", {e.number("step"), e.word("difference"), "events.jsonl (replica_check)"});
}

}  // namespace

void collect_resource_facts(const RunView& view, Facts& facts) {
  std::set<std::string> hosts;
  for (const ResourceRecord& r : view.run.resources) hosts.insert(r.host);
  for (const std::string& host : hosts) collect_cpu(view, host, facts), collect_memory(view, host, facts);
  // Ranks that wait for a CPU make the others wait for them: what communication takes says little then.
  if (const Fact* share = facts.find("cpu.crowded_share"); share != nullptr && share->value > 0.3)
    facts.set("cpu.crowded", *share);
  collect_stragglers(view, facts);
  collect_slow_again(view, facts);
  collect_drift(view, facts);
  collect_replicas(view, facts);
}

}  // namespace rw
