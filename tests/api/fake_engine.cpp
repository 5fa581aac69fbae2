#include "tests/api/fake_engine.h"

#include <algorithm>
#include <chrono>

#include "libcore/base/clock.h"

namespace rw {
namespace {

constexpr std::chrono::seconds kPatience{10};

SequenceTimes times_of(const FakeSequence& s) {
  const double now = now_s(), received = s.request.received_s;
  return {.received = received, .queued = received, .scheduled = received, .first_token = now, .last_token = now};
}

}  // namespace

Admission FakeEngine::submit(std::vector<SequenceRequest> sequences, std::shared_ptr<EventSink> sink) {
  std::vector<FakeSequence> mine;
  {
    const std::lock_guard lock(mutex_);
    if (refusal_.verdict != Admission::Verdict::accepted) return refusal_;
    for (SequenceRequest& r : sequences)
      mine.push_back({static_cast<SequenceId>(sequences_.size() + mine.size()), std::move(r), sink});
    sequences_.insert(sequences_.end(), mine.begin(), mine.end());
    changed_.notify_all();
    if (holding_) return {.first = mine.front().id};
  }
  for (const FakeSequence& s : mine) answer(s);
  return {.first = mine.front().id};
}

void FakeEngine::answer(const FakeSequence& s) {
  for (const char c : answer_) token(s, static_cast<unsigned char>(c), std::string(1, c));
  finish(s, finish_);
}

void FakeEngine::cancel(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(sequence);
  changed_.notify_all();
}

EngineStats FakeEngine::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

EngineMemory FakeEngine::memory() const {
  EngineMemory m{.weights_bytes = 1000,
                 .kv_bytes = 640,
                 .runtime_bytes = 30,
                 .page_bytes = 64,
                 .pages = 10,
                 .free_pages = 4,
                 .cached_pages = 2,
                 .partly_filled_tokens = 3};
  m.sequences = {{.request_id = "r\"1", .sequence = 5, .pages = 4, .tokens = 61}};
  m.prefixes = {{.name = "system", .pages = 2, .hits = 7, .pinned = true, .expires_s = 0}};
  return m;
}

void FakeEngine::stop(const std::string& why) {
  state_ = EngineState::stopped;
  std::vector<FakeSequence> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(sequences_);
  }
  for (const FakeSequence& s : all) finish(s, FinishReason::error, why);
}

void FakeEngine::set_answer(const std::string& bytes, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  answer_ = bytes;
  finish_ = reason;
}
void FakeEngine::hold() {
  const std::lock_guard lock(mutex_);
  holding_ = true;
}
void FakeEngine::refuse_with(Admission admission) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(admission);
}
void FakeEngine::set_stats(const EngineStats& stats) {
  const std::lock_guard lock(mutex_);
  stats_ = stats;
}

std::vector<FakeSequence> FakeEngine::wait_for(size_t n) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return sequences_.size() >= n; });
  return sequences_;
}

bool FakeEngine::wait_cancelled(const std::set<SequenceId>& ids) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] {
    return std::all_of(ids.begin(), ids.end(), [&](SequenceId id) { return cancelled_.count(id) == 1; });
  });
}

void FakeEngine::token(const FakeSequence& s, int32_t id, const std::string& text) {
  SequenceEvent e{.sequence = s.id, .choice = s.request.choice, .text = text};
  e.tokens.push_back(
      {.token = {.id = id, .logprob = -1.0F, .top = {}}, .bytes = std::string(1, static_cast<char>(id))});
  e.usage = {.prompt_tokens = static_cast<int64_t>(s.request.prompt.size())};
  e.times = times_of(s);
  s.sink->push(e);
}

void FakeEngine::finish(const FakeSequence& s, FinishReason reason, const std::string& error) {
  SequenceEvent e{.sequence = s.id, .choice = s.request.choice, .finish = reason, .error = error};
  e.usage = {.prompt_tokens = static_cast<int64_t>(s.request.prompt.size())};
  e.times = times_of(s);
  s.sink->push(e);
}

}  // namespace rw
