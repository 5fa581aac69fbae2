// An engine whose steps the test takes itself: it admits what it is told to, and tells what the test says.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "libcore/serve/engine.h"

namespace rw {

struct FakeSequence {
  SequenceId id;
  SequenceRequest request;
  std::shared_ptr<EventSink> sink;
};

class FakeEngine : public Engine {
 public:
  Admission submit(std::vector<SequenceRequest> sequences, std::shared_ptr<EventSink> sink) override;
  void cancel(SequenceId sequence) override;
  EngineStats stats() const override;
  EngineMemory memory() const override;
  EngineState state() const override { return state_; }
  std::string failure() const override { return "rank 1 on host b: gone"; }
  void drain() override { state_ = EngineState::draining; }
  void stop(const std::string& why) override;

  // By default a sequence is answered at once: `answer`'s bytes as tokens, one an event, then finish "length".
  void set_answer(const std::string& bytes, FinishReason finish = FinishReason::length);
  void hold();                            // from now on submit answers nothing
  void refuse_with(Admission admission);  // from now on
  void set_state(EngineState state) { state_ = state; }
  void set_stats(const EngineStats& stats);
  // Waits (10 s at most) until n sequences have come; all so far.
  std::vector<FakeSequence> wait_for(size_t n);
  bool wait_cancelled(const std::set<SequenceId>& ids);
  // Tells one token of a sequence, as the byte tokenizer has them.
  static void token(const FakeSequence& s, int32_t id, const std::string& text);
  static void finish(const FakeSequence& s, FinishReason reason, const std::string& error = "");

 private:
  void answer(const FakeSequence& s);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FakeSequence> sequences_;
  std::set<SequenceId> cancelled_;
  std::string answer_ = "ok";
  FinishReason finish_ = FinishReason::length;
  bool holding_ = false;
  Admission refusal_;
  EngineStats stats_;
  std::atomic<EngineState> state_{EngineState::ready};
};

}  // namespace rw
