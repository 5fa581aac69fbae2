#include "libcore/serve/live_sequence.h"

#include <algorithm>
#include <utility>

namespace rw {
namespace {

bool holds(const std::vector<int32_t>& ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

TextStreamSpec text_spec(const SequenceRequest& r) {
  return {.stop = r.stop, .include_stop = r.include_stop, .skip_special_tokens = r.skip_special_tokens};
}

}  // namespace

const char* finish_reason_name(FinishReason r) {
  switch (r) {
    case FinishReason::none: return "none";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "abort";
    case FinishReason::error: return "error";
  }
  return "?";
}

LiveSequence::LiveSequence(SequenceId id, SequenceRequest request, std::shared_ptr<EventSink> sink,
                           const Tokenizer& tokenizer, const Limits& limits)
    : id_(id),
      request_(std::move(request)),
      sink_(std::move(sink)),
      tokenizer_(tokenizer),
      max_new_(std::min(request_.max_tokens, limits.max_model_len - static_cast<int64_t>(request_.prompt.size()))),
      text_(tokenizer, text_spec(request_)) {
  usage_.prompt_tokens = static_cast<int64_t>(request_.prompt.size());
  if (!request_.ignore_eos) model_ends_ = limits.ends;
  std::vector<int32_t>& ends = request_.sampling.ends;
  ends = model_ends_;
  ends.insert(ends.end(), request_.stop_token_ids.begin(), request_.stop_token_ids.end());
  times_.received = request_.received_s;
}

bool LiveSequence::scheduled(double now, int64_t cached) {
  if (waiting_since_ > 0) times_.preempted_s += now - std::exchange(waiting_since_, 0);
  if (times_.scheduled > 0) return false;
  times_.scheduled = now;
  usage_.cached_tokens = cached;
  return true;
}

void LiveSequence::preempted(double now) {
  waiting_since_ = now;
  prompt_scores_.clear();  // its prompt is fed again from the beginning
  ++times_.n_preemptions;
}

TokenOut LiveSequence::out(Sampled token) const {
  const std::string_view bytes = tokenizer_.token_bytes(token.id);
  return {.token = std::move(token), .bytes = std::string(bytes)};
}

SequenceEvent LiveSequence::event() const {
  return {.sequence = id_,
          .choice = request_.choice,
          .text = {},
          .tokens = {},
          .prompt = {},
          .finish = finish_,
          .stop_string = {},
          .error = {},
          .usage = usage_,
          .times = times_};
}

void LiveSequence::take_token(const Sampled& token, SequenceEvent& event) {
  ++usage_.completion_tokens;
  event.tokens.push_back(out(token));
  const bool stop_token = holds(request_.stop_token_ids, token.id);
  if (stop_token || holds(model_ends_, token.id)) {
    finish_ = FinishReason::stop;
    if (stop_token) event.stop_token = token.id;
    if (request_.include_stop) event.text += text_.push(token.id);
  } else {
    event.text += text_.push(token.id);
    if (text_.stopped_by() >= 0) {
      finish_ = FinishReason::stop;
      event.stop_string = request_.stop[static_cast<size_t>(text_.stopped_by())];
    } else if (usage_.completion_tokens >= max_new_) {
      finish_ = FinishReason::length;
    }
  }
  if (finish_ != FinishReason::none) event.text += text_.finish();
}

std::optional<SequenceEvent> LiveSequence::stepped(const SequenceResult& result, double now, bool prompt_done) {
  // A sequence that is preempted later feeds its prompt again: those scores were told.
  const bool told_before = usage_.completion_tokens > 0;
  const int64_t wanted = request_.prompt_logprobs >= 0 && !told_before ? usage_.prompt_tokens - 1 : 0;
  for (const Sampled& score : result.prompt)
    if (static_cast<int64_t>(prompt_scores_.size()) < wanted) prompt_scores_.push_back(out(score));
  const bool scored = prompt_done && max_new_ == 0;
  if (!result.sampled && !scored) return std::nullopt;
  if (times_.first_token == 0) times_.first_token = now;
  times_.last_token = now;
  SequenceEvent told = event();
  if (usage_.completion_tokens == 0) told.prompt = std::exchange(prompt_scores_, {});
  if (scored) finish_ = FinishReason::length;
  else take_token(result.token, told);
  told.finish = finish_;
  told.usage = usage_;
  told.times = times_;
  return told;
}

SequenceEvent LiveSequence::ended(FinishReason reason, const std::string& error) {
  finish_ = reason;
  SequenceEvent told = event();
  told.text = text_.finish();
  told.error = error;
  return told;
}

}  // namespace rw
