#include "libcore/plan/serve/serve_sim.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "libcore/base/check.h"

namespace rw {
namespace {

class Simulation {
 public:
  explicit Simulation(const SimQuery& q) : q_(q), scheduler_(scheduler_of(q)), caches_(q.workload.shares_prefixes()) {
    result_.requests.resize(q.arrivals.size());
    order_.resize(q.arrivals.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return q.arrivals[a].ready_s < q.arrivals[b].ready_s; });
  }

  SimResult run() {
    if (order_.empty()) return std::move(result_);
    now_ = result_.begin_s = result_.end_s = q_.arrivals[order_.front()].ready_s;
    for (;;) {
      take_arrivals();
      if (scheduler_.next(plan_)) step();
      else if (next_ < order_.size()) wait_until(q_.arrivals[order_[next_]].ready_s);
      else break;
    }
    const SchedulerStats stats = scheduler_.stats();
    CHECK(stats.running == 0 && stats.waiting == 0, "%lld sequences run and %lld wait, and there is nothing to do",
          static_cast<long long>(stats.running), static_cast<long long>(stats.waiting));
    result_.preemptions = stats.preemptions;
    result_.prefix_queries = stats.prefix_queries;
    result_.prefix_hits = stats.prefix_hits;
    result_.pages_left = stats.free_pages + stats.evictable_pages;
    if (const double span = now_ - result_.begin_s; span > 0) {
      result_.mean_waiting /= span;
      result_.mean_kv_usage /= span;
    }
    return std::move(result_);
  }

 private:
  // A decode server lets sequences in whole: their prompts are no work.
  static SchedulerSpec scheduler_of(const SimQuery& q) {
    SchedulerSpec spec = q.scheduler;
    if (q.role == ServeRole::decode) {
      spec.max_batch_tokens = INT64_MAX / 2;
      spec.itl_budget_s = 0;
    }
    return spec;
  }

  // The scheduler is told of as many as a step can let in, in the order of their arrival, which is its own: with the
  // prompts of a queue of a million it would hold gigabytes.
  void take_arrivals() {
    for (; due_ < order_.size() && q_.arrivals[order_[due_]].ready_s <= now_; ++due_)
      result_.mean_waiting += now_ - q_.arrivals[order_[due_]].ready_s;  // during the step in which it arrived
    for (int64_t room = q_.scheduler.max_seqs - scheduler_.stats().waiting; next_ < due_ && room > 0; ++next_)
      room -= arrive(order_[next_]);
  }

  // Whether it waits now.
  bool arrive(size_t i) {
    const SimArrival& a = q_.arrivals[i];
    const WorkloadRequest& r = q_.workload.requests[static_cast<size_t>(a.request)];
    SimRequest& s = result_.requests[i];
    s.request = a.request;
    s.since_s = s.first_s = s.last_s = a.since_s;
    const bool decode = q_.role == ServeRole::decode;
    const int64_t wanted = q_.role == ServeRole::prefill ? 1 : r.output - (decode ? 1 : 0);
    if (wanted == 0) return false;  // done by the prefill server
    if ((q_.max_model_len > 0 && r.input + r.output > q_.max_model_len) ||
        !scheduler_.fits(r.input + (decode ? 1 : 0), wanted)) {
      s.refused = true;
      return false;
    }
    Arrival arrival;
    arrival.id = static_cast<SequenceId>(i);
    arrival.prompt = prompt_tokens(r, a.request);
    if (decode) arrival.prompt.push_back(own_token(a.request));
    arrival.max_tokens = wanted;
    arrival.cache = caches_ && !decode;
    scheduler_.add(std::move(arrival));
    left_.emplace(static_cast<SequenceId>(i), wanted);
    return true;
  }

  // No prompt has it but the request's own.
  static int32_t own_token(int64_t request) { return static_cast<int32_t>(-1 - request); }

  PricedStep shape_of_step() const {
    if (q_.role != ServeRole::decode) return step_shape(plan_);
    PricedStep shape;
    for (const SequenceRows& r : plan_.rows) {
      const bool sent = r.n > 1 && result_.requests[static_cast<size_t>(r.id)].tokens == 0;
      const int64_t n = sent ? 1 : r.n;
      shape.add(r.first + r.n - n, n, r.sample);
    }
    return shape;
  }

  void step() {
    StepOutcome outcome;
    if (!plan_.rows.empty()) {
      outcome.seconds = q_.step_s(shape_of_step());
      ++result_.steps;
      result_.busy_s += outcome.seconds;
    }
    wait_until(now_ + outcome.seconds);
    for (const SequenceRows& r : plan_.rows)
      if (r.sample) outcome.drawn.emplace_back(r.id, draw(r.id));
    scheduler_.done(outcome);
    for (const auto& [id, token] : outcome.drawn)
      if (--left_.at(id) == 0) {
        scheduler_.end(id);
        left_.erase(id);
      }
  }

  // A token leaves now.
  int32_t draw(SequenceId id) {
    SimRequest& s = result_.requests[static_cast<size_t>(id)];
    if (s.tokens > 0 || q_.role == ServeRole::decode) {
      const double gap = now_ - s.last_s;
      s.worst_gap_s = std::max(s.worst_gap_s, gap);
      s.gap_sum_s += gap;
      ++s.gaps;
      if (q_.keep_gaps) keep_gap(static_cast<float>(gap));
    }
    if (s.tokens++ == 0) s.first_s = now_;
    s.last_s = now_;
    result_.end_s = now_;
    ++result_.tokens;
    return own_token(s.request);
  }

  void keep_gap(float gap) {
    if (seen_gaps_++ % every_ != 0) return;
    std::vector<float>& kept = result_.gaps_s;
    kept.push_back(gap);
    if (kept.size() < kMostGaps) return;
    for (size_t i = 0; 2 * i < kept.size(); ++i) kept[i] = kept[2 * i];
    kept.resize((kept.size() + 1) / 2);
    every_ *= 2;
  }

  void wait_until(double then) {
    const SchedulerStats stats = scheduler_.stats();
    const int64_t waiting = stats.waiting + static_cast<int64_t>(due_ - next_);
    const double usage =
        1 - static_cast<double>(stats.free_pages + stats.evictable_pages) / static_cast<double>(q_.scheduler.n_pages);
    result_.mean_waiting += static_cast<double>(waiting) * (then - now_);
    result_.mean_kv_usage += usage * (then - now_);
    result_.most_waiting = std::max(result_.most_waiting, waiting);
    result_.most_kv_usage = std::max(result_.most_kv_usage, usage);
    now_ = then;
  }

  const SimQuery& q_;
  Scheduler scheduler_;
  const bool caches_;
  std::vector<size_t> order_;  // arrivals by time
  size_t due_ = 0, next_ = 0;  // of order_: the first that has not arrived, that the scheduler was not told of
  size_t seen_gaps_ = 0, every_ = 1;
  double now_ = 0;
  StepPlan plan_;
  std::unordered_map<SequenceId, int64_t> left_;  // tokens yet to be drawn
  SimResult result_;
};

}  // namespace

std::vector<SimArrival> stretched_arrivals(const Workload& w, double stretch) {
  std::vector<SimArrival> arrivals;
  arrivals.reserve(w.requests.size());
  for (size_t i = 0; i < w.requests.size(); ++i) {
    const double at = w.requests[i].arrival_s * stretch;
    arrivals.push_back({.request = static_cast<int64_t>(i), .ready_s = at, .since_s = at});
  }
  return arrivals;
}

SimResult simulate(const SimQuery& query) { return Simulation(query).run(); }

}  // namespace rw
