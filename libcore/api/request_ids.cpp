#include "libcore/api/request_ids.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "libcore/base/hash.h"
#include "libcore/telemetry/span_log.h"

namespace rw {
bool valid_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestId &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; });
}

std::string random_hex(int digits) {
  std::random_device source;
  std::string text;
  while (text.size() < static_cast<size_t>(digits)) text += hex64((uint64_t{source()} << 32) | source());
  return text.substr(0, static_cast<size_t>(digits));
}

std::string request_id_of(const std::string* header) {
  return header != nullptr && valid_request_id(*header) ? *header : random_hex(32);
}

std::string TraceContext::text() const {
  return traceparent_header({.trace_id = trace_id, .parent_id = span_id, .flags = flags});
}

TraceContext trace_context_of(const std::string* header) {
  TraceContext trace{.trace_id = {}, .parent_id = {}, .span_id = random_hex(16)};
  if (const auto caller = header != nullptr ? parse_traceparent(*header) : std::nullopt) {
    trace.trace_id = caller->trace_id;
    trace.parent_id = caller->parent_id;
    trace.flags = caller->flags;
  } else {
    trace.trace_id = random_hex(32);
  }
  return trace;
}

}  // namespace rw
