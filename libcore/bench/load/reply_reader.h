// Turns a reply's bytes, as they come, into a LoadOutcome. Pure: times are told to it.
//
// A chunk counts when it brings text; from then on also when it brings tokens without any (an end token, half a
// character). How many tokens it holds is told by token ids or continuous usage, and tokens that came before the first
// text are counted with it; a chunk whose server tells neither holds one. A stream is complete with [DONE], or with an
// orderly end behind a finish_reason. A whole reply (stream: false) leaves no chunks: when its first token was there is
// unknown. A request ends with the last event, [DONE] if there is one.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "libcore/bench/load/load_types.h"
#include "libcore/bench/load/reply_fields.h"
#include "libcore/net/sse_parser.h"

namespace rw {

class ReplyReader {
 public:
  // Both outlive the reader. The text is kept where `keep_text` or the request's golden text asks for it.
  ReplyReader(const LoadRequest& request, ReplyText keep_text, LoadOutcome& outcome);

  // Status and content type ("" none).
  void head(int status, std::string_view content_type, double at_s);
  void body(std::string_view bytes, double at_s);
  // The reply is complete as HTTP has it.
  void end(double at_s);
  // It will not be: the connection broke, time is up. What was complete before stands.
  void broken(LoadEnd how, std::string_view why, double at_s);
  // Nothing more is wanted (asked to disconnect, an error, malformed): the outcome has its end, hang up.
  bool over() const { return over_; }
  // The stream has said [DONE]; its orderly end may be waited for a while, so that the connection can be used again.
  bool done() const { return done_; }

 private:
  enum class Form : uint8_t { none, stream, whole, refusal };
  void event(std::string_view data, double at_s);
  void take(const ReplyFields& fields, double at_s);
  void count_tokens(const ReplyFields& fields, double at_s);
  void doubt_usage();
  void conclude(LoadEnd how, std::string_view why, double at_s);
  void read_whole(double at_s);

  const LoadRequest& request_;
  const ReplyText keep_;
  LoadOutcome& outcome_;
  Form form_ = Form::none;
  SseParser sse_;
  ReplyFields fields_;
  std::string body_;  // of a whole reply or a refusal
  bool over_ = false, done_ = false, all_counted_ = true;
  bool all_ids_ = true;     // each chunk with tokens named them
  int64_t most_index_ = 0;  // of choices
  int64_t counted_ = 0;     // tokens in chunks
  int64_t told_ = 0;        // by continuous usage
  int64_t early_ = 0;       // tokens before the first text
  double early_s_ = 0;      // when the first of them came
  double last_s_ = 0;       // of the last event
};

}  // namespace rw
