#include "libcore/api/exchange.h"

namespace rw {

Exchange::Exchange(const HttpRequest& request_, HttpReply reply_, std::function<void(int)> replied_)
    : request(request_),
      reply(std::move(reply_)),
      id(request_id_of(request_.header("x-request-id"))),
      trace(trace_context_of(request_.header("traceparent"))),
      replied(std::move(replied_)) {}

HttpHeaders Exchange::headers() const { return {{"x-request-id", id}, {"traceparent", trace.text()}}; }

void Exchange::send(int status, std::string body, std::string_view content_type) {
  answered = true;
  if (replied) replied(status);
  reply.send(status, std::move(body), content_type, headers());
}

void Exchange::refuse(const Refusal& refusal) {
  if (answered) return;
  answered = true;
  HttpHeaders all = headers();
  append_refusal_headers(all, refusal);
  if (replied) replied(refusal.status);
  reply.send(refusal.status, error_body(refusal), "application/json", std::move(all));
}

}  // namespace rw
