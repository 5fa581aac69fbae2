#include "libcore/serve/admission.h"

#include <fmt/core.h>

#include <algorithm>

namespace rw {
namespace {

using Verdict = Admission::Verdict;

// Seconds until one of the places of `places` running sequences is free.
double next_place_s(const Load& load, int64_t places) {
  return load.sequence_s / static_cast<double>(std::max<int64_t>(places, 1));
}

Admission refuse(Verdict verdict, double retry_after_s, std::string message) {
  return {.verdict = verdict, .retry_after_s = std::clamp(retry_after_s, 1.0, 600.0), .message = std::move(message)};
}

}  // namespace

double predicted_ttft_s(const Load& load, const AdmissionPolicy& policy, int64_t prompt_tokens) {
  const double tokens = static_cast<double>(load.backlog_tokens + prompt_tokens);
  double s = tokens * load.prefill_s_per_token + load.step_s;
  const int64_t places = load.blocked ? load.running : policy.max_seqs;
  const int64_t before = load.waiting + 1 - std::max<int64_t>(places - load.running, 0);
  if (before > 0) s += static_cast<double>(before) * next_place_s(load, places);
  return s;
}

Admission admit(const Load& load, const AdmissionPolicy& policy, const Asked& asked) {
  if (asked.longest_total > policy.max_model_len) {
    Admission a =
        refuse(Verdict::too_long, 0,
               fmt::format("expected prompt and answer of at most {} tokens together, found {} + {}; shorten "
                           "the prompt or max_tokens",
                           policy.max_model_len, asked.longest_prompt, asked.longest_total - asked.longest_prompt));
    a.retry_after_s = 0;
    return a;
  }
  if (asked.longest_total > load.usable_tokens)
    return {
        .verdict = Verdict::too_long,
        .message = fmt::format("{} + {} tokens never fit into this server's cache of {} tokens; shorten the prompt or "
                               "max_tokens",
                               asked.longest_prompt, asked.longest_total - asked.longest_prompt, load.usable_tokens)};
  const int64_t places = load.blocked ? 0 : std::max<int64_t>(policy.max_seqs - load.running, 0);
  if (load.waiting + asked.sequences > policy.max_queue + places)
    return refuse(Verdict::queue_full,
                  static_cast<double>(load.waiting + asked.sequences - policy.max_queue - places) *
                      next_place_s(load, std::max<int64_t>(load.running, 1)),
                  fmt::format("the queue is full: {} sequences wait and at most {} may; try again later", load.waiting,
                              policy.max_queue));
  // An idle server takes it: nobody else makes it late, and without a request nothing new is learned of the speed.
  if (policy.slo_ttft_s > 0 && load.running + load.waiting > 0) {
    const double s = predicted_ttft_s(load, policy, asked.longest_prompt);
    if (s > policy.slo_ttft_s)
      return refuse(
          Verdict::too_slow, s - policy.slo_ttft_s,
          fmt::format("the first token is predicted after {:.0f} ms, beyond the objective of {:.0f} ms; try again "
                      "later",
                      1000 * s, 1000 * policy.slo_ttft_s));
  }
  return {};
}

}  // namespace rw
