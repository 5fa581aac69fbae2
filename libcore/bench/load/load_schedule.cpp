#include "libcore/bench/load/load_schedule.h"

#include <cmath>

#include "libcore/base/error.h"
#include "libcore/bench/load/arrivals.h"
#include "libcore/bench/load/request_body.h"

namespace rw {
namespace {

BodyOptions body_options(const ServeLoadSpec& spec, const ServeLoadPlan& plan, const ServedModelInfo& model) {
  BodyOptions o;
  o.chat = plan.chat;
  o.model = model.id;
  o.temperature = spec.temperature;
  o.exact_length = plan.exact_length;
  o.plain = spec.plain;
  o.ours = model.is_ours;
  o.extra = spec.extra_body;
  return o;
}

LoadRequest request_of(const PlannedPrompt& p, int64_t index, const BodyOptions& options) {
  LoadRequest r;
  r.index = index;
  r.path = request_path(options);
  r.body = request_body(p, options);
  r.input_tokens = p.input_tokens;
  r.input_exact = !p.ids.empty();
  r.max_tokens = p.max_tokens;
  r.golden = p.golden;
  return r;
}

void check_lengths(const std::vector<PlannedPrompt>& prompts, const ServedModelInfo& model) {
  if (model.max_model_len <= 0) return;
  for (const PlannedPrompt& p : prompts)
    if (!p.ids.empty() && p.input_tokens + p.max_tokens > model.max_model_len)
      fail(ErrorKind::usage,
           "a request of {} prompt and {} answer tokens: expected at most {} together ({} says so); --input-len, "
           "--output-len, --turns",
           p.input_tokens, p.max_tokens, model.max_model_len, model.id);
}

// Due times of the requests that start a conversation.
std::vector<double> first_times(const ServeLoadPlan& plan, int64_t n_requests) {
  ArrivalPlan arrivals = plan.arrivals;
  const int64_t turns = plan.dataset.kind == "multi-turn" ? plan.dataset.turns : 1;
  arrivals.n = (n_requests + turns - 1) / turns;
  const auto per = static_cast<double>(turns);
  arrivals.rate /= per;
  arrivals.ramp_from /= per;
  arrivals.ramp_to /= per;
  return arrival_times(arrivals);
}

// An even share of the requests, to the last one exact.
bool disconnects(const ServeLoadSpec& spec, int64_t index) {
  if (spec.disconnect_after == 0) return false;
  const auto i = static_cast<double>(index);
  return std::floor((i + 1) * spec.disconnect_share) > std::floor(i * spec.disconnect_share);
}

}  // namespace

std::vector<LoadRequest> load_schedule(const ServeLoadSpec& spec, const ServeLoadPlan& plan,
                                       const ServedModelInfo& model) {
  const std::vector<PlannedPrompt> prompts = plan_prompts(plan.dataset);
  check_lengths(prompts, model);
  const BodyOptions options = body_options(spec, plan, model);
  const auto n = static_cast<int64_t>(prompts.size());
  const std::vector<double> times = plan.by_trace || plan.closed_loop ? std::vector<double>{} : first_times(plan, n);
  std::vector<LoadRequest> schedule;
  size_t next_time = 0;
  for (int64_t i = 0; i < n; ++i) {
    const PlannedPrompt& p = prompts[static_cast<size_t>(i)];
    LoadRequest r = request_of(p, i, options);
    r.after = p.after;
    if (plan.by_trace || p.after >= 0) r.due_s = plan.closed_loop && p.after < 0 ? 0 : p.due_s;
    else if (!plan.closed_loop) r.due_s = times[next_time++];
    if (disconnects(spec, i)) {
      r.disconnect_after_tokens = spec.disconnect_after;
      r.golden.clear();
    }
    schedule.push_back(std::move(r));
  }
  return schedule;
}

std::vector<LoadRequest> warmup_schedule(const ServeLoadSpec& spec, const ServeLoadPlan& plan,
                                         const ServedModelInfo& model, int64_t n) {
  DatasetSpec dataset = plan.dataset;
  dataset.n = n;
  dataset.draw = -1 - dataset.draw;
  const std::vector<PlannedPrompt> prompts = plan_prompts(dataset);
  check_lengths(prompts, model);
  std::vector<LoadRequest> schedule;
  for (size_t i = 0; i < prompts.size(); ++i) {
    schedule.push_back(request_of(prompts[i], static_cast<int64_t>(i), body_options(spec, plan, model)));
    schedule.back().golden.clear();
  }
  return schedule;
}

std::vector<LoadRequest> golden_schedule(const ServeLoadSpec& spec, const ServeLoadPlan& plan,
                                         const ServedModelInfo& model, int64_t n) {
  const std::vector<PlannedPrompt> prompts = plan_prompts(plan.dataset);
  BodyOptions options = body_options(spec, plan, model);
  options.cached = false;
  std::vector<LoadRequest> schedule;
  for (int64_t i = 0; i < static_cast<int64_t>(prompts.size()) && static_cast<int64_t>(schedule.size()) < n; ++i) {
    if (disconnects(spec, i)) continue;
    schedule.push_back(request_of(prompts[static_cast<size_t>(i)], i, options));
    schedule.back().golden.clear();
  }
  return schedule;
}

}  // namespace rw
