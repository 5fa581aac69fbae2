#include "libcore/api/generation_reply.h"

#include "libcore/api/json_text.h"
#include "libcore/base/clock.h"

namespace rw {
namespace {

constexpr const char* kEventStream = "text/event-stream; charset=utf-8";

}  // namespace

GenerationReply::GenerationReply(GenerationReplySpec spec, HttpReply reply)
    : spec_(std::move(spec)),
      reply_(std::move(reply)),
      chunks_(spec_.shape),
      unfinished_(static_cast<int64_t>(spec_.prompts.size()) * spec_.n),
      last_write_s_(now_s()) {
  choices_.reserve(static_cast<size_t>(unfinished_));
  for (const PromptTokens& prompt : spec_.prompts)
    for (int64_t j = 0; j < spec_.n; ++j)
      choices_.emplace_back(spec_.shape, ChoiceReply::Spec{.index = static_cast<int64_t>(choices_.size()),
                                                           .prompt_ids = &prompt.ids,
                                                           .echo = spec_.echo ? &prompt.text : nullptr,
                                                           .stop_token_ids = &spec_.stop_token_ids});
}

void GenerationReply::admitted(Engine& engine, SequenceId first) {
  bool ended_before = false;  // events may come before submit has returned
  {
    const std::lock_guard lock(mutex_);
    engine_ = &engine;
    first_ = first;
    ended_before = over_ && unfinished_ > 0;
  }
  if (ended_before) return cancel_all();
  // Weak: the reply's connection must not keep this alive, which keeps the connection's reply.
  reply_.on_gone([self = weak_from_this()] {
    if (const auto reply = self.lock()) reply->client_gone();
  });
}

void GenerationReply::push(const SequenceEvent& event) {
  if (spec_.observe) spec_.observe(event);
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    if (over_ || event.choice < 0 || event.choice >= static_cast<int64_t>(choices_.size())) return;
    if (event.finish == FinishReason::error) {
      const bool stopping = spec_.stopping && spec_.stopping();
      fail_with({.status = stopping ? 503 : 500,
                 .message = event.error.empty() ? "the engine failed" : event.error,
                 .type = stopping ? "unavailable_error" : "server_error",
                 .retry_after_s = stopping ? 1.0 : 0.0});
      failed = true;
    } else {
      ChoiceReply& choice = choices_[static_cast<size_t>(event.choice)];
      if (!choice.take(event)) return;
      has_token_ = has_token_ || !event.tokens.empty();
      if (choice.finished()) {
        --unfinished_;
        take_longest(timings_, timings_of(event.times));
      }
      const bool last = unfinished_ == 0;
      if (spec_.stream) {
        const ReplyUsage so_far = usage();
        // With a chunk of usage to come, the timings are there.
        const bool tells = last && spec_.timings && !spec_.shape.include_usage;
        write(choice.chunk(chunks_, spec_.shape.continuous_usage ? &so_far : nullptr, tells ? timings_text() : ""));
      }
      if (last) finish();
    }
  }
  if (failed) cancel_all();
}

void GenerationReply::write(std::string chunk) {
  if (!begun_) {
    begun_ = true;
    reply_.begin(200, kEventStream, spec_.headers);
    if (spec_.replied) spec_.replied(200);
  }
  last_write_s_ = now_s();
  reply_.write(std::move(chunk));
}

void GenerationReply::end() {
  over_ = true;
  spec_.hold.reset();
}

void GenerationReply::finish() {
  end();
  if (spec_.stream) {
    std::string end;
    if (spec_.shape.include_usage) end = chunks_.usage(usage(), spec_.timings ? timings_text() : "");
    end += kSseDone;
    write(std::move(end));
    reply_.finish();
    return;
  }
  std::string out = reply_head(spec_.shape, /*stream=*/false);
  if (spec_.shape.chat && spec_.shape.token_ids) {
    out += ",\"prompt_token_ids\":";
    append_json_ids(out, spec_.prompts.front().ids);
  }
  out += ",\"choices\":[";
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) out += ',';
    choices_[i].append_whole(out);
  }
  out += "],\"usage\":";
  append_usage(out, usage());
  if (spec_.timings) {
    out += ",\"timings\":";
    out += timings_text();
  }
  out += '}';
  if (spec_.replied) spec_.replied(200);
  reply_.send(200, std::move(out), "application/json", spec_.headers);
}

void GenerationReply::fail_with(const Refusal& refusal) {
  end();
  if (begun_) {
    // No [DONE]: the client must not take what came for the whole answer.
    reply_.write(SseChunks::error(refusal));
    reply_.finish();
    return;
  }
  HttpHeaders headers = spec_.headers;
  append_refusal_headers(headers, refusal);
  if (spec_.replied) spec_.replied(refusal.status);
  reply_.send(refusal.status, error_body(refusal), "application/json", std::move(headers));
}

void GenerationReply::client_gone() {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    end();
    if (!begun_ && spec_.replied) spec_.replied(499);  // nginx's number for it
  }
  cancel_all();
}

// Outside the lock: the engine's output thread may be waiting for it.
void GenerationReply::cancel_all() {
  Engine* engine = nullptr;
  SequenceId first = -1;
  {
    const std::lock_guard lock(mutex_);
    engine = engine_;
    first = first_;
  }
  if (engine == nullptr) return;
  for (size_t i = 0; i < choices_.size(); ++i) engine->cancel(first + static_cast<SequenceId>(i));
}

void GenerationReply::tick(double now) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    const bool late = spec_.timeout_s > 0 && now - spec_.received_s > spec_.timeout_s;
    if (!late) {
      if (spec_.stream && spec_.keepalive_s > 0 && now - last_write_s_ >= spec_.keepalive_s)
        write(std::string(kSseKeepAlive));
      return;
    }
    spec_.headers.emplace_back("x-should-retry", "false");
    fail_with({.status = 408,
               .message = fmt::format("timeout: the answer was not there after {} s", spec_.timeout_s),
               .type = "timeout_error",
               .param = "timeout",
               .code = "timeout"});
  }
  cancel_all();
}

bool GenerationReply::over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

double GenerationReply::wait_s(double now) const {
  const std::lock_guard lock(mutex_);
  return over_ || has_token_ ? 0 : now - spec_.received_s;
}

ReplyUsage GenerationReply::usage() const {
  ReplyUsage u;
  for (const PromptTokens& prompt : spec_.prompts) u.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    u.completion_tokens += choices_[i].completion_tokens();
    // Choices of one prompt find it in the cache because of each other; what counts is what the first one found.
    if (i % static_cast<size_t>(spec_.n) == 0) u.cached_tokens += choices_[i].cached_tokens();
  }
  return u;
}

std::string GenerationReply::timings_text() const { return timings_json(timings_, usage().cached_tokens); }

}  // namespace rw
