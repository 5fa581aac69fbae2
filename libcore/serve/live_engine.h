// The engine over a step runner: one thread that turns messages into plans, plans into results and results into events,
// and one that hands the events on.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "libcore/serve/admission.h"
#include "libcore/serve/engine.h"
#include "libcore/serve/live_sequence.h"
#include "libcore/serve/scheduler.h"
#include "libcore/serve/step_log.h"
#include "libcore/serve/step_runner.h"
#include "libcore/text/tokenizer.h"

namespace rw {

// A prompt that is computed before the engine is ready, and kept.
struct WarmPrompt {
  std::string name;
  std::vector<int32_t> tokens;
  std::string salt = {};
  double ttl_s = 0;  // 0: for good
};

struct EngineSpec {
  SchedulerSpec scheduler;
  AdmissionPolicy admission;
  std::vector<int32_t> ends;  // ids that end a text
  std::vector<WarmPrompt> warmup = {};
  int64_t weights_bytes = 0, kv_bytes = 0, runtime_bytes = 0, page_bytes = 0;
};

class LiveEngine final : public Engine {
 public:
  // tokenizer outlives this. The runner is used by the engine's thread alone.
  LiveEngine(EngineSpec spec, std::unique_ptr<StepRunner> runner, const Tokenizer& tokenizer, StepLog log);
  ~LiveEngine() override;

  Admission submit(std::vector<SequenceRequest> sequences, std::shared_ptr<EventSink> sink) override;
  void cancel(SequenceId sequence) override;
  EngineStats stats() const override;
  EngineMemory memory() const override;
  EngineState state() const override { return state_; }
  std::string failure() const override;
  void drain() override;
  void stop(const std::string& why) override;

 private:
  struct Submitted {
    SequenceId first;
    std::vector<SequenceRequest> sequences;
    std::shared_ptr<EventSink> sink;
  };
  struct Cancelled {
    SequenceId id;
  };
  using Message = std::variant<Submitted, Cancelled>;
  struct Told {
    std::shared_ptr<EventSink> sink;
    SequenceEvent event;
  };
  struct Warm {
    std::string name;
    int64_t handle;
    double expires_s;
  };

  void run();
  void first_touch();
  void warm_up();
  void take_messages(bool wait);
  void start(Submitted& submitted);
  void finish(SequenceId id);
  bool step();
  void release_expired(double now);
  void tell(const std::shared_ptr<EventSink>& sink, SequenceEvent event);
  void hand_on();
  void end_all(FinishReason reason, const std::string& why);
  void publish(double step_s);
  void publish_memory(double now);
  Load load() const;

  const EngineSpec spec_;
  const std::unique_ptr<StepRunner> runner_;
  const Tokenizer& tokenizer_;
  StepLog log_;
  const double started_s_;

  // The engine thread's.
  Scheduler scheduler_;
  std::unordered_map<SequenceId, LiveSequence> live_;
  std::vector<Warm> warm_;
  EngineStats counts_;  // those that only grow, and estimates
  double sequence_s_ = 0, memory_s_ = 0;

  std::atomic<EngineState> state_{EngineState::loading};
  std::atomic<SequenceId> next_id_{0};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Message> inbox_;
  int64_t inbox_sequences_ = 0, inbox_tokens_ = 0;
  bool stopping_ = false;
  std::string why_, failure_;
  EngineStats stats_;
  EngineMemory memory_;
  Load load_;

  std::mutex told_mutex_;
  std::condition_variable told_wake_;
  std::deque<Told> told_;
  bool told_all_ = false;

  std::thread thread_, teller_;
};

}  // namespace rw
