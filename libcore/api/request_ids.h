// Names of requests: x-request-id and W3C trace contexts, taken over from the client or made here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

inline constexpr size_t kMaxRequestId = 128;

// 1 to 128 printable ASCII characters without spaces or quotes: safe in headers, logs and JSON.
bool valid_request_id(std::string_view id);
std::string random_hex(int digits);
// The client's when it is valid, otherwise 32 random hex digits.
std::string request_id_of(const std::string* header);

// A request's place in a distributed trace.
struct TraceContext {
  std::string trace_id;   // 32 hex digits
  std::string parent_id;  // the caller's span, 16 hex digits; empty: there is no caller
  std::string span_id;    // this request's
  uint8_t flags = 0;
  std::string text() const;  // a traceparent header that names this request's span
};
// Of the header traceparent; a new trace when it is absent or ill-formed.
TraceContext trace_context_of(const std::string* header);

}  // namespace rw
