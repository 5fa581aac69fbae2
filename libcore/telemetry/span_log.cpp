#include "libcore/telemetry/span_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"

namespace rw {
namespace {

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool all_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }
uint8_t digit(char c) { return static_cast<uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); }

// To the microsecond: what lies below is noise, and doubles the line's length.
double milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

std::vector<Span> in_order(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.start_s != b.start_s ? a.start_s < b.start_s : a.end_s > b.end_s;  // the outer one first
  });
  return spans;
}

}  // namespace

// https://www.w3.org/TR/trace-context/#traceparent-header
std::optional<TraceParent> parse_traceparent(std::string_view header) {
  constexpr size_t kBytes = 55;
  if (header.size() < kBytes || header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  const std::string_view version = header.substr(0, 2), trace = header.substr(3, 32), parent = header.substr(36, 16),
                         flags = header.substr(53, 2);
  if (!is_hex(version) || !is_hex(trace) || !is_hex(parent) || !is_hex(flags) || version == "ff") return std::nullopt;
  if (all_zero(trace) || all_zero(parent)) return std::nullopt;
  // A later version may append fields.
  if (header.size() > kBytes && (version == "00" || header[kBytes] != '-')) return std::nullopt;
  return TraceParent{.trace_id = std::string(trace),
                     .parent_id = std::string(parent),
                     .flags = static_cast<uint8_t>(digit(flags[0]) * 16 + digit(flags[1]))};
}

std::string traceparent_header(const TraceParent& parent) {
  CHECK(parent.trace_id.size() == 32 && parent.parent_id.size() == 16, "trace id \"%s\", parent id \"%s\"",
        parent.trace_id.c_str(), parent.parent_id.c_str());
  constexpr std::string_view kDigits = "0123456789abcdef";
  return "00-" + parent.trace_id + "-" + parent.parent_id + "-" + kDigits[parent.flags >> 4] +
         kDigits[parent.flags & 15];
}

Json spans_json(const SequenceSpans& sequence) {
  Json json{{"request_id", sequence.request_id}};
  if (!sequence.trace_id.empty()) json["trace_id"] = sequence.trace_id;
  json["sequence"] = sequence.sequence;
  if (!sequence.finish_reason.empty()) json["finish_reason"] = sequence.finish_reason;
  for (const auto& [name, count] : sequence.counts) json[name] = count;
  Json& spans = json["spans"] = Json::array();
  for (const Span& span : in_order(sequence.spans))
    spans.push_back({{"name", span.name},
                     {"start_ms", milliseconds(span.start_s - sequence.receive_s)},
                     {"end_ms", milliseconds(span.end_s - sequence.receive_s)}});
  return json;
}

SpanLog::SpanLog(const std::filesystem::path& lines, const std::filesystem::path& trace) {
  if (!lines.empty()) lines_ = JsonLines(lines);
  if (!trace.empty()) trace_ = std::make_unique<ChromeTrace>(trace, "dserve");
}

bool SpanLog::add(const SequenceSpans& sequence) {
  const Json json = spans_json(sequence);
  const std::lock_guard lock(mutex_);
  bool written = lines_.write(json);
  if (trace_ == nullptr || sequence.spans.empty()) return written;
  // The whole sequence is the outermost bar of a row that it shares with those before and after it.
  std::vector<ChromeTrace::Event> events(1);
  double start = sequence.receive_s, end = start;
  for (const Span& span : sequence.spans) {
    start = std::min(start, span.start_s);
    end = std::max(end, span.end_s);
  }
  const int64_t row = free_row(rows_end_s_, start, end) + 1;
  Json args = json;
  args.erase("spans");
  events[0] = {.name = sequence.request_id + "#" + std::to_string(sequence.sequence),
               .start_s = start,
               .end_s = end,
               .row = row,
               .args = &args};
  for (Span& span : in_order(sequence.spans))
    events.push_back({.name = std::move(span.name), .start_s = span.start_s, .end_s = span.end_s, .row = row});
  return trace_->write(events) && written;
}

}  // namespace rw
