#include "libcore/api/memory_json.h"

#include <nlohmann/json.hpp>

#include "libcore/api/json_text.h"

namespace rw {
namespace {

void append_field(std::string& out, const char* name, int64_t value) {
  if (out.back() != '{') out += ',';
  append_json_string(out, name);
  out += ':';
  append_json_int(out, value);
}

void append_sequences(std::string& out, const EngineMemory& m) {
  out += '[';
  for (const SequenceMemory& s : m.sequences) {
    if (out.back() != '[') out += ',';
    out += "{\"request_id\":";
    append_json_string(out, s.request_id);
    append_field(out, "sequence", s.sequence);
    append_field(out, "pages", s.pages);
    append_field(out, "tokens", s.tokens);
    append_field(out, "bytes", s.pages * m.page_bytes);
    out += '}';
  }
  out += ']';
}

void append_prefixes(std::string& out, const EngineMemory& m, double now) {
  out += '[';
  for (const PrefixMemory& p : m.prefixes) {
    if (out.back() != '[') out += ',';
    out += "{\"name\":";
    append_json_string(out, p.name);
    append_field(out, "pages", p.pages);
    append_field(out, "bytes", p.pages * m.page_bytes);
    append_field(out, "hits", p.hits);
    out += p.pinned ? ",\"pinned\":true" : ",\"pinned\":false";
    out += ",\"expires_in_s\":";
    if (p.expires_s > 0) append_json_number(out, p.expires_s - now);
    else out += "null";
    out += '}';
  }
  out += ']';
}

}  // namespace

std::string memory_json(const EngineMemory& m, double now) {
  std::string out = "{";
  append_field(out, "weights_bytes", m.weights_bytes);
  append_field(out, "kv_bytes", m.kv_bytes);
  append_field(out, "runtime_bytes", m.runtime_bytes);
  append_field(out, "page_bytes", m.page_bytes);
  append_field(out, "pages", m.pages);
  append_field(out, "free_pages", m.free_pages);
  append_field(out, "cached_pages", m.cached_pages);
  append_field(out, "partly_filled_tokens", m.partly_filled_tokens);
  out += ",\"sequences\":";
  append_sequences(out, m);
  out += ",\"prefixes\":";
  append_prefixes(out, m, now);
  return out + "}";
}

MemorySnapshot memory_snapshot(const EngineMemory& m) {
  const int64_t used = m.pages - m.free_pages - m.cached_pages;
  MemorySnapshot snapshot{.values = {{"weights_bytes", m.weights_bytes},
                                     {"runtime_bytes", m.runtime_bytes},
                                     {"kv_bytes", m.kv_bytes},
                                     {"kv_used_bytes", used * m.page_bytes},
                                     {"kv_cached_bytes", m.cached_pages * m.page_bytes},
                                     {"kv_free_bytes", m.free_pages * m.page_bytes},
                                     {"kv_unfilled_tokens", m.partly_filled_tokens}},
                          .requests = {},
                          .prefixes = {}};
  for (const SequenceMemory& s : m.sequences) snapshot.requests.push_back({s.request_id, s.pages * m.page_bytes});
  for (const PrefixMemory& p : m.prefixes) snapshot.prefixes.push_back({p.name, p.pages * m.page_bytes});
  return snapshot;
}

std::string memory_history(const MemoryRing& ring, double now) {
  constexpr double kWindowS = 30 * 60;
  return ring.json(now, kWindowS).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rw
