#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/serve/live_engine.h"
#include "tests/serve/null_model.h"

using namespace rw;
using test::NullModel;

namespace {

// Collects what the engine tells; waits are bounded.
class Collector final : public EventSink {
 public:
  void push(const SequenceEvent& e) override {
    const std::lock_guard lock(mutex_);
    events_[e.sequence].push_back(e);
    ended_ += e.finish != FinishReason::none;
    wake_.notify_all();
  }
  bool wait_ended(int n) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, std::chrono::seconds(20), [&] { return ended_ >= n; });
  }
  bool wait_tokens(SequenceId id, size_t n) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, std::chrono::seconds(20), [&] { return tokens_of(id).size() >= n; });
  }
  std::vector<int32_t> tokens(SequenceId id) {
    const std::lock_guard lock(mutex_);
    return tokens_of(id);
  }
  std::string text(SequenceId id) {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const SequenceEvent& e : events_[id]) all += e.text;
    return all;
  }
  SequenceEvent last(SequenceId id) {
    const std::lock_guard lock(mutex_);
    return events_.at(id).back();
  }
  size_t n_events(SequenceId id) {
    const std::lock_guard lock(mutex_);
    return events_[id].size();
  }

 private:
  std::vector<int32_t> tokens_of(SequenceId id) {
    std::vector<int32_t> ids;
    for (const SequenceEvent& e : events_[id])
      for (const TokenOut& t : e.tokens) ids.push_back(t.token.id);
    return ids;
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<SequenceId, std::vector<SequenceEvent>> events_;
  int ended_ = 0;
};

// The null model, a step at a time when the test lets it, or failing when it says so.
class Gated final : public StepRunner {
 public:
  explicit Gated(const SchedulerSpec& s) : model_(s.n_pages, s.block_tokens) {}
  StepOutput run(const StepPlan& plan) override {
    if (plan.stop) return {};
    std::unique_lock lock(mutex_);
    if (plan.step < 0) return model_.run(plan);  // before the engine is ready
    if (!wake_.wait_for(lock, std::chrono::seconds(20), [&] { return allowed_ > 0 || failing_; }))
      throw std::runtime_error("the test forgot its gate");
    if (failing_) throw std::runtime_error("rank 1 (host-b) is gone");
    if (allowed_ < kOpen) --allowed_;
    return model_.run(plan);
  }
  void idle() override {}
  void allow(int64_t steps) {
    const std::lock_guard lock(mutex_);
    allowed_ += steps;
    wake_.notify_all();
  }
  void open() { allow(kOpen); }
  void break_it() {
    const std::lock_guard lock(mutex_);
    failing_ = true;
    wake_.notify_all();
  }
  int64_t faults() const { return model_.n_faults; }
  size_t known() const { return model_.n_sequences(); }

 private:
  static constexpr int64_t kOpen = 1 << 30;
  NullModel model_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int64_t allowed_ = 0;
  bool failing_ = false;
};

struct Fixture {
  explicit Fixture(EngineSpec spec = {}) {
    if (spec.scheduler.n_pages == 0)
      spec.scheduler = {.n_pages = 100, .block_tokens = 4, .max_seqs = 4, .max_batch_tokens = 16};
    if (spec.admission.max_model_len == 0)
      spec.admission = {.max_model_len = 200, .max_seqs = spec.scheduler.max_seqs, .max_queue = 100};
    auto gated = std::make_unique<Gated>(spec.scheduler);
    gate = gated.get();
    engine = std::make_unique<LiveEngine>(std::move(spec), std::move(gated), *tokenizer, StepLog());
  }
  ~Fixture() { gate->open(); }
  bool wait(const std::function<bool(const EngineStats&)>& holds) {
    for (int i = 0; i < 4000; ++i) {
      if (holds(engine->stats())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  bool wait_ready() {
    return wait([&](const EngineStats&) { return engine->state() == EngineState::ready; });
  }
  SequenceId submit(SequenceRequest r) {
    const Admission a = engine->submit({std::move(r)}, sink);
    REQUIRE(a.verdict == Admission::Verdict::accepted);
    return a.first;
  }
  std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  std::shared_ptr<Collector> sink = std::make_shared<Collector>();
  std::unique_ptr<LiveEngine> engine;
  Gated* gate = nullptr;
};

const std::vector<int32_t> kPrompt = {10, 20, 30, 40, 50};

}  // namespace

TEST_CASE("an engine streams what the model draws, and says how it ended") {
  Fixture f;
  f.gate->open();
  REQUIRE(f.wait_ready());
  const SequenceId id = f.submit({.request_id = "a", .prompt = kPrompt, .max_tokens = 30});
  REQUIRE(f.sink->wait_ended(1));
  CHECK(f.sink->tokens(id) == NullModel::alone(kPrompt, 30));
  CHECK(f.sink->text(id) == f.tokenizer->decode(NullModel::alone(kPrompt, 30)));
  const SequenceEvent end = f.sink->last(id);
  CHECK(end.finish == FinishReason::length);
  CHECK(end.usage.prompt_tokens == 5);
  CHECK(end.usage.completion_tokens == 30);
  CHECK(end.times.received <= end.times.scheduled);
  CHECK(end.times.scheduled <= end.times.first_token);
  CHECK(end.times.first_token <= end.times.last_token);
  CHECK(f.wait([](const EngineStats& s) {
    return s.running == 0 && s.finished_length == 1 && s.prompt_tokens == 5 && s.generated_tokens == 30;
  }));
}

TEST_CASE("stop strings, stop ids, ends of text and the longest sequence") {
  EngineSpec spec;
  const std::vector<int32_t> out = NullModel::alone(kPrompt, 60);
  spec.ends = {out[20]};
  Fixture f(std::move(spec));
  f.gate->open();
  REQUIRE(f.wait_ready());
  const std::string text = f.tokenizer->decode(out);
  const auto run = [&](SequenceRequest r) {
    r.prompt = kPrompt;
    const SequenceId id = f.submit(std::move(r));
    static std::map<Collector*, int> ended;
    REQUIRE(f.sink->wait_ended(++ended[f.sink.get()]));
    return id;
  };
  size_t end_at = 0;  // the first time an end of text is drawn
  while (out[end_at] != out[20]) ++end_at;
  SequenceId id = run({.max_tokens = 50});
  CHECK(f.sink->last(id).finish == FinishReason::stop);
  CHECK(f.sink->last(id).stop_token == -1);
  CHECK(f.sink->last(id).usage.completion_tokens == static_cast<int64_t>(end_at) + 1);
  CHECK(f.sink->text(id) == f.tokenizer->decode({out.begin(), out.begin() + static_cast<std::ptrdiff_t>(end_at)}));

  id = run({.max_tokens = 50, .ignore_eos = true});
  CHECK(f.sink->last(id).finish == FinishReason::length);
  CHECK(f.sink->tokens(id).size() == 50);

  id = run({.max_tokens = 50, .stop = {text.substr(3, 2)}, .ignore_eos = true});
  CHECK(f.sink->last(id).finish == FinishReason::stop);
  CHECK(f.sink->last(id).stop_string == text.substr(3, 2));
  CHECK(f.sink->text(id) == text.substr(0, text.find(text.substr(3, 2))));

  id = run({.max_tokens = 50, .stop_token_ids = {out[5]}, .ignore_eos = true});
  size_t stop_at = 0;
  while (out[stop_at] != out[5]) ++stop_at;
  CHECK(f.sink->last(id).stop_token == out[5]);
  CHECK(f.sink->last(id).usage.completion_tokens == static_cast<int64_t>(stop_at) + 1);

  CHECK(f.engine->submit({{.prompt = kPrompt, .max_tokens = 196}}, f.sink).verdict == Admission::Verdict::too_long);
  CHECK(f.engine->submit({{.prompt = kPrompt, .max_tokens = 195, .ignore_eos = true}}, f.sink).verdict ==
        Admission::Verdict::accepted);
}

TEST_CASE("a cancelled sequence is gone before the next step and its neighbour goes on") {
  Fixture f;
  REQUIRE(f.wait_ready());
  const int64_t free = f.engine->stats().free_pages;
  f.gate->allow(3);
  const SequenceId a = f.submit({.prompt = kPrompt, .max_tokens = 100, .cache_prompt = false});
  const SequenceId b = f.submit({.prompt = {7, 7, 7}, .max_tokens = 20, .cache_prompt = false});
  REQUIRE(f.sink->wait_tokens(a, 2));
  f.engine->cancel(a);
  f.engine->cancel(12345);
  f.gate->open();
  REQUIRE(f.sink->wait_ended(2));
  CHECK(f.sink->last(a).finish == FinishReason::cancelled);
  CHECK(f.sink->tokens(a).size() <= 5);
  CHECK(f.sink->tokens(b) == NullModel::alone({7, 7, 7}, 20));
  CHECK(f.wait([&](const EngineStats& s) { return s.free_pages == free && s.cancelled == 1 && s.running == 0; }));
}

TEST_CASE("the queue is bounded, all sequences of a request or none") {
  EngineSpec spec;
  spec.scheduler = {.n_pages = 100, .block_tokens = 4, .max_seqs = 2, .max_batch_tokens = 16};
  spec.admission = {.max_model_len = 200, .max_seqs = 2, .max_queue = 1};
  Fixture f(std::move(spec));
  REQUIRE(f.wait_ready());
  const auto several = [&](size_t n) {
    return f.engine->submit(std::vector<SequenceRequest>(n, {.prompt = kPrompt, .max_tokens = 5}), f.sink);
  };
  CHECK(several(4).verdict == Admission::Verdict::queue_full);
  CHECK(several(3).verdict == Admission::Verdict::accepted);
  const Admission full = several(1);
  CHECK(full.verdict == Admission::Verdict::queue_full);
  CHECK(full.retry_after_s >= 1);
  f.gate->open();
  REQUIRE(f.sink->wait_ended(3));
  CHECK(several(1).verdict == Admission::Verdict::accepted);
}

TEST_CASE("draining refuses what is new and finishes what runs; stopping ends the rest with an error") {
  Fixture f;
  REQUIRE(f.wait_ready());
  const SequenceId a = f.submit({.prompt = kPrompt, .max_tokens = 10});
  f.engine->drain();
  CHECK(f.engine->state() == EngineState::draining);
  CHECK(f.engine->submit({{.prompt = kPrompt, .max_tokens = 1}}, f.sink).verdict == Admission::Verdict::not_serving);
  f.gate->open();
  REQUIRE(f.sink->wait_ended(1));
  CHECK(f.sink->tokens(a).size() == 10);

  Fixture g;
  REQUIRE(g.wait_ready());
  g.gate->allow(2);
  const SequenceId b = g.submit({.prompt = kPrompt, .max_tokens = 100});
  REQUIRE(g.sink->wait_tokens(b, 1));
  std::thread opener([&] { g.gate->open(); });
  g.engine->stop("time is up");
  opener.join();
  REQUIRE(g.sink->wait_ended(1));
  CHECK((g.sink->last(b).finish == FinishReason::error || g.sink->tokens(b).size() == 100));
  if (g.sink->last(b).finish == FinishReason::error) CHECK(g.sink->last(b).error == "time is up");
  CHECK(g.engine->state() == EngineState::stopped);
}

TEST_CASE("a failing runner ends every sequence with its reason") {
  Fixture f;
  REQUIRE(f.wait_ready());
  f.gate->allow(2);
  const SequenceId a = f.submit({.prompt = kPrompt, .max_tokens = 100});
  REQUIRE(f.sink->wait_tokens(a, 1));
  const SequenceId b = f.submit({.prompt = kPrompt, .max_tokens = 100});
  f.gate->break_it();
  REQUIRE(f.sink->wait_ended(2));
  for (const SequenceId id : {a, b}) {
    CHECK(f.sink->last(id).finish == FinishReason::error);
    CHECK(f.sink->last(id).error == "rank 1 (host-b) is gone");
  }
  CHECK(f.engine->state() == EngineState::failed);
  CHECK(f.engine->failure() == "rank 1 (host-b) is gone");
  const Admission after = f.engine->submit({{.prompt = kPrompt, .max_tokens = 1}}, f.sink);
  CHECK(after.verdict == Admission::Verdict::not_serving);
  CHECK(after.message.find("rank 1 (host-b)") != std::string::npos);
}

TEST_CASE("warmed prompts are computed before the engine is ready, stay, and leave when their time is up") {
  std::vector<int32_t> warm;
  for (int32_t i = 0; i < 33; ++i) warm.push_back(i);
  EngineSpec spec;
  spec.warmup = {{.name = "system", .tokens = warm}, {.name = "short-lived", .tokens = {9, 9, 9, 9, 9}, .ttl_s = 0.2}};
  Fixture f(std::move(spec));
  CHECK(f.engine->state() == EngineState::loading);
  CHECK(f.engine->submit({{.prompt = kPrompt, .max_tokens = 1}}, f.sink).verdict == Admission::Verdict::not_serving);
  f.gate->open();
  REQUIRE(f.wait_ready());
  std::vector<int32_t> prompt = warm;
  prompt.push_back(5);
  const SequenceId id = f.submit({.prompt = prompt, .max_tokens = 3});
  REQUIRE(f.sink->wait_ended(1));
  CHECK(f.sink->last(id).usage.cached_tokens == 32);
  CHECK(f.wait([](const EngineStats& s) { return s.pinned_pages == 8; }));
  bool seen = false;
  for (int i = 0; i < 400 && !seen; ++i) {
    const EngineMemory m = f.engine->memory();
    seen =
        m.prefixes.size() == 1 && m.prefixes[0].name == "system" && m.prefixes[0].hits == 1 && m.prefixes[0].pages == 8;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(seen);
  CHECK(f.gate->faults() == 0);
}

TEST_CASE("prompt scores come whole, with the first event") {
  Fixture f;
  f.gate->open();
  REQUIRE(f.wait_ready());
  const SequenceId id = f.submit({.prompt = kPrompt, .max_tokens = 0});
  REQUIRE(f.sink->wait_ended(1));
  CHECK(f.sink->n_events(id) == 1);
  CHECK(f.sink->tokens(id).empty());
  CHECK(f.sink->last(id).finish == FinishReason::length);
}

TEST_CASE("the scores of a prompt that was preempted half-way are its own, each once") {
  const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  LiveSequence live(0, {.prompt = {1, 2, 3, 4, 5, 6}, .max_tokens = 2, .prompt_logprobs = 0}, nullptr, *tokenizer,
                    {.max_model_len = 100, .ends = {}});
  // A result with scores of these prompt ids, and, at 0 or more, a drawn token.
  const auto result = [](const std::vector<int32_t>& ids, int32_t drawn) {
    SequenceResult r;
    r.id = 0;
    for (const int32_t id : ids) r.prompt.emplace_back().id = id;
    r.sampled = drawn >= 0;
    r.token.id = drawn;
    return r;
  };
  live.scheduled(1, 0);
  CHECK_FALSE(live.stepped(result({2, 3, 4}, -1), 2, false));
  live.preempted(3);
  CHECK(live.scheduled(4, 0) == false);
  CHECK_FALSE(live.stepped(result({2, 3}, -1), 5, false));
  const auto event = live.stepped(result({4, 5, 6}, 70), 6, true);
  REQUIRE(event);
  REQUIRE(event->prompt.size() == 5);
  for (int32_t i = 0; i < 5; ++i) CHECK(event->prompt[static_cast<size_t>(i)].token.id == i + 2);
  live.preempted(7);
  const auto next = live.stepped(result({2, 3, 4, 5, 6}, 71), 8, true);
  REQUIRE(next);
  CHECK(next->prompt.empty());
  CHECK(next->finish == FinishReason::length);
}
