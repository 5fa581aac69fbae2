#include "libcore/serve/live_engine.h"

#include <algorithm>
#include <chrono>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/log.h"

namespace rw {
namespace {

constexpr double kIdle_s = 0.25;     // between looks at the ranks while there is nothing to do
constexpr double kMemory_s = 0.25;   // between snapshots of who holds which pages
constexpr int64_t kTouched = 512;    // tokens of the first step, which serves nobody
constexpr double kNewService = 0.1;  // weight of a finished sequence in the mean time of one

}  // namespace

LiveEngine::LiveEngine(EngineSpec spec, std::unique_ptr<StepRunner> runner, const Tokenizer& tokenizer, StepLog log)
    : spec_(std::move(spec)),
      runner_(std::move(runner)),
      tokenizer_(tokenizer),
      log_(std::move(log)),
      started_s_(now_s()),
      scheduler_(spec_.scheduler) {
  publish(0);
  publish_memory(started_s_);
  teller_ = std::thread([this] { hand_on(); });
  thread_ = std::thread([this] { run(); });
}

LiveEngine::~LiveEngine() { stop("the server is stopped"); }

Admission LiveEngine::submit(std::vector<SequenceRequest> sequences, std::shared_ptr<EventSink> sink) {
  Asked asked{.sequences = static_cast<int64_t>(sequences.size()), .longest_prompt = 0, .longest_total = 0};
  int64_t tokens = 0;
  for (SequenceRequest& r : sequences) {
    const auto prompt = static_cast<int64_t>(r.prompt.size());
    tokens += prompt;
    asked.longest_prompt = std::max(asked.longest_prompt, prompt);
    asked.longest_total = std::max(asked.longest_total, prompt + r.max_tokens);
    if (r.received_s == 0) r.received_s = now_s();
  }
  const std::lock_guard lock(mutex_);
  if (state_ != EngineState::ready)
    return {.verdict = Admission::Verdict::not_serving,
            .retry_after_s = 5,
            .message = state_ == EngineState::loading    ? "the model is being loaded"
                       : state_ == EngineState::draining ? "the server is shutting down"
                       : state_ == EngineState::failed   ? "the engine has failed: " + failure_
                                                         : "the server has stopped"};
  Admission admission = admit(load(), spec_.admission, asked);
  if (admission.verdict != Admission::Verdict::accepted) return admission;
  admission.first = next_id_;
  next_id_ += asked.sequences;
  inbox_sequences_ += asked.sequences;
  inbox_tokens_ += tokens;
  inbox_.emplace_back(Submitted{.first = admission.first, .sequences = std::move(sequences), .sink = std::move(sink)});
  wake_.notify_one();
  return admission;
}

Load LiveEngine::load() const {
  Load load = load_;
  load.waiting += inbox_sequences_;
  load.backlog_tokens += inbox_tokens_;
  return load;
}

void LiveEngine::cancel(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  inbox_.emplace_back(Cancelled{sequence});
  wake_.notify_one();
}

EngineStats LiveEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats s = stats_;
  s.waiting += inbox_sequences_;
  s.waiting_tokens += inbox_tokens_;
  return s;
}

EngineMemory LiveEngine::memory() const {
  const std::lock_guard lock(mutex_);
  return memory_;
}

std::string LiveEngine::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void LiveEngine::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == EngineState::ready || state_ == EngineState::loading) state_ = EngineState::draining;
}

void LiveEngine::stop(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (why_.empty()) why_ = why;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(told_mutex_);
    told_all_ = true;
    told_wake_.notify_one();
  }
  if (teller_.joinable()) teller_.join();
}

void LiveEngine::tell(const std::shared_ptr<EventSink>& sink, SequenceEvent event) {
  const std::lock_guard lock(told_mutex_);
  told_.push_back({.sink = sink, .event = std::move(event)});
  told_wake_.notify_one();
}

void LiveEngine::hand_on() {
  std::unique_lock lock(told_mutex_);
  std::deque<Told> batch;
  while (true) {
    told_wake_.wait(lock, [&] { return !told_.empty() || told_all_; });
    if (told_.empty()) return;
    batch.swap(told_);
    lock.unlock();
    for (Told& told : batch) told.sink->push(told.event);
    batch.clear();
    lock.lock();
  }
}

void LiveEngine::start(Submitted& submitted) {
  for (size_t i = 0; i < submitted.sequences.size(); ++i) {
    const SequenceId id = submitted.first + static_cast<SequenceId>(i);
    const auto [it, fresh] =
        live_.try_emplace(id, id, std::move(submitted.sequences[i]), submitted.sink, tokenizer_,
                          LiveSequence::Limits{.max_model_len = spec_.admission.max_model_len, .ends = spec_.ends});
    const LiveSequence& live = it->second;
    const SequenceRequest& r = live.request();
    if (!scheduler_.fits(static_cast<int64_t>(r.prompt.size()), r.max_tokens)) {
      // The warm-up's pages have grown since it was let in.
      tell(live.sink(), it->second.ended(FinishReason::error, "the sequence does not fit into the cache any more"));
      live_.erase(it);
      continue;
    }
    Arrival arrival{.id = id,
                    .prompt = r.prompt,
                    .max_tokens = r.max_tokens,
                    .sampling = live.sampling(),
                    .prompt_logprobs = r.prompt_logprobs,
                    .cache = r.cache_prompt,
                    .salt = r.cache_salt,
                    .priority = r.priority};
    log_.arrival(arrival);
    scheduler_.add(std::move(arrival));
    it->second.queued(now_s());
  }
}

void LiveEngine::take_messages(bool wait) {
  std::deque<Message> messages;
  {
    std::unique_lock lock(mutex_);
    if (wait)
      wake_.wait_for(lock, std::chrono::duration<double>(kIdle_s), [&] { return !inbox_.empty() || stopping_; });
    messages.swap(inbox_);
  }
  for (Message& m : messages) {
    if (auto* submitted = std::get_if<Submitted>(&m)) {
      start(*submitted);
    } else if (const auto it = live_.find(std::get<Cancelled>(m).id); it != live_.end()) {
      ++counts_.cancelled;
      tell(it->second.sink(), it->second.ended(FinishReason::cancelled, ""));
      finish(it->first);
    }
  }
  if (messages.empty()) return;
  // What was handed over is the scheduler's now: counted once, in load_ and stats_.
  publish(counts_.step_s);
}

void LiveEngine::finish(SequenceId id) {
  const auto it = live_.find(id);
  if (it->second.scheduled_s() > 0) {
    const double s = now_s() - it->second.scheduled_s();
    sequence_s_ = sequence_s_ == 0 ? s : sequence_s_ + kNewService * (s - sequence_s_);
  }
  log_.end(id);
  scheduler_.end(id);
  live_.erase(it);
}

bool LiveEngine::step() {
  StepPlan plan;
  if (!scheduler_.next(plan)) return false;
  log_.plan(plan);
  const double start = now_s();
  for (const SequenceId id : plan.ends)
    if (const auto it = live_.find(id); it != live_.end()) it->second.preempted(start);
  for (const SequenceRows& r : plan.rows)
    if (const auto it = live_.find(r.id);
        it != live_.end() && it->second.scheduled(start, scheduler_.view(r.id).cached_tokens))
      counts_.prompt_tokens += static_cast<int64_t>(it->second.request().prompt.size());
  StepOutput result = runner_->run(plan);
  const double end = now_s();

  StepOutcome outcome{.seconds = end - start, .drawn = {}};
  for (const SequenceResult& r : result.sequences)
    if (r.sampled) outcome.drawn.emplace_back(r.id, r.token.id);
  log_.outcome(outcome);
  scheduler_.done(outcome);
  counts_.generated_tokens += static_cast<int64_t>(outcome.drawn.size());
  const bool computed = !plan.rows.empty();
  counts_.steps += computed;
  std::vector<Told> told;
  for (const SequenceResult& r : result.sequences) {
    const auto it = live_.find(r.id);
    if (it == live_.end()) continue;  // a warm-up's
    LiveSequence& live = it->second;
    const bool prompt_done = scheduler_.view(r.id).fed >= static_cast<int64_t>(live.request().prompt.size());
    std::optional<SequenceEvent> event = live.stepped(r, end, prompt_done);
    if (!event) continue;
    const std::shared_ptr<EventSink> sink = live.sink();
    if (live.finish() != FinishReason::none) {
      ++(live.finish() == FinishReason::stop ? counts_.finished_stop : counts_.finished_length);
      finish(r.id);
    }
    told.push_back({.sink = sink, .event = std::move(*event)});
  }
  // First, so that who has an answer finds it counted.
  publish(computed ? outcome.seconds : counts_.step_s);
  for (Told& t : told) tell(t.sink, std::move(t.event));
  return true;
}

void LiveEngine::first_touch() {
  // The first steps of a process pay for memory that is touched for the first time, and for code and threads that are
  // not there yet. They pay here, where nobody waits and nothing is learned from them.
  const SchedulerSpec& s = spec_.scheduler;
  const int64_t n =
      std::min({s.max_batch_tokens, s.n_pages * s.block_tokens - 1, spec_.admission.max_model_len - 1, kTouched});
  if (n < 1) return;
  constexpr SequenceId kNobody = -1;
  StepPlan plan{.step = -1};
  plan.starts.push_back({.id = kNobody, .tokens = std::vector<int32_t>(static_cast<size_t>(n), 0)});
  plan.grants.push_back({.id = kNobody, .pages = {}});
  for (int64_t p = 0; p * s.block_tokens < n + 1; ++p) plan.grants.back().pages.push_back(static_cast<int32_t>(p));
  plan.rows.push_back({.id = kNobody, .first = 0, .n = n, .sample = true});
  runner_->run(plan);
  runner_->run({.step = -1,
                .ends = {},
                .starts = {},
                .grants = {},
                .rows = {{.id = kNobody, .first = n, .n = 1, .sample = false}}});
  runner_->run({.step = -1, .ends = {kNobody}});
}

void LiveEngine::warm_up() {
  for (const WarmPrompt& w : spec_.warmup) {
    if (!scheduler_.fits(static_cast<int64_t>(w.tokens.size()), 0))
      fail(ErrorKind::input, "warm-up '{}': {} tokens do not fit into the cache beside what is kept already", w.name,
           w.tokens.size());
    const SequenceId id = next_id_++;
    Arrival arrival{.id = id, .prompt = w.tokens, .max_tokens = 0, .salt = w.salt};
    log_.arrival(arrival);
    scheduler_.add(std::move(arrival));
    while (scheduler_.view(id).fed < static_cast<int64_t>(w.tokens.size())) {
      step();
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    log_.keep(id);
    const double now = now_s();
    warm_.push_back({.name = w.name, .handle = scheduler_.keep(id), .expires_s = w.ttl_s > 0 ? now + w.ttl_s : 0});
    log_.end(id);
    scheduler_.end(id);
  }
}

void LiveEngine::release_expired(double now) {
  std::erase_if(warm_, [&](const Warm& w) {
    if (w.expires_s == 0 || now < w.expires_s) return false;
    log_.release(w.handle);
    scheduler_.release(w.handle);
    return true;
  });
}

void LiveEngine::end_all(FinishReason reason, const std::string& why) {
  take_messages(false);
  for (auto& [id, live] : live_) {
    ++counts_.failed;
    tell(live.sink(), live.ended(reason, why));
  }
  live_.clear();
}

void LiveEngine::run() {
  try {
    first_touch();
    warm_up();
    EngineState loading = EngineState::loading;
    state_.compare_exchange_strong(loading, EngineState::ready);
    bool idle = false;
    while (true) {
      take_messages(idle);
      std::string why;
      {
        const std::lock_guard lock(mutex_);
        stats_.heartbeat_s = now_s();
        if (stopping_) why = why_;
      }
      if (!why.empty()) {
        end_all(FinishReason::error, why);
        runner_->run({.step = -1, .stop = true});
        state_ = EngineState::stopped;
        return;
      }
      release_expired(now_s());
      idle = !step();
      if (idle) {
        publish(counts_.step_s);
        runner_->idle();
      }
      if (const double now = now_s(); idle || now - memory_s_ > kMemory_s) publish_memory(now);
    }
  } catch (const std::exception& e) {
    log_error("the engine has failed: {}", e.what());
    {
      const std::lock_guard lock(mutex_);
      failure_ = e.what();
      state_ = EngineState::failed;
    }
    end_all(FinishReason::error, e.what());
    publish(0);
    publish_memory(now_s());
    try {
      runner_->run({.step = -1, .stop = true});  // the other ranks need not wait for a time-out
    } catch (const std::exception&) {            // the first failure says why
    }
  }
}

void LiveEngine::publish(double step_s) {
  const SchedulerStats s = scheduler_.stats();
  const StepCosts& costs = scheduler_.costs();
  counts_.step_s = step_s;
  const std::lock_guard lock(mutex_);
  const double heartbeat = now_s();
  const int64_t high = stats_.used_pages_high_water;
  stats_ = counts_;
  stats_.running = s.running;
  stats_.waiting = s.waiting;
  stats_.waiting_tokens = s.backlog_tokens;
  stats_.pages = spec_.scheduler.n_pages;
  stats_.free_pages = s.free_pages;
  stats_.cached_pages = s.cached_pages;
  stats_.pinned_pages = s.kept_pages;
  stats_.used_pages = stats_.pages - s.free_pages - s.evictable_pages;
  stats_.used_pages_high_water = std::max(high, stats_.used_pages);
  stats_.cached_tokens = s.prefix_hits;
  stats_.prefix_queries = s.prefix_queries;
  stats_.prefix_hits = s.prefix_hits;
  stats_.evicted_pages = s.evicted_pages;
  stats_.preemptions = s.preemptions;
  stats_.chunk_tokens = s.chunk_tokens;
  stats_.heartbeat_s = heartbeat;
  stats_.prefill_s_per_token = costs.prefill_s_per_token();
  stats_.decode_step_s = costs.decode_step_s(std::max<int64_t>(s.running, 1));
  load_ = {.running = s.running,
           .waiting = s.waiting,
           .blocked = s.blocked,
           .backlog_tokens = s.backlog_tokens,
           .prefill_s_per_token = costs.prefill_s_per_token(),
           .step_s = stats_.decode_step_s,
           .sequence_s = sequence_s_,
           .usable_tokens = (stats_.pages - s.kept_pages) * spec_.scheduler.block_tokens};
  inbox_sequences_ = inbox_tokens_ = 0;
  for (const Message& m : inbox_)
    if (const auto* submitted = std::get_if<Submitted>(&m))
      for (const SequenceRequest& r : submitted->sequences) {
        ++inbox_sequences_;
        inbox_tokens_ += static_cast<int64_t>(r.prompt.size());
      }
}

void LiveEngine::publish_memory(double now) {
  memory_s_ = now;
  EngineMemory m{.weights_bytes = spec_.weights_bytes,
                 .kv_bytes = spec_.kv_bytes,
                 .runtime_bytes = spec_.runtime_bytes,
                 .page_bytes = spec_.page_bytes};
  const SchedulerStats s = scheduler_.stats();
  m.pages = spec_.scheduler.n_pages;
  m.free_pages = s.free_pages;
  m.cached_pages = s.cached_pages;
  for (const auto& [id, live] : live_) {
    const SequenceView v = scheduler_.view(id);
    if (!v.running) continue;
    m.sequences.push_back({.request_id = live.request().request_id, .sequence = id, .pages = v.pages, .tokens = v.fed});
    m.partly_filled_tokens += v.pages * spec_.scheduler.block_tokens - v.fed;
  }
  for (const Warm& w : warm_) {
    const Scheduler::Kept kept = scheduler_.kept(w.handle);
    m.prefixes.push_back(
        {.name = w.name, .pages = kept.pages, .hits = kept.hits, .pinned = true, .expires_s = w.expires_s});
  }
  const std::lock_guard lock(mutex_);
  memory_ = std::move(m);
}

}  // namespace rw
