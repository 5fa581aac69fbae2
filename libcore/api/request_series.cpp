#include "libcore/api/request_series.h"

namespace rw {
namespace {

using Bounds = std::vector<double>;
const Bounds kTtft = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                      0.75,  1,      2.5,   5,    7.5,  10,   20,   40,   80,  160,  640};
const Bounds kGap = {0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
                     0.075, 0.1,   0.15,  0.2,   0.3,    0.5,  0.75,  1,    2.5,   5,    10,   20};
const Bounds kRequest = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1,   1.5, 2.5,
                         5,    10,    15,   20,  30,   60,  120,  240, 480, 960};
const Bounds kTokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

size_t index_of(FinishReason reason) { return static_cast<size_t>(reason) - static_cast<size_t>(FinishReason::stop); }

}  // namespace

RequestSeries::RequestSeries(MetricRegistry& r, double slo_ttft_s, double slo_itl_s)
    : registry_(r),
      ttft_(
          r.histogram("rankwright_time_to_first_token_seconds", "From a request's arrival to its first token.", kTtft)),
      itl_(r.histogram("rankwright_inter_token_latency_seconds", "Between two tokens of a sequence.", kGap)),
      tpot_(r.histogram("rankwright_time_per_output_token_seconds",
                        "Mean time between the tokens of a finished sequence.", kGap)),
      e2e_(r.histogram("rankwright_request_latency_seconds", "From a request's arrival to a sequence's last token.",
                       kRequest)),
      queue_(r.histogram("rankwright_request_queue_seconds", "From the queue into a step.", kRequest)),
      prefill_(r.histogram("rankwright_request_prefill_seconds", "From the first step to the first token.", kRequest)),
      decode_(r.histogram("rankwright_request_decode_seconds", "From the first to the last token.", kRequest)),
      preempted_(r.histogram("rankwright_request_preempted_seconds", "Waiting after preemptions.", kRequest)),
      prompt_(r.histogram("rankwright_request_prompt_tokens", "Tokens of a sequence's prompt.", kTokens)),
      generation_(r.histogram("rankwright_request_generation_tokens", "Tokens of a sequence's answer.", kTokens)),
      admitted_(r.counter("rankwright_requests_admitted_total", "Requests that the engine took.")),
      slo_ttft_(slo("ttft", slo_ttft_s)),
      slo_itl_(slo("itl", slo_itl_s)) {
  for (const FinishReason reason :
       {FinishReason::stop, FinishReason::length, FinishReason::cancelled, FinishReason::error})
    finished_[index_of(reason)] =
        &r.counter("rankwright_sequences_finished_total", "Sequences that have ended, by how.",
                   {{"reason", finish_reason_name(reason)}});
}

RequestSeries::Slo RequestSeries::slo(const char* name, double limit_s) {
  Slo slo{.limit_s = limit_s};
  if (limit_s <= 0) return slo;
  const char* help =
      "Sequences within the limit of --slo-ttft-ms or, with every gap, of --slo-itl-ms; and those beyond.";
  slo.kept = &registry_.counter("rankwright_slo_sequences_total", help, {{"slo", name}, {"attained", "true"}});
  slo.missed = &registry_.counter("rankwright_slo_sequences_total", help, {{"slo", name}, {"attained", "false"}});
  return slo;
}

void RequestSeries::Slo::count(double value_s) {
  if (limit_s <= 0) return;
  (value_s <= limit_s ? kept : missed)->add();
}

void RequestSeries::rejected(const std::string& reason) {
  registry_
      .counter("rankwright_requests_rejected_total", "Requests that the engine did not take, by why.",
               {{"reason", reason}})
      .add();
}

void RequestSeries::admitted(const AdmittedRequest&) { admitted_.add(); }

void RequestSeries::first_token(double ttft_s) {
  ttft_.observe(ttft_s);
  slo_ttft_.count(ttft_s);
}

void RequestSeries::token_gaps(double gap_s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) itl_.observe(gap_s);
}

void RequestSeries::finished(const FinishedSequence& s) {
  finished_[index_of(s.reason)]->add();
  if (s.reason != FinishReason::stop && s.reason != FinishReason::length) return;
  prompt_.observe(static_cast<double>(s.prompt_tokens));
  generation_.observe(static_cast<double>(s.completion_tokens));
  if (s.completion_tokens == 0) return;
  e2e_.observe(s.timings.total_s);
  queue_.observe(s.timings.queue_s);
  prefill_.observe(s.timings.prefill_s);
  decode_.observe(s.timings.decode_s);
  preempted_.observe(s.timings.preempted_s);
  if (s.completion_tokens < 2) return;
  tpot_.observe(s.timings.decode_s / static_cast<double>(s.completion_tokens - 1));
  slo_itl_.count(s.worst_gap_s);
}

}  // namespace rw
