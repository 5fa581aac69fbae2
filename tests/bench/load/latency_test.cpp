// Synthetic timelines whose numbers are worked out by hand.
#include "libcore/bench/load/latency.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

using namespace rw;

namespace {

LoadOutcome outcome(double due, double sent, std::vector<LoadChunk> chunks, double end) {
  LoadOutcome o;
  o.due_s = due;
  o.sent_s = sent;
  o.chunks = std::move(chunks);
  o.end_s = end;
  for (const LoadChunk& c : o.chunks) o.output_tokens += c.tokens;
  o.prompt_tokens = 10;
  o.prompt_known = true;
  o.tokens_exact = true;
  return o;
}

LoadRun run_of(std::vector<LoadOutcome> outcomes) {
  LoadRun run;
  run.outcomes = std::move(outcomes);
  for (size_t i = 0; i < run.outcomes.size(); ++i) run.outcomes[i].index = static_cast<int64_t>(i);
  return run;
}

// Due at 1.00, sent 20 ms late; tokens at 1.25, 1.30 (two in a chunk), 1.45; the end at 1.45.
LoadOutcome four_tokens() { return outcome(1.0, 1.02, {{1.25, 1}, {1.30, 2}, {1.45, 1}}, 1.45); }

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

doctest::Approx about(double v) { return doctest::Approx(v).epsilon(1e-9); }

}  // namespace

TEST_CASE("one request: TTFT, ITL, TPOT, E2E by hand") {
  const LoadSummary s = summarize_load(run_of({four_tokens()}), {});
  CHECK(s.ttft.mean == about(250));
  CHECK(s.ttft_sent.mean == about(230));
  CHECK(s.e2e.mean == about(450));
  CHECK(s.e2e_sent.mean == about(430));
  CHECK(s.client_late.mean == about(20));
  CHECK(s.tpot.mean == about(200.0 / 3));
  // Chunks: 50, 150. Tokens: 25, 25, 150.
  CHECK(s.itl.n == 2);
  CHECK(s.itl.mean == about(100));
  CHECK(s.itl.std == about(50));
  CHECK(s.itl_token.n == 3);
  CHECK(s.itl_token.mean == about(200.0 / 3));
  CHECK(s.itl_token.median == about(25));
  CHECK(s.itl_token.max == about(150));
  CHECK(s.duration_s == about(0.45));
  CHECK(s.request_throughput == about(1 / 0.45));
  CHECK(s.output_throughput == about(4 / 0.45));
  CHECK(s.total_token_throughput == about(14 / 0.45));
  CHECK(s.max_concurrent == 1);
  CHECK(s.mean_concurrent == about(0.43 / 0.45));
  CHECK(s.queue.n == 0);
  CHECK(std::isnan(s.queue.mean));
  CHECK(s.cached_tokens == -1);
}

TEST_CASE("token gaps are one fewer than tokens and add up, however chunks were cut") {
  for (const std::vector<LoadChunk>& chunks :
       {std::vector<LoadChunk>{{2.0, 5}}, {{2.0, 3}, {2.7, 4}}, {{2.0, 1}, {2.1, 1}, {2.9, 7}, {3.0, 2}}, {{2.0, 1}}}) {
    const LoadOutcome o = outcome(0, 0, chunks, 3);
    const std::vector<double> gaps = token_gaps_ms(o);
    CHECK(static_cast<int64_t>(gaps.size()) == o.output_tokens - 1);
    CHECK(std::accumulate(gaps.begin(), gaps.end(), 0.0) == about(1e3 * (chunks.back().at_s - chunks.front().at_s)));
    CHECK(chunk_gaps_ms(o).size() == chunks.size() - 1);
  }
  CHECK(token_gaps_ms(outcome(0, 0, {}, 1)).empty());
}

TEST_CASE("a request of one token has no TPOT and no gap") {
  const LoadSummary s = summarize_load(run_of({outcome(0, 0, {{0.5, 1}}, 0.5)}), {});
  CHECK(s.ttft.n == 1);
  CHECK(s.tpot.n == 0);
  CHECK(s.itl.n == 0);
  CHECK(s.itl_token.n == 0);
  CHECK(std::isnan(s.tpot.p99));
}

TEST_CASE("failed and disconnected requests count, their times do not") {
  LoadOutcome refused = outcome(0.2, 0.2, {}, 0.3), cut = outcome(0.4, 0.4, {{0.6, 2}}, 0.9),
              left = outcome(0.5, 0.5, {{0.6, 1}}, 0.7), wrong = outcome(0.6, 0.6, {{0.7, 1}}, 0.8);
  refused.end = LoadEnd::refused_429;
  refused.retries = 3;
  cut.end = LoadEnd::closed_mid_stream;
  left.end = LoadEnd::disconnected;
  wrong.end = LoadEnd::wrong_text;
  const LoadSummary s = summarize_load(run_of({four_tokens(), refused, cut, left, wrong}), {});
  CHECK(s.requests == 5);
  CHECK(s.completed == 1);
  CHECK(s.disconnected == 1);
  CHECK(s.failed == 3);
  CHECK(s.ends[static_cast<size_t>(LoadEnd::refused_429)] == 1);
  CHECK(s.ends[static_cast<size_t>(LoadEnd::closed_mid_stream)] == 1);
  CHECK(s.ends[static_cast<size_t>(LoadEnd::ok)] == 1);
  CHECK(s.output_tokens == 4);
  CHECK(s.input_tokens == 10);
  CHECK(s.ttft.n == 1);
  CHECK(s.retry_rate == about(3.0 / 5));
  CHECK(s.reject_rate == about(1.0 / 5));
  CHECK(s.attainment == about(1.0 / 4));  // of those that were not told to leave
  CHECK(s.duration_s == about(1.45 - 0.2));
}

TEST_CASE("an empty run, and one without a completed request") {
  const LoadSummary none = summarize_load({}, {});
  CHECK(none.requests == 0);
  CHECK(none.duration_s == 0);
  CHECK(std::isnan(none.request_throughput));
  CHECK(std::isnan(none.attainment));
  CHECK(concurrency_curve({}, 5).empty());
  LoadOutcome refused = outcome(0, 0, {}, 0.5);
  refused.end = LoadEnd::refused_503;
  const LoadSummary s = summarize_load(run_of({refused}), {});
  CHECK(s.attainment == 0);
  CHECK(s.request_throughput == 0);
  CHECK(std::isnan(s.ttft.p99));
}

TEST_CASE("a stall of the server shows in times from due, not in those from sent") {
  // The server takes 10 ms a request, but stands still from 1 s to 3 s; a client that waits for its turn sends late.
  std::vector<LoadOutcome> all;
  double free_at = 0;
  for (int i = 0; i < 400; ++i) {
    const double due = 0.02 * i;
    double sent = std::max(due, free_at);
    if (sent >= 1 && sent < 3 && free_at < 3) free_at = 3;  // this one meets the stall
    const double end = std::max(sent, free_at) + 0.01;
    free_at = end;
    all.push_back(outcome(due, sent, {{end, 1}}, end));
  }
  const LoadSummary s = summarize_load(run_of(all), {});
  CHECK(s.e2e_sent.p95 == about(10));
  CHECK(s.e2e.p95 > 1500);
  CHECK(s.e2e.max == about(2010));
}

TEST_CASE("objectives: each alone decides, from the intended time") {
  const LoadOutcome o = four_tokens();
  LoadObjective none;
  CHECK(keeps(o, none));
  const auto with = [](double LoadObjective::*member, double ms) {
    LoadObjective objective;
    objective.*member = ms;
    return objective;
  };
  CHECK(keeps(o, with(&LoadObjective::ttft_ms, 250.001)));
  CHECK_FALSE(keeps(o, with(&LoadObjective::ttft_ms, 249.9)));
  CHECK(keeps(o, with(&LoadObjective::itl_ms, 150.001)));
  CHECK_FALSE(keeps(o, with(&LoadObjective::itl_ms, 149.9)));
  CHECK(keeps(o, with(&LoadObjective::tpot_ms, 66.7)));
  CHECK_FALSE(keeps(o, with(&LoadObjective::tpot_ms, 66.6)));
  CHECK(keeps(o, with(&LoadObjective::e2e_ms, 450.001)));
  CHECK_FALSE(keeps(o, with(&LoadObjective::e2e_ms, 449.9)));
  const LoadOutcome one = outcome(0, 0, {{0.1, 1}}, 0.1);
  CHECK(keeps(one, with(&LoadObjective::itl_ms, 0.001)));
  CHECK(keeps(one, with(&LoadObjective::tpot_ms, 0.001)));

  LoadOutcome slow = four_tokens(), failed = four_tokens();
  slow.due_s = 0.5;  // TTFT 750 ms from due, 230 from sent
  failed.end = LoadEnd::timed_out;
  const LoadSummary s =
      summarize_load(run_of({four_tokens(), four_tokens(), slow, failed}), with(&LoadObjective::ttft_ms, 300));
  CHECK(s.attainment == about(0.5));
  CHECK(s.goodput == about(2 / 0.95));
}

TEST_CASE("percentiles interpolate as numpy's do") {
  // numpy.percentile([1, 2, 4, 8, 16, 32, 64], [50, 90, 95, 99]) = 8, 44.8, 54.4, 62.08; numpy.std 21.2362808...
  const LatencySummary s = summarize_ms({64, 1, 2, 4, 32, 8, 16});
  CHECK(s.n == 7);
  CHECK(s.median == about(8));
  CHECK(s.p90 == about(44.8));
  CHECK(s.p95 == about(54.4));
  CHECK(s.p99 == about(62.08));
  CHECK(s.mean == about(127.0 / 7));
  CHECK(s.std == doctest::Approx(21.2362800847214));
  CHECK(s.max == 64);
}

TEST_CASE("times by the server, and what is left for the network") {
  LoadOutcome a = four_tokens(), b = four_tokens();
  a.queue_s = 0.05;
  a.prefill_s = 0.1;
  a.decode_s = 0.2;
  a.server_total_s = 0.4;
  a.cached_tokens = 4;
  const LoadSummary s = summarize_load(run_of({a, b}), {});
  CHECK(s.queue.n == 1);
  CHECK(s.queue.mean == about(50));
  CHECK(s.prefill.mean == about(100));
  CHECK(s.decode.mean == about(200));
  CHECK(s.network.n == 1);
  CHECK(s.network.mean == about(30));
  CHECK(s.cached_tokens == 4);
}

TEST_CASE("tokens are exact when every completed request's are") {
  LoadOutcome guessed = four_tokens(), failed = four_tokens();
  guessed.tokens_exact = failed.tokens_exact = false;
  failed.end = LoadEnd::error_event;
  CHECK(summarize_load(run_of({four_tokens(), failed}), {}).tokens_exact);
  CHECK_FALSE(summarize_load(run_of({four_tokens(), guessed}), {}).tokens_exact);
}

TEST_CASE("concurrency over time") {
  // Steps of 1 s; middles at 0.5, 1.5, 2.5, 3.5.
  const LoadRun run = run_of({outcome(0, 0, {{0.25, 1}, {1.25, 2}}, 1.6), outcome(0, 0.6, {{2.25, 3}}, 4.0),
                              outcome(0, 1.4, {{1.45, 1}}, 1.45)});
  const std::vector<ConcurrencyPoint> c = concurrency_curve(run, 4);
  REQUIRE(c.size() == 4);
  CHECK(c[0].at_s == about(0.5));
  CHECK(c[3].at_s == about(3.5));
  CHECK(c[0].running == 1);
  CHECK(c[1].running == 2);
  CHECK(c[2].running == 1);
  CHECK(c[3].running == 1);
  CHECK(c[0].output_tokens_per_s == about(1));
  CHECK(c[1].output_tokens_per_s == about(3));
  CHECK(c[2].output_tokens_per_s == about(3));
  CHECK(c[3].output_tokens_per_s == 0);
  CHECK(summarize_load(run, {}).max_concurrent == 3);
  // A request that starts when another one ends is no second one.
  CHECK(summarize_load(run_of({outcome(0, 0, {}, 1), outcome(0, 1, {}, 2)}), {}).max_concurrent == 1);
}

TEST_CASE("a client that was late or full voids the run") {
  std::vector<LoadOutcome> all;
  for (int i = 0; i < 1000; ++i) all.push_back(outcome(i, i + (i < 8 ? 0.05 : 0.001), {}, i + 1));
  LoadRun run = run_of(all);
  run.wall_s = 10;
  run.client_cpu_s = 3;
  CHECK_FALSE(client_health(run, true, kUnknown).is_void);
  CHECK(client_health(run, true, kUnknown).late_p99_ms == about(1));
  CHECK(client_health(run, true, kUnknown).cpu_share == about(0.3));
  for (int i = 0; i < 20; ++i) run.outcomes[static_cast<size_t>(i)].sent_s = i + 0.05;
  CHECK(client_health(run, true, kUnknown).is_void);
  CHECK(client_health(run, true, kUnknown).why.find("50.0 ms late") != std::string::npos);
  CHECK_FALSE(client_health(run, false, kUnknown).is_void);  // a closed loop is never late
  // It used 30 % of a core: others had the rest, or, where it ran often enough, it was slow itself.
  const auto blames = [&](double others, const char* what) {
    return client_health(run, true, others).why.find(what) != std::string::npos;
  };
  CHECK(blames(0.6, "other processes took 60 %"));
  CHECK(blames(0.05, "kept waiting"));
  CHECK_FALSE(client_health(run, true, 0.6).is_quiet());
  CHECK(client_health(run, true, 0.05).is_quiet());
  CHECK(client_health(run, true, kUnknown).is_quiet());
  run.client_cpu_s = 8;
  CHECK(blames(0.05, "the client, not the server, was slow"));
  run.client_cpu_s = 9.8;
  CHECK(client_health(run, false, kUnknown).is_void);
  CHECK(client_health(run, false, kUnknown).why.find("98 %") != std::string::npos);
}
