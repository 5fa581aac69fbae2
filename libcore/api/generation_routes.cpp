// POST /v1/completions and /v1/chat/completions: parse, tokenize, admit; the rest is the engine's and the reply's.
#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <random>

#include "libcore/api/generation_reply.h"
#include "libcore/api/prompt_tokens.h"
#include "libcore/api/request_telemetry.h"
#include "libcore/api/routes.h"
#include "libcore/base/clock.h"
#include "libcore/base/log.h"

namespace rw {
namespace {

int64_t unix_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A request whose prompts have been tokenized.
struct Prepared {
  bool chat = false;
  GenerationRequest request;
  bool default_max_tokens = false, echo = false;
  std::vector<PromptTokens> prompts;
};

Prepared prepare_completion(const std::string& body, const LoadedModel& loaded) {
  CompletionRequest parsed = parse_completion_request(body, loaded.limits);
  Prepared p{.request = std::move(parsed.common), .default_max_tokens = parsed.default_max_tokens, .echo = parsed.echo};
  for (const Prompt& prompt : parsed.prompts) {
    p.prompts.push_back(completion_prompt(prompt, p.request, loaded.model));
    PromptTokens& tokens = p.prompts.back();
    // What is echoed is the prompt as it was given, unless it was given, or cut, as ids.
    if (p.echo && (prompt.is_ids || p.request.truncate_prompt_tokens > 0))
      tokens.text = visible_text(tokens.ids, p.request.skip_special_tokens, *loaded.model.tokenizer);
  }
  return p;
}

Prepared prepare_chat(const std::string& body, const LoadedModel& loaded) {
  ChatRequest parsed = parse_chat_request(body, loaded.limits);
  Prepared p{.chat = true, .request = std::move(parsed.common)};
  p.prompts.push_back(chat_prompt(parsed.prompt, p.request, loaded.model));
  return p;
}

uint64_t random_seed() {
  std::random_device source;
  return (uint64_t{source()} << 32) | source();
}

std::vector<SequenceRequest> sequences_of(const Prepared& p, const Exchange& x, const ApiState& state,
                                          const LoadedModel& loaded) {
  const GenerationRequest& r = p.request;
  const auto server_seed = static_cast<uint64_t>(state.spec.seed);
  const uint64_t seed = r.seed ? *r.seed : server_seed != 0 ? server_seed : random_seed();
  std::vector<SequenceRequest> sequences;
  for (const PromptTokens& prompt : p.prompts) {
    const int64_t room = answer_room({.n_prompt = static_cast<int64_t>(prompt.ids.size()),
                                      .max_tokens = r.max_tokens,
                                      .is_default = p.default_max_tokens,
                                      .max_model_len = loaded.model.max_model_len,
                                      .param = p.chat ? "messages" : "prompt"});
    for (int64_t j = 0; j < r.n; ++j) {
      SequenceRequest s{.request_id = x.id,
                        .choice = static_cast<int64_t>(sequences.size()),
                        .prompt = prompt.ids,
                        .max_tokens = room,
                        .sampling = r.sampling,
                        .stop = r.stop,
                        .stop_token_ids = r.stop_token_ids,
                        .include_stop = r.include_stop,
                        .ignore_eos = r.ignore_eos,
                        .skip_special_tokens = r.skip_special_tokens,
                        .cache_prompt = r.cache_prompt,
                        .cache_salt = r.cache_salt,
                        .priority = r.priority,
                        .received_s = x.request.received_s};
      s.sampling.seed = seed + static_cast<uint64_t>(j);
      s.sampling.min_tokens = std::min(s.sampling.min_tokens, room);
      s.sampling.top_logprobs = r.logprobs;
      if (p.echo && r.logprobs >= 0) {
        s.prompt_logprobs = r.logprobs;
        s.cache_prompt = false;  // positions that come out of the cache have no scores
      }
      sequences.push_back(std::move(s));
    }
  }
  return sequences;
}

Refusal refusal_of(const Admission& a) {
  using Verdict = Admission::Verdict;
  switch (a.verdict) {
    case Verdict::too_long: return {.message = a.message, .param = "max_tokens", .code = "context_length_exceeded"};
    case Verdict::queue_full:
      return {.status = 429,
              .message = a.message,
              .type = "rate_limit_error",
              .code = "queue_full",
              .retry_after_s = std::max(1e-3, a.retry_after_s)};
    case Verdict::too_slow:
      return {.status = 429,
              .message = a.message,
              .type = "rate_limit_error",
              .code = "slo_unreachable",
              .retry_after_s = std::max(1e-3, a.retry_after_s)};
    case Verdict::accepted:
    case Verdict::not_serving: break;
  }
  return {.status = 503, .message = a.message, .type = "unavailable_error", .retry_after_s = a.retry_after_s};
}

const char* verdict_name(Admission::Verdict v) {
  switch (v) {
    case Admission::Verdict::accepted: return "accepted";
    case Admission::Verdict::too_long: return "too_long";
    case Admission::Verdict::queue_full: return "queue_full";
    case Admission::Verdict::too_slow: return "too_slow";
    case Admission::Verdict::not_serving: return "not_serving";
  }
  return "unknown";
}

void serve_request(ApiState& state, Exchange& x, Prepared p, const LoadedModel& loaded, double handled_s) {
  const double tokenized_s = now_s();
  state.unknown.tell(p.request.unknown);
  if (x.request.header("x-request-id") == nullptr && !p.request.request_id.empty()) x.id = p.request.request_id;

  std::vector<SequenceRequest> sequences = sequences_of(p, x, state, loaded);
  RequestRecord record{.id = x.id,
                       .trace = x.trace,
                       .n = p.request.n,
                       .received_s = x.request.received_s,
                       .handled_s = handled_s,
                       .tokenized_s = tokenized_s};
  for (const PromptTokens& prompt : p.prompts) record.prompt_tokens.push_back(static_cast<int64_t>(prompt.ids.size()));
  const auto n_prompts = static_cast<int64_t>(p.prompts.size());
  const int64_t max_tokens = sequences.front().max_tokens;

  GenerationReplySpec spec{.shape = {.chat = p.chat,
                                     .id = (p.chat ? "chatcmpl-" : "cmpl-") + x.id,
                                     .created = unix_s(),
                                     .model = loaded.model.name,
                                     .fingerprint = loaded.model.identity,
                                     .logprobs = p.request.logprobs >= 0,
                                     .include_usage = p.request.include_usage,
                                     .continuous_usage = p.request.continuous_usage,
                                     .token_ids = p.request.return_token_ids,
                                     .tokenizer = loaded.model.tokenizer,
                                     .skip_special_tokens = p.request.skip_special_tokens},
                           .stream = p.request.stream,
                           .timings = p.request.timings,
                           .echo = p.echo,
                           .n = p.request.n,
                           .prompts = std::move(p.prompts),
                           .stop_token_ids = p.request.stop_token_ids,
                           .timeout_s = p.request.timeout_s,
                           .keepalive_s = state.spec.sse_keepalive,
                           .received_s = x.request.received_s,
                           .headers = x.headers(),
                           .replied = x.replied,
                           .stopping = [&state] { return state.stopping.load(); }};
  // Shared: the observer is copied with the function that holds it.
  auto telemetry = std::make_shared<RequestTelemetry>(std::move(record), state.metrics, state.spans.get());
  spec.observe = [telemetry](const SequenceEvent& event) { telemetry->event(event); };

  if (!p.request.request_id.empty()) {
    spec.hold = state.live.hold(p.request.request_id);
    if (spec.hold == nullptr) refuse("request_id", "another request of this id is under way");
  }
  auto reply = std::make_shared<GenerationReply>(std::move(spec), x.reply);
  x.answered = true;  // by the engine's events, which may be there before submit returns
  const Admission admission = loaded.engine->submit(std::move(sequences), reply);
  if (admission.verdict != Admission::Verdict::accepted) {
    state.metrics.rejected(verdict_name(admission.verdict));
    reply.reset();  // with the name it holds, before the client can try again
    x.answered = false;
    x.refuse(refusal_of(admission));
    return;
  }
  state.metrics.admitted({.prompts = n_prompts, .n = p.request.n, .max_tokens = max_tokens});
  reply->admitted(*loaded.engine, admission.first);
  state.live.add(reply);
}

}  // namespace

void post_completions(ApiState& state, Exchange& x) {
  const double handled_s = now_s();
  const LoadedModel& loaded = state.require_serving();
  serve_request(state, x, prepare_completion(x.request.body, loaded), loaded, handled_s);
}

void post_chat_completions(ApiState& state, Exchange& x) {
  const double handled_s = now_s();
  const LoadedModel& loaded = state.require_serving();
  serve_request(state, x, prepare_chat(x.request.body, loaded), loaded, handled_s);
}

}  // namespace rw
