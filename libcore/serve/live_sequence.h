// A sequence as the engine follows it, from its arrival to its last event: text, stops, usage, times.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libcore/serve/request.h"
#include "libcore/text/text_stream.h"

namespace rw {

class LiveSequence {
 public:
  struct Limits {
    int64_t max_model_len;
    std::vector<int32_t> ends;  // ids that end a text for this model
  };
  LiveSequence(SequenceId id, SequenceRequest request, std::shared_ptr<EventSink> sink, const Tokenizer& tokenizer,
               const Limits& limits);

  const SequenceRequest& request() const { return request_; }
  const std::shared_ptr<EventSink>& sink() const { return sink_; }
  // The sampling as the model runner wants it: with the ids that end the text.
  const SamplingParams& sampling() const { return request_.sampling; }

  void queued(double now) { times_.queued = now; }
  // A plan has rows of this sequence, of which `cached` tokens were known: true the first time. Or it was preempted.
  bool scheduled(double now, int64_t cached);
  void preempted(double now);
  // What a step made of it: the event to tell, if there is something; finish() says whether it has ended.
  std::optional<SequenceEvent> stepped(const SequenceResult& result, double now, bool prompt_done);
  // The last event, of a sequence that was ended from outside.
  SequenceEvent ended(FinishReason reason, const std::string& error);
  FinishReason finish() const { return finish_; }
  double scheduled_s() const { return times_.scheduled; }

 private:
  TokenOut out(Sampled token) const;
  void take_token(const Sampled& token, SequenceEvent& event);
  SequenceEvent event() const;

  SequenceId id_;
  SequenceRequest request_;
  std::shared_ptr<EventSink> sink_;
  const Tokenizer& tokenizer_;
  int64_t max_new_;
  std::vector<int32_t> model_ends_;
  TextStream text_;
  std::vector<TokenOut> prompt_scores_;
  SequenceUsage usage_;
  SequenceTimes times_;
  double waiting_since_ = 0;  // after a preemption
  FinishReason finish_ = FinishReason::none;
};

}  // namespace rw
