#include "libcore/bench/load/reply_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace rw {
namespace {

constexpr size_t kMaxWholeBytes = 64 << 20, kMaxRefusalBytes = 64 << 10;

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 120));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > 126) c = '?';
  return out;
}

}  // namespace

ReplyReader::ReplyReader(const LoadRequest& request, ReplyText keep_text, LoadOutcome& outcome)
    : request_(request), keep_(request.golden.empty() ? keep_text : ReplyText::keep), outcome_(outcome) {}

void ReplyReader::head(int status, std::string_view content_type, double at_s) {
  outcome_.status = status;
  outcome_.first_byte_s = at_s;
  if (status != 200) {
    form_ = Form::refusal;
  } else if (!request_.stream) {
    form_ = Form::whole;
  } else if (content_type.empty() || (content_type.starts_with("text/") && !content_type.starts_with("text/html"))) {
    form_ = Form::stream;
  } else {
    form_ = Form::refusal;  // read for the error it may hold
  }
}

void ReplyReader::body(std::string_view bytes, double at_s) {
  if (over_ || done_) return;
  if (form_ != Form::stream) {
    if (body_.size() + bytes.size() <= kMaxWholeBytes && (form_ == Form::whole || body_.size() < kMaxRefusalBytes))
      body_ += bytes;
    else if (form_ == Form::whole)
      conclude(LoadEnd::malformed_stream, fmt::format("a reply of more than {} bytes", kMaxWholeBytes), at_s);
    return;
  }
  while (!over_ && !done_) {
    const SseParser::Step step = sse_.feed(bytes);
    bytes.remove_prefix(step.taken);
    if (step.event == SseParser::Event::more) return;
    if (step.event == SseParser::Event::failed)
      return conclude(LoadEnd::malformed_stream, "an event without an end", at_s);
    event(step.data, at_s);
  }
}

void ReplyReader::event(std::string_view data, double at_s) {
  if (data.starts_with("[DONE]")) {
    done_ = true;
    last_s_ = at_s;
    return;
  }
  if (!read_reply_fields(data, keep_, fields_))
    return conclude(LoadEnd::malformed_stream, fmt::format("expected a chunk of JSON, found \"{}\"", shown(data)),
                    at_s);
  if (fields_.is_error) return conclude(LoadEnd::error_event, fields_.error, at_s);
  last_s_ = at_s;
  take(fields_, at_s);
  if (request_.disconnect_after_tokens >= 0 && counted_ + early_ >= request_.disconnect_after_tokens)
    conclude(LoadEnd::disconnected, "", at_s);
}

void ReplyReader::take(const ReplyFields& f, double at_s) {
  outcome_.text += f.text;
  if (!f.finish_reason.empty()) outcome_.finish_reason = f.finish_reason;
  most_index_ = std::max(most_index_, f.most_index);
  if (f.prompt_tokens >= 0) {
    outcome_.prompt_tokens = f.prompt_tokens;
    outcome_.prompt_known = true;
  }
  if (f.completion_tokens >= 0) {
    outcome_.output_tokens = f.completion_tokens;
    outcome_.usage_known = true;
  }
  if (f.cached_tokens >= 0) outcome_.cached_tokens = f.cached_tokens;
  const auto seconds = [](double ms, double& to) {
    if (ms >= 0) to = ms / 1e3;
  };
  seconds(f.queue_ms, outcome_.queue_s);
  seconds(f.prefill_ms, outcome_.prefill_s);
  seconds(f.decode_ms, outcome_.decode_s);
  seconds(f.ttft_ms, outcome_.server_ttft_s);
  seconds(f.total_ms, outcome_.server_total_s);
  if (f.choices > 0) count_tokens(f, at_s);
}

void ReplyReader::count_tokens(const ReplyFields& f, double at_s) {
  int64_t tokens = -1;
  if (f.token_ids < 0 && f.with_text > 0) all_ids_ = false;
  if (f.token_ids >= 0) tokens = f.token_ids;
  else if (f.completion_tokens >= 0 && all_counted_) tokens = std::max<int64_t>(0, f.completion_tokens - told_);
  if (f.completion_tokens >= 0) told_ = f.completion_tokens;
  else if (tokens > 0) told_ += tokens;
  if (tokens < 0) {
    if (f.with_text == 0) return;  // a role, or a bare finish_reason
    all_counted_ = false;
    tokens = f.with_text;
  }
  if (outcome_.chunks.empty() && f.with_text == 0) {
    if (early_ == 0) early_s_ = at_s;
    early_ += tokens;
    return;
  }
  if (outcome_.chunks.empty()) {
    tokens += early_;
    early_ = 0;
    // Text without a token of its own: its token is in a count still to come.
    outcome_.chunks.push_back({at_s, tokens});
  } else if (tokens > 0) {
    outcome_.chunks.push_back({at_s, tokens});
  }
  counted_ += tokens;
}

void ReplyReader::read_whole(double at_s) {
  if (!read_reply_fields(body_, keep_, fields_))
    return conclude(LoadEnd::malformed_stream, fmt::format("expected a reply of JSON, found \"{}\"", shown(body_)),
                    at_s);
  if (fields_.is_error) return conclude(LoadEnd::error_event, fields_.error, at_s);
  if (fields_.choices < 1)
    return conclude(LoadEnd::malformed_stream, "expected choices in the reply, found none", at_s);
  take(fields_, at_s);
  outcome_.chunks.clear();
  conclude(LoadEnd::ok, "", at_s);
}

void ReplyReader::end(double at_s) {
  if (over_) return;
  if (form_ == Form::whole) return read_whole(at_s);
  if (form_ == Form::stream) {
    const SseParser::Step last = done_ ? SseParser::Step{} : sse_.finish();
    if (last.event == SseParser::Event::event) event(last.data, at_s);
    if (over_) return;
    if (done_) return conclude(LoadEnd::ok, "", last_s_);
    if (!outcome_.finish_reason.empty()) return conclude(LoadEnd::ok, "", at_s);
    return conclude(LoadEnd::closed_mid_stream, "the stream ended without a finish_reason or [DONE]", at_s);
  }
  const std::string said = reply_error_text(body_);
  if (outcome_.status == 200) {
    ReplyFields error;
    if (read_reply_fields(body_, ReplyText::drop, error) && error.is_error)
      return conclude(LoadEnd::error_event, error.error, at_s);
    return conclude(LoadEnd::malformed_stream, fmt::format("expected text/event-stream, found \"{}\"", shown(body_)),
                    at_s);
  }
  const LoadEnd how = outcome_.status == 429   ? LoadEnd::refused_429
                      : outcome_.status == 503 ? LoadEnd::refused_503
                                               : LoadEnd::http_error;
  conclude(how, fmt::format("HTTP {}{}{}", outcome_.status, said.empty() ? "" : ": ", said), at_s);
}

void ReplyReader::broken(LoadEnd how, std::string_view why, double at_s) {
  if (over_) return;
  if (done_) return conclude(LoadEnd::ok, "", last_s_);
  conclude(how, why, at_s);
}

// What was seen counts where usage cannot be true: more than was asked for (of each choice), or far from the token ids.
void ReplyReader::doubt_usage() {
  if (!outcome_.usage_known) return;
  const auto said = static_cast<double>(outcome_.output_tokens), seen = static_cast<double>(counted_);
  constexpr double kEndTokens = 2, kApart = 0.1;
  const bool too_many =
      request_.max_tokens > 0 && said > static_cast<double>(request_.max_tokens) * static_cast<double>(most_index_ + 1);
  const bool by_ids = form_ == Form::stream && all_ids_ && counted_ > 0;
  if (!too_many && !(by_ids && std::abs(said - seen) > std::max(kEndTokens, kApart * seen))) return;
  outcome_.usage_doubted = true;
  outcome_.usage_known = false;
  outcome_.output_tokens = counted_;
}

void ReplyReader::conclude(LoadEnd how, std::string_view why, double at_s) {
  over_ = true;
  if (early_ > 0) {  // tokens that no text followed
    outcome_.chunks.push_back({early_s_, early_});
    counted_ += early_;
    early_ = 0;
  }
  if (how == LoadEnd::ok) doubt_usage();
  if (!outcome_.prompt_known && request_.input_exact) {
    outcome_.prompt_tokens = request_.input_tokens;
    outcome_.prompt_known = true;
  }
  if (!outcome_.usage_known || how != LoadEnd::ok) outcome_.output_tokens = std::max(outcome_.output_tokens, counted_);
  outcome_.tokens_exact = form_ == Form::stream && all_counted_ && counted_ > 0 &&
                          (!outcome_.usage_known || counted_ == outcome_.output_tokens);
  outcome_.end = how;
  outcome_.error = why;
  outcome_.end_s = at_s;
  const bool has_reason = !outcome_.finish_reason.empty() && outcome_.finish_reason != "length";
  if (how == LoadEnd::ok && outcome_.output_tokens == 0 && !has_reason && request_.max_tokens > 0) {
    outcome_.end = LoadEnd::no_output;
    outcome_.error =
        fmt::format("the reply ended well without any output, {} tokens were asked for", request_.max_tokens);
    return;
  }
  if (how == LoadEnd::ok && !request_.golden.empty() && outcome_.text != request_.golden) {
    outcome_.end = LoadEnd::wrong_text;
    outcome_.error = fmt::format("expected \"{}\", found \"{}\"", request_.golden.substr(0, 200),
                                 std::string_view(outcome_.text).substr(0, 200));
  }
}

}  // namespace rw
