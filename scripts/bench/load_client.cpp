// How many streams one load client can measure: N streams at R tokens/s each from a null server on the same machine,
// one JSON line a step, until the client's own lateness (5 ms at p99) voids the step or a request fails.
//   load_client [--rate R] [--seconds S] [--streams N,N,...]
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/bench/load/latency.h"
#include "libcore/bench/load/load_runner.h"
#include "scripts/bench/null_server.h"

using namespace rw;

namespace {

struct Options {
  double tokens_per_s = 10, seconds = 15;
  std::vector<int64_t> streams = {100, 300, 1000, 2000, 3000, 4000, 6000, 8000, 12000};
};

Options read_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--rate") o.tokens_per_s = std::strtod(value.c_str(), nullptr);
    else if (name == "--seconds") o.seconds = std::strtod(value.c_str(), nullptr);
    else if (name == "--streams") {
      o.streams.clear();
      for (size_t at = 0; at < value.size(); at = std::min(value.find(',', at), value.size() - 1) + 1)
        o.streams.push_back(std::strtoll(value.c_str() + at, nullptr, 10));
    } else {
      fmt::print(stderr, "load_client: expected --rate, --seconds or --streams, found {}\n", name);
      std::exit(2);
    }
  }
  return o;
}

// How long after its sending each chunk was seen, beyond the quickest one: the two clocks have an unknown offset.
std::vector<double> stamp_lags_ms(const LoadRun& run) {
  std::vector<double> lags;
  for (const LoadOutcome& o : run.outcomes)
    for (size_t k = 0; k < o.chunks.size() && (k + 1) * kNullTimeDigits <= o.text.size(); ++k)
      lags.push_back(
          1e3 * (o.chunks[k].at_s - std::strtod(o.text.substr(k * kNullTimeDigits, kNullTimeDigits).c_str(), nullptr)));
  const double least = lags.empty() ? 0 : *std::min_element(lags.begin(), lags.end());
  for (double& lag : lags) lag -= least;
  return lags;
}

// False: the step is void.
bool step(int64_t streams, const Options& o) {
  // Each stream lives 5 s: so many requests a second keep the wanted number under way.
  const double life_s = std::min(5.0, o.seconds / 3);
  const auto tokens = static_cast<int64_t>(life_s * o.tokens_per_s);
  const double requests_per_s = static_cast<double>(streams) / life_s;
  const NullServer server = start_null_server({.tokens = tokens, .gap_s = 1 / o.tokens_per_s});
  std::vector<LoadRequest> schedule(static_cast<size_t>(requests_per_s * (o.seconds - life_s)));
  for (size_t i = 0; i < schedule.size(); ++i) {
    schedule[i].index = static_cast<int64_t>(i);
    schedule[i].due_s = static_cast<double>(i) / requests_per_s;
    schedule[i].body = R"({"model":"null","prompt":[1,2,3],"max_tokens":50,"stream":true,"return_token_ids":true})";
  }
  LoadOptions options;
  options.target.url = fmt::format("http://127.0.0.1:{}", server.port);
  options.request_timeout_s = 60;
  const LoadRun run = run_load(schedule, options);
  const double server_cpu_s = stop_null_server(server);
  std::vector<double> late;
  int64_t chunks = 0, failed = 0;
  double busy_s = 0;
  for (const LoadOutcome& out : run.outcomes) {
    late.push_back(1e3 * (out.sent_s - out.due_s));
    chunks += static_cast<int64_t>(out.chunks.size());
    busy_s += out.end_s - out.sent_s;
    if (out.end != LoadEnd::ok || out.output_tokens != tokens || !out.tokens_exact) ++failed;
  }
  const LatencySummary lateness = summarize_ms(late), lag = summarize_ms(stamp_lags_ms(run));
  const ClientHealth health = client_health(run, /*open_loop=*/true, /*others_share=*/std::nan(""));
  const bool is_void = health.is_void || failed > 0;
  fmt::print(
      "{{\"streams\": {}, \"tokens_per_s\": {}, \"requests\": {}, \"failed\": {}, \"mean_streams\": {:.0f}, "
      "\"peak_chunks_per_s\": {:.0f}, \"late_ms\": {{\"p50\": {:.3f}, \"p99\": {:.3f}, \"max\": {:.3f}}}, "
      "\"stamp_lag_ms\": {{\"p50\": {:.3f}, \"p99\": {:.3f}, \"max\": {:.3f}}}, \"client_cpu_share\": {:.3f}, "
      "\"client_cpu_s_per_million_chunks\": {:.2f}, \"server_cpu_share\": {:.3f}, \"cores\": {}, \"void\": {}}}\n",
      streams, o.tokens_per_s, run.outcomes.size(), failed, busy_s / run.wall_s,
      static_cast<double>(streams) * o.tokens_per_s, lateness.p50, lateness.p99, lateness.max, lag.p50, lag.p99,
      lag.max, run.client_cpu_s / run.wall_s,
      1e6 * run.client_cpu_s / static_cast<double>(std::max<int64_t>(chunks, 1)), server_cpu_s / run.wall_s,
      std::thread::hardware_concurrency(), is_void);
  std::fflush(stdout);
  if (is_void) fmt::print(stderr, "{} streams: void{}{}\n", streams, health.why.empty() ? "" : ": ", health.why);
  return !is_void;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = read_options(argc, argv);
  int64_t highest = 0;
  try {
    for (const int64_t streams : o.streams) {
      if (!step(streams, o)) break;
      highest = streams;
    }
  } catch (const Error& e) {
    fmt::print(stderr, "load_client: {}\n", e.what());
    return exit_code(e.kind());
  }
  fmt::print("{{\"highest_streams_without_a_void\": {}, \"tokens_per_s\": {}}}\n", highest, o.tokens_per_s);
}
