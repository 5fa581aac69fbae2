#include "libcore/bench/load/serve_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/files.h"
#include "libcore/bench/load/fit_model.h"
#include "libcore/bench/load/load_repeats.h"
#include "libcore/bench/load/load_report.h"
#include "libcore/bench/load/load_runner.h"
#include "libcore/bench/load/load_schedule.h"
#include "libcore/bench/load/rate_search.h"
#include "libcore/bench/load/server_probe.h"
#include "libcore/bench/load/server_process.h"
#include "libcore/bench/record/machine.h"
#include "libcore/net/url.h"

namespace rw {
namespace {

constexpr int64_t kCurvePoints = 60, kLeastProbeRequests = 20, kAloneDraw = 1'000'000;
constexpr double kHardlyBusy = 0.02, kMostPatience_s = 30;
constexpr int kSpanTries = 5;
constexpr auto kBetweenSpanTries = std::chrono::milliseconds(100);

LoadTarget target_of(const ServeLoadSpec& spec) {
  LoadTarget target;
  target.url = spec.url;
  target.api_key = spec.api_key;
  return target;
}

class ServeBench {
 public:
  ServeBench(const ServeLoadSpec& spec, const ServeBenchProgress& progress, const std::function<bool()>& stop)
      : spec_(spec), plan_(plan_serve_load(spec)), target_(target_of(spec)), progress_(progress), stop_(stop) {}

  ServeBenchResult run() {
    const double patience_s = std::min(spec_.timeout, kMostPatience_s);
    model_ = ask_models(target_, spec_.model, patience_s);
    result_.notes = fit_to_model(spec_, model_);
    plan_ = plan_serve_load(spec_);
    is_here_ = is_this_host(parse_http_url(spec_.url).host);
    if (spec_.leak_check) before_ = ask_levels(target_, std::min(patience_s, std::max(1.0, spec_.leak_wait)));
    warm_up();
    result_.record = new_record("serve", model_.id + ": " + load_name(spec_, plan_), public_config(spec_));
    // A client that waits has no share of a core that it should have had; its health says whether it kept up.
    result_.record.cpu_share = std::numeric_limits<double>::quiet_NaN();
    if (spec_.find_rate) search();
    else repeat();
    if (stopped_) {
      result_.failure = Error(ErrorKind::runtime, "stopped by a signal: the numbers are of what had ended until then");
      result_.text += "STOPPED       by a signal; the numbers are of what had ended until then\n";
    } else {
      look_for_leaks();
    }
    result_.record.quiet = result_.record.quiet && !(others_share_ > kQuietOthersShare);
    if (others_share_ > kQuietOthersShare)
      result_.warnings.push_back(fmt::format(
          "not quiet: other processes took up to {:.0f} % of this machine's CPU time; the numbers are not of this "
          "server alone, measure on a quiet machine",
          100 * others_share_));
    return std::move(result_);
  }

 private:
  bool stopped() {
    stopped_ = stopped_ || (stop_ && stop_());
    return stopped_;
  }

  LoadOptions options(const std::string& phase, int64_t n) {
    LoadOptions o;
    o.target = target_;
    o.request_timeout_s = spec_.timeout;
    o.max_retries = spec_.retries;
    o.stop = [this] { return stopped(); };
    o.progress = [this, phase, n](int64_t finished, int64_t running) {
      progress_(phase, static_cast<double>(finished) / static_cast<double>(std::max<int64_t>(n, 1)),
                fmt::format("{} of {}, {} under way", finished, n, running));
    };
    return o;
  }

  // What of a request the server may not have liked.
  std::string asked_text() const {
    const DatasetSpec& d = plan_.dataset;
    if (d.kind == "jsonl") return {};
    std::string text =
        fmt::format(" (up to {} prompt and {} answer tokens: --input-len, --output-len", d.input.high, d.output.high);
    if (d.ids) text += fmt::format("; token ids below {}: --vocab-size", d.vocab);
    return text + ")";
  }

  // Runs the load; what of this host's CPU time neither the client nor the server took, NaN where that is not known.
  double run_watched(const std::vector<LoadRequest>& schedule, const LoadOptions& options, LoadRun& run) {
    const std::vector<int64_t> server =
        is_here_ ? server_processes(parse_http_url(spec_.url).port) : std::vector<int64_t>();
    const double before = cpu_seconds_of(server);
    QuietMeter meter(0);
    meter.start();
    run = run_load(schedule, options);
    meter.stop();
    if (is_here_ && server.empty()) return std::numeric_limits<double>::quiet_NaN();
    meter.count_as_ours(cpu_seconds_of(server) - before);
    const double share = meter.others_share();
    if (share > others_share_) others_share_ = share;
    return share;
  }

  LoadRun send_alone(const std::vector<LoadRequest>& schedule, const std::string& phase) {
    LoadOptions o = options(phase, static_cast<int64_t>(schedule.size()));
    o.closed_loop = true;
    o.max_concurrency = 1;
    LoadRun run = run_load(schedule, o);
    if (stopped_) fail(ErrorKind::runtime, "stopped by a signal before anything was measured");
    for (const LoadOutcome& out : run.outcomes)
      if (out.end != LoadEnd::ok)
        fail(ErrorKind::runtime, "{}: {}: a request alone (path {}) ended as {}{}{}{}", spec_.url, phase,
             schedule.front().path, load_end_name(out.end), out.status > 0 ? fmt::format(" ({})", out.status) : "",
             out.error.empty() ? "" : ": " + out.error, out.status == 400 ? asked_text() : "");
    return run;
  }

  void warm_up() {
    if (spec_.warmup_requests > 0) send_alone(warmup_schedule(spec_, plan_, model_, spec_.warmup_requests), "warm-up");
  }

  LoadResult measure(const ServeLoadPlan& plan, const std::string& phase) {
    std::vector<LoadRequest> schedule = load_schedule(spec_, plan, model_);
    if (spec_.golden > 0) take_goldens(schedule, plan);
    LoadResult r;
    r.date = utc_timestamp();
    r.model_id = model_.id;
    for (const LoadRequest& request : schedule) r.golden_checked += !request.golden.empty();
    LoadOptions o = options(phase, static_cast<int64_t>(schedule.size()));
    o.closed_loop = plan.closed_loop;
    o.max_concurrency = plan.max_concurrency;
    o.ignore_text = r.golden_checked == 0;
    const double others = run_watched(schedule, o, r.run);
    // A closed loop intends to send when a place is free, which is when it sends.
    if (plan.closed_loop)
      for (LoadOutcome& out : r.run.outcomes) out.due_s = out.sent_s;
    r.summary = summarize_load(r.run, plan.objective);
    if (plan.closed_loop) r.summary.client_late = summarize_ms({});  // there is no time to be late for
    r.health = client_health(r.run, plan.open_loop, others);
    r.curve = concurrency_curve(r.run, kCurvePoints);
    if (r.health.is_void) result_.warnings.push_back("void run: " + r.health.why);
    const auto doubted = std::count_if(r.run.outcomes.begin(), r.run.outcomes.end(),
                                       [](const LoadOutcome& out) { return out.usage_doubted; });
    if (doubted > 0)
      result_.warnings.push_back(fmt::format(
          "the usage of {} replies cannot be true (more tokens than were asked for, or other than the token ids that "
          "came): what came was counted",
          doubted));
    return r;
  }

  void take_goldens(std::vector<LoadRequest>& schedule, const ServeLoadPlan& plan) {
    const std::vector<LoadRequest> alone = golden_schedule(spec_, plan, model_, spec_.golden);
    const LoadRun run = send_alone(alone, "golden texts");
    for (size_t i = 0; i < alone.size(); ++i)
      schedule[static_cast<size_t>(alone[i].index)].golden = run.outcomes[i].text;
  }

  void repeat() {
    std::vector<LoadResult> results;
    Json repeats = Json::array();
    for (int64_t i = 0; i < spec_.repeats && !stopped_; ++i) {
      ServeLoadPlan plan = plan_;
      plan.dataset.draw = i;
      results.push_back(measure(plan, spec_.repeats == 1 ? "load" : fmt::format("load, repeat {}", i + 1)));
      join_spans(results.back());
      repeats.push_back(load_result_json(spec_, plan_, results.back()));
      // Thousands of streams take room; the failed ones say why.
      if (!spec_.save_detailed && spec_.repeats > 1)
        std::erase_if(results.back().run.outcomes, [](const LoadOutcome& o) { return o.end == LoadEnd::ok; });
    }
    fill_record(results);
    const LoadResult all = combine_repeats(results);
    Json details = load_result_json(spec_, plan_, all);
    result_.flat = details.dump();
    if (spec_.repeats > 1) details["repeats"] = std::move(repeats);
    result_.record.details = details.dump();
    result_.text = load_result_text(spec_, plan_, all);
    if (results.size() > 1) result_.text += load_repeats_text(results);
    judge(results, all.summary);
  }

  // Requests one after another: when those miss the objective no rate keeps it; else they say where to search.
  LoadResult measure_alone() {
    ServeLoadPlan plan = plan_;
    plan.closed_loop = true;
    plan.open_loop = false;
    plan.max_concurrency = 1;
    plan.arrivals.n = plan.dataset.n = kLeastProbeRequests;
    plan.dataset.draw = kAloneDraw;
    return measure(plan, "one at a time");
  }

  RateAnswer search_from(const LoadResult& alone, const std::function<RateProbe(double)>& measure_at) const {
    if (!(alone.summary.attainment >= spec_.attainment)) {
      RateAnswer none;
      none.why = fmt::format("not even requests one at a time keep the objective: {:.1f} % do",
                             100 * alone.summary.attainment);
      return none;
    }
    const double one_busy = 1e3 / alone.summary.e2e.mean;  // requests/s that one at a time makes
    RateSearch how;
    how.start = std::isfinite(plan_.arrivals.rate) ? plan_.arrivals.rate : one_busy;
    how.lowest = std::min(how.start, kHardlyBusy * one_busy);
    how.tolerance = spec_.rate_tolerance;
    return find_rate(how, measure_at);
  }

  void search() {
    const LoadResult alone = measure_alone();
    std::optional<LoadResult> best;
    int64_t draw = 0;
    const auto measure_at = [&](double rate) {
      ServeLoadPlan plan = plan_;
      plan.arrivals.rate = rate;
      plan.arrivals.n = std::max(kLeastProbeRequests, requests_within(plan.arrivals, spec_.probe_duration));
      plan.dataset.n = plan.arrivals.n;
      plan.dataset.draw = draw++;
      LoadResult r = measure(plan, fmt::format("{:.4g} requests/s", rate));
      if (stopped_) fail(ErrorKind::runtime, "stopped by a signal while rates were searched");
      RateProbe probe;
      probe.attainment = r.summary.attainment;
      probe.verdict = r.health.is_void                       ? ProbeVerdict::is_void
                      : probe.attainment >= spec_.attainment ? ProbeVerdict::kept
                                                             : ProbeVerdict::missed;
      // The answer's last measurement is its confirmation; no kept probe after it is at a lower rate.
      if (probe.verdict == ProbeVerdict::kept) {
        best_rate_ = rate;
        best = std::move(r);
      }
      return probe;
    };
    const RateAnswer answer = search_from(alone, measure_at);
    const bool found = answer.rate > 0 && best && best_rate_ == answer.rate;
    BenchMetric metric;
    metric.name = "max_rate";
    metric.unit = "requests/s";
    metric.better = Better::higher;
    metric.samples = {answer.rate};
    if (found) fill_record({*best});
    result_.record.metrics.push_back(metric);
    Json details = found ? load_result_json(spec_, plan_, *best) : Json::object();
    if (found) details["request_rate"] = answer.rate;
    details["find_rate"] = rate_answer_json(answer);
    result_.record.details = result_.flat = details.dump();
    result_.text = rate_answer_text(spec_, answer, found ? &*best : nullptr);
    if (answer.rate == 0)
      result_.failure = Error(ErrorKind::verdict, fmt::format("{}: {}", objective_text(plan_.objective), answer.why));
    else if (spec_.strict && answer.limited_by_client) result_.failure = Error(ErrorKind::verdict, answer.why);
  }

  void fill_record(const std::vector<LoadResult>& results) {
    struct Metric {
      const char *name, *unit;
      Better better;
      MetricKind kind;
      double (*of)(const LoadSummary&);
    };
    constexpr auto kLower = Better::lower, kHigher = Better::higher;
    constexpr auto kTime = MetricKind::time, kCount = MetricKind::count;
    static constexpr Metric kMetrics[] = {
        {"median_ttft_from_due_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.ttft.median; }},
        {"p99_ttft_from_due_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.ttft.p99; }},
        {"median_itl_token_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.itl_token.median; }},
        {"p99_itl_token_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.itl_token.p99; }},
        {"median_tpot_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.tpot.median; }},
        {"p99_tpot_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.tpot.p99; }},
        {"median_e2el_from_due_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.e2e.median; }},
        {"p99_e2el_from_due_ms", "ms", kLower, kTime, [](const LoadSummary& s) { return s.e2e.p99; }},
        {"output_throughput", "tokens/s", kHigher, kTime, [](const LoadSummary& s) { return s.output_throughput; }},
        {"request_goodput", "requests/s", kHigher, kTime, [](const LoadSummary& s) { return s.goodput; }},
        {"attainment", "", kHigher, kTime, [](const LoadSummary& s) { return s.attainment; }},
        {"completed", "requests", kHigher, kCount, [](const LoadSummary& s) { return double(s.completed); }},
        {"failed", "requests", kLower, kCount, [](const LoadSummary& s) { return double(s.failed); }},
        {"total_input_tokens", "tokens", Better::neither, kCount,
         [](const LoadSummary& s) {
           return s.input_known ? double(s.input_tokens) : std::numeric_limits<double>::quiet_NaN();
         }},
        {"total_output_tokens", "tokens", Better::neither, kCount,
         [](const LoadSummary& s) { return double(s.output_tokens); }},
    };
    for (const Metric& m : kMetrics) {
      BenchMetric metric;
      metric.name = m.name;
      metric.unit = m.unit;
      metric.better = m.better;
      metric.kind = m.kind;
      for (const LoadResult& r : results) metric.samples.push_back(m.of(r.summary));
      result_.record.metrics.push_back(metric);
    }
    result_.record.repeats = static_cast<int64_t>(results.size());
    result_.record.quiet =
        std::none_of(results.begin(), results.end(), [](const LoadResult& r) { return r.health.is_void; });
  }

  // The server writes a line when its side of a request is over, which may be a moment after ours.
  void join_spans(LoadResult& r) const {
    if (spec_.server_spans.empty()) return;
    for (int tries = 0; tries < kSpanTries; ++tries) {
      if (tries > 0) std::this_thread::sleep_for(kBetweenSpanTries);
      r.spans = join_server_spans(r.run, read_file(spec_.server_spans), spec_.server_spans);
      if (r.spans->missing == 0) return;
    }
  }

  void judge(const std::vector<LoadResult>& results, const LoadSummary& all) {
    for (const LoadResult& r : results) {
      const int64_t wrong = r.summary.ends[static_cast<size_t>(LoadEnd::wrong_text)];
      if (wrong > 0)
        result_.warnings.push_back(fmt::format(
            "{} of {} texts differ from the same request's alone (near ties of rounded numbers can do that; "
            "dserve --deterministic rules them out)",
            wrong, r.golden_checked));
      if (wrong > 0 && spec_.strict)
        result_.failure = Error(ErrorKind::verdict, "texts under load differ from the goldens");
      if (r.health.is_void && spec_.strict) result_.failure = Error(ErrorKind::verdict, "void run: " + r.health.why);
    }
    if (all.completed + all.disconnected == 0)
      result_.failure = Error(ErrorKind::runtime, "no request ended well; the first lines say why");
  }

  void look_for_leaks() {
    if (!before_.levels) {
      if (spec_.leak_check) result_.text += "leak check    none: " + before_.why + "\n";
      return;
    }
    progress_("waiting for the server to be idle", -1, "");
    Json details = Json::parse(result_.record.details);
    std::vector<Leak> leaks;
    try {
      leaks = wait_for_levels(target_, *before_.levels, spec_.leak_wait);
    } catch (const Error& error) {
      const std::string text =
          std::string("the leak check was impossible: /metrics was there before the load, and now: ") + error.what();
      details["leaks"] = nullptr;
      details["leak_check"] = text;
      result_.record.details = details.dump();
      result_.text += "leak check    " + text + "\n";
      if (!result_.failure) result_.failure = Error(ErrorKind::verdict, text);
      return;
    }
    details["leaks"] = Json::array();
    for (const Leak& leak : leaks)
      details["leaks"].push_back({{"name", leak.name}, {"before", leak.before}, {"after", leak.after}});
    result_.record.details = details.dump();
    if (leaks.empty()) {
      result_.text += "leak check    the server is back where it was\n";
      return;
    }
    const std::string text = fmt::format("{:g} s after the load the server is not back where it was: {}",
                                         spec_.leak_wait, leaks_text(leaks));
    result_.text += "LEAK          " + text + "\n";
    if (!result_.failure) result_.failure = Error(ErrorKind::verdict, text);
  }

  ServeLoadSpec spec_;
  ServeLoadPlan plan_;
  LoadTarget target_;
  const ServeBenchProgress& progress_;
  const std::function<bool()>& stop_;
  bool stopped_ = false;
  ServedModelInfo model_;
  AskedLevels before_;
  bool is_here_ = false;  // the server is on this host
  double best_rate_ = 0;
  double others_share_ = 0;  // the most that others took during a measurement
  ServeBenchResult result_;
};

}  // namespace

ServeBenchResult run_serve_bench(const ServeLoadSpec& spec, const ServeBenchProgress& progress,
                                 const std::function<bool()>& stop) {
  return ServeBench(spec, progress, stop).run();
}

}  // namespace rw
