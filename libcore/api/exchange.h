// One request on its way through the API: its names, and the one reply to it.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "libcore/api/api_error.h"
#include "libcore/api/request_ids.h"
#include "libcore/net/http_server.h"

namespace rw {

class Exchange {
 public:
  // replied: told the status, once. The request outlives this.
  Exchange(const HttpRequest& request, HttpReply reply, std::function<void(int)> replied);

  const HttpRequest& request;
  HttpReply reply;
  std::string id;  // x-request-id, in and out
  TraceContext trace;
  std::function<void(int)> replied;

  // Somebody has replied, or will: what fails from here on is not for the client.
  bool answered = false;

  HttpHeaders headers() const;  // that every reply has
  void send(int status, std::string body, std::string_view content_type = "application/json");
  void refuse(const Refusal& refusal);  // nothing when answered
};

}  // namespace rw
