#include "libcore/bench/preflight/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/bench/preflight/host_probe.h"
#include "libcore/bench/preflight/judge.h"
#include "libcore/plan/measure/cpu_training_ops.h"

namespace rw {
namespace {

constexpr int kPings = 20, kTag = 2;
constexpr int64_t kMostAlone = 28;  // pairs that are measured one after another: 8 ranks

double wall_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string stat_text() {
  std::error_code none;
  return std::filesystem::exists("/proc/stat", none) ? read_file("/proc/stat") : "";
}

// The best of several: what comes and goes is told by the load, a host that is slow is so every time.
double measure_gemm(Comm& comm, double seconds) {
  constexpr int kBlocks = 5;
  constexpr int64_t kSize = 256;
  double best = 0;
  for (int i = 0; i < kBlocks; ++i) {
    comm.barrier();
    best = std::max(best, linear_layer_flops({.t = DType::f32, .threads = 1, .seconds = seconds / kBlocks}, kSize));
  }
  return best * 1e-9;
}

bool takes_rounds(const PreflightSpec& spec, int ranks) {
  if (spec.pairs != "auto") return spec.pairs == "rounds";
  return int64_t{ranks} * (ranks - 1) / 2 > kMostAlone;
}

// Each rank waits for every other, so that all name the one that does not come, rather than one that waits for it.
void meet(Comm& comm) {
  const char here = 1;
  std::vector<char> there(static_cast<size_t>(comm.size()));
  std::vector<Request> sent;
  for (int r = 0; r < comm.size(); ++r)
    if (r != comm.rank()) sent.push_back(comm.send_start(&here, 1, r, kTag));
  for (int r = 0; r < comm.size(); ++r)
    if (r != comm.rank()) comm.recv(&there[static_cast<size_t>(r)], 1, r, kTag);
  for (const Request request : sent) comm.wait(request);
}

}  // namespace

FieldList fields(PreflightSpec& s) {
  FieldList list = {
      {.name = "out", .value = &s.out, .help = "folder that the run will write to; made when it is not there"},
      {.name = "pairs",
       .value = &s.pairs,
       .help = "measure pairs of ranks alone, or in rounds at the same time; auto: alone up to 8 ranks",
       .choices = {"auto", "alone", "rounds"}},
      {.name = "pair-bytes",
       .value = &s.pair_bytes,
       .help = "of the messages that give a pair's bandwidth",
       .min = 1,
       .is_size = true},
      {.name = "seconds", .value = &s.seconds, .help = "of matrix products on every rank", .min = 0, .max = 600},
      {.name = "resolve-timeout",
       .value = &s.resolve_timeout,
       .help = "seconds to wait for the addresses of the hosts' names",
       .min = 0.01,
       .max = 3600},
      {.name = "comm-timeout", .value = &s.comm_timeout, .help = "seconds to wait for a rank", .min = 0.001},
  };
  for (Field& field : fields(s.needs)) list.push_back(std::move(field));
  return list;
}

ClockOffset measure_clock(Comm& comm) {
  std::vector<double> mine(2, 0);
  for (int r = 1; r < comm.size(); ++r) {
    if (comm.rank() != 0 && comm.rank() != r) continue;
    double theirs = 0;
    ClockOffset best{.offset_s = 0, .round_trip_s = 1e9};
    for (int i = 0; i < kPings; ++i) {
      if (comm.rank() == r) {
        comm.recv(&theirs, sizeof theirs, 0, kTag);
        theirs = wall_s();
        comm.send(&theirs, sizeof theirs, 0, kTag);
        continue;
      }
      const double before = wall_s(), start = now_s();
      comm.send(&before, sizeof before, r, kTag);
      comm.recv(&theirs, sizeof theirs, r, kTag);
      const double trip = now_s() - start;
      if (trip < best.round_trip_s) best = {.offset_s = theirs - (before + trip / 2), .round_trip_s = trip};
    }
    if (comm.rank() == 0) comm.send(&best, sizeof best, r, kTag);
    else comm.recv(mine.data(), sizeof best, 0, kTag);
  }
  return {.offset_s = mine[0], .round_trip_s = mine[1]};
}

JobFacts gather_facts(Comm& comm, const PreflightSpec& spec) {
  comm.set_timeout(spec.comm_timeout);
  const std::vector<std::string> hosts = comm.hosts();
  RankFacts mine;
  mine.rank = comm.rank();
  mine.host = hosts[static_cast<size_t>(comm.rank())];
  read_host("/", mine);  // before this job makes a load of its own
  const std::string stat = stat_text();
  read_process(mine);
  mine.addresses = resolve_hosts(hosts, spec.resolve_timeout);
  // One rank of a host tries its disk: several would share its speed.
  if (std::find(hosts.begin(), hosts.end(), mine.host) - hosts.begin() == comm.rank()) try_disk(spec.out, mine);
  meet(comm);
  const ClockOffset clock = measure_clock(comm);
  mine.clock_offset_s = clock.offset_s, mine.round_trip_s = clock.round_trip_s;
  mine.gemm_gflop_per_s = measure_gemm(comm, spec.seconds);
  JobFacts job;
  job.pairs_at_once = takes_rounds(spec, comm.size());
  job.pairs = measure_pairs({.comm = comm, .at_once = job.pairs_at_once, .bytes = spec.pair_bytes});
  mine.steal = steal_share(stat, stat_text());
  for (const std::string& text : comm.gather_text(rank_facts_json(mine).dump()))
    job.ranks.push_back(parse_rank_facts(parse_json(text, "a rank's facts"), "a rank's facts"));
  return job;
}

Json preflight_json(const std::vector<CheckResult>& results, const JobFacts& job) {
  Json facts = Json::array(), hosts = Json::array();
  for (const RankFacts& f : job.ranks) facts.push_back(rank_facts_json(f));
  for (const std::string& host : host_names(job)) hosts.push_back(host);
  std::vector<std::string> names;
  for (const RankFacts& f : job.ranks) names.push_back(f.host);
  return {{"bench", "preflight"},
          {"time", utc_timestamp()},
          {"status", check_status_name(worst_status(results))},
          {"ranks", job.ranks.size()},
          {"hosts", std::move(hosts)},
          {"checks", checks_json(results)},
          {"pair_matrix", pair_json({.pairs = job.pairs, .hosts = names, .at_once = job.pairs_at_once})},
          {"facts", std::move(facts)}};
}

}  // namespace rw
