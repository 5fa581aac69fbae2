#include "libcore/api/state_dump.h"

#include "libcore/api/health.h"
#include "libcore/api/json_text.h"
#include "libcore/api/memory_json.h"
#include "libcore/base/clock.h"
#include "libcore/base/version.h"

namespace rw {
namespace {

struct Count {
  const char* name;
  int64_t EngineStats::*field;
};
constexpr Count kCounts[] = {{"running", &EngineStats::running},
                             {"waiting", &EngineStats::waiting},
                             {"waiting_tokens", &EngineStats::waiting_tokens},
                             {"pages", &EngineStats::pages},
                             {"free_pages", &EngineStats::free_pages},
                             {"cached_pages", &EngineStats::cached_pages},
                             {"pinned_pages", &EngineStats::pinned_pages},
                             {"used_pages_high_water", &EngineStats::used_pages_high_water},
                             {"prompt_tokens", &EngineStats::prompt_tokens},
                             {"cached_tokens", &EngineStats::cached_tokens},
                             {"generated_tokens", &EngineStats::generated_tokens},
                             {"evicted_pages", &EngineStats::evicted_pages},
                             {"preemptions", &EngineStats::preemptions},
                             {"steps", &EngineStats::steps},
                             {"finished_stop", &EngineStats::finished_stop},
                             {"finished_length", &EngineStats::finished_length},
                             {"cancelled", &EngineStats::cancelled},
                             {"failed", &EngineStats::failed},
                             {"chunk_tokens", &EngineStats::chunk_tokens}};

void append_text(std::string& out, const char* name, const std::string& value) {
  out += out.back() == '{' ? "\"" : ",\"";
  out += name;
  out += "\":";
  append_json_string(out, value);
}

}  // namespace

std::string state_dump(const Engine& engine, const MemoryRing* ring, double now) {
  const EngineStats stats = engine.stats();
  std::string out = "{";
  append_text(out, "time", utc_timestamp());
  append_text(out, "version", version());
  append_text(out, "state", engine_state_name(engine.state()));
  append_text(out, "failure", engine.failure());
  out += ",\"stats\":{\"heartbeat_age_s\":";
  append_json_number(out, now - stats.heartbeat_s);
  out += ",\"step_s\":";
  append_json_number(out, stats.step_s);
  for (const Count& c : kCounts) {
    out += ",\"";
    out += c.name;
    out += "\":";
    append_json_int(out, stats.*c.field);
  }
  out += "},\"memory\":" + memory_json(engine.memory(), now);
  if (ring != nullptr) out += ",\"history\":" + memory_history(*ring, now);
  return out + "}";
}

}  // namespace rw
