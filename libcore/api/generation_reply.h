// The reply to one request for text: takes its sequences' events and writes a stream of chunks, or one whole body.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "libcore/api/choice_reply.h"
#include "libcore/api/prompt_tokens.h"
#include "libcore/api/reply_shape.h"
#include "libcore/api/sse_chunks.h"
#include "libcore/api/timings.h"
#include "libcore/net/http_server.h"
#include "libcore/serve/engine.h"

namespace rw {

struct GenerationReplySpec {
  ReplyShape shape;
  bool stream = false, timings = false, echo = false;
  int64_t n = 1;                      // choices for each prompt
  std::vector<PromptTokens> prompts;  // choice = prompt * n + j
  std::vector<int32_t> stop_token_ids;
  double timeout_s = 0, keepalive_s = 0;  // 0: none
  double received_s = 0;
  HttpHeaders headers;               // of the reply
  std::shared_ptr<const void> hold;  // let go when the reply is over, before the client knows; may be null
  // Told of every event before it is written, and of the reply's status, once.
  std::function<void(const SequenceEvent&)> observe;
  std::function<void(int status)> replied;
  std::function<bool()> stopping;  // whether a failure is the end of the server: 503 instead of 500
};

class GenerationReply : public EventSink, public std::enable_shared_from_this<GenerationReply> {
 public:
  GenerationReply(GenerationReplySpec spec, HttpReply reply);
  // After admission: the ids first, first + 1, ... are cancelled when the client goes, and at the time-out. The engine
  // lives until the reply is over.
  void admitted(Engine& engine, SequenceId first);
  void push(const SequenceEvent& event) override;
  // From time to time: time-out and keep-alive.
  void tick(double now);
  bool over() const;
  double wait_s(double now) const;  // since it arrived; 0 when it has had its first token, or is over

 private:
  void write(std::string chunk);
  void end();  // nothing comes after this
  void finish();
  void fail_with(const Refusal& refusal);  // ends the reply; the caller cancels
  void client_gone();
  void cancel_all();
  ReplyUsage usage() const;
  std::string timings_text() const;

  mutable std::mutex mutex_;
  GenerationReplySpec spec_;
  HttpReply reply_;
  SseChunks chunks_;
  std::vector<ChoiceReply> choices_;
  int64_t unfinished_;
  Timings timings_;
  Engine* engine_ = nullptr;
  SequenceId first_ = -1;
  double last_write_s_;
  bool begun_ = false, over_ = false, has_token_ = false;
};

}  // namespace rw
