#include "libcore/api/request_telemetry.h"

#include <algorithm>

#include "libcore/base/clock.h"

namespace rw {

RequestTelemetry::RequestTelemetry(RequestRecord record, ServerMetrics& metrics, SpanLog* spans)
    : record_(std::move(record)),
      metrics_(metrics),
      spans_(spans),
      choices_(record_.prompt_tokens.size() * static_cast<size_t>(record_.n)) {}

void RequestTelemetry::event(const SequenceEvent& event) {
  const std::lock_guard lock(mutex_);
  if (event.choice < 0 || event.choice >= static_cast<int64_t>(choices_.size())) return;
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  if (choice.finished) return;
  preempted(choice, event.times);
  if (!event.tokens.empty()) tokens(choice, event);
  if (event.finish != FinishReason::none) finished(choice, event);
}

void RequestTelemetry::tokens(Choice& choice, const SequenceEvent& event) {
  const double now = event.times.last_token > 0 ? event.times.last_token : now_s();
  auto n = static_cast<int64_t>(event.tokens.size());
  if (choice.last_token_s == 0) {
    metrics_.first_token(now - record_.received_s);
    --n;  // no gap before the first
  } else {
    const double gap = (now - choice.last_token_s) / static_cast<double>(n);
    choice.worst_gap_s = std::max(choice.worst_gap_s, gap);
    metrics_.token_gaps(gap, n);
  }
  choice.last_token_s = now;
  choice.n_tokens += static_cast<int64_t>(event.tokens.size());
}

// A sequence is preempted between two of its tokens, and waits from then on until it is scheduled again.
void RequestTelemetry::preempted(Choice& choice, const SequenceTimes& times) const {
  const double wait = times.preempted_s - choice.preempted_s;
  if (wait <= 0) return;
  const double from = choice.last_token_s > 0 ? choice.last_token_s : times.scheduled;
  choice.waits.push_back({.name = "preempted", .start_s = from, .end_s = from + wait});
  choice.preempted_s = times.preempted_s;
}

void RequestTelemetry::finished(Choice& choice, const SequenceEvent& event) {
  choice.finished = true;
  const size_t prompt = static_cast<size_t>(event.choice / record_.n);
  metrics_.finished({.reason = event.finish,
                     .timings = timings_of(event.times),
                     .prompt_tokens = record_.prompt_tokens[prompt],
                     .completion_tokens = choice.n_tokens,
                     .worst_gap_s = choice.worst_gap_s});
  if (spans_ != nullptr) keep_spans(choice, event);
}

void RequestTelemetry::keep_spans(const Choice& choice, const SequenceEvent& event) {
  const SequenceTimes& t = event.times;
  SequenceSpans all{.request_id = record_.id,
                    .trace_id = record_.trace.trace_id,
                    .sequence = event.choice,
                    .receive_s = record_.received_s,
                    .spans = choice.waits,
                    .counts = {{"prompt_tokens", record_.prompt_tokens[static_cast<size_t>(event.choice / record_.n)]},
                               {"cached_tokens", event.usage.cached_tokens},
                               {"completion_tokens", choice.n_tokens},
                               {"preemptions", t.n_preemptions}},
                    .finish_reason = finish_reason_name(event.finish)};
  const auto add = [&](const char* name, double from, double to) {
    if (from > 0 && to >= from) all.spans.push_back({.name = name, .start_s = from, .end_s = to});
  };
  add("receive", record_.received_s, record_.handled_s);
  add("tokenize", record_.handled_s, record_.tokenized_s);
  add("queue", t.queued, t.scheduled);
  add("prefill", t.scheduled, t.first_token);
  add("decode", t.first_token, t.last_token);
  add("stream", t.first_token, now_s());  // around decode: until the last token was handed on
  spans_->add(all);
}

}  // namespace rw
