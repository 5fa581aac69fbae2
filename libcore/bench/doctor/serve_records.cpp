#include "libcore/bench/doctor/serve_records.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/bench/doctor/serving_facts_steps.h"
#include "libcore/bench/record/json_line_file.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostSequences = 200'000;
constexpr const char* kFiles[] = {"events.jsonl", "spans.jsonl", "steps.jsonl"};

std::string text_of(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}
double number_of(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : kUnknown;
}

// Seconds of the spans of a name, together; NaN where there is none.
class Spans {
 public:
  explicit Spans(const Json& line) : spans_(line.find("spans")), end_(line.end()) {}
  double seconds(const std::string& name) const {
    return sum(name, [](const Json& s) { return number_of(s, "end_ms") - number_of(s, "start_ms"); });
  }
  double end(const std::string& name) const {
    return sum(name, [](const Json& s) { return number_of(s, "end_ms"); });
  }

 private:
  template <class Value>
  double sum(const std::string& name, Value&& value) const {
    if (spans_ == end_ || !spans_->is_array()) return kUnknown;
    double total = 0;
    bool found = false;
    for (const Json& s : *spans_)
      if (s.is_object() && text_of(s, "name") == name) {
        total += value(s) / 1000;
        found = true;
      }
    return found ? total : kUnknown;
  }
  Json::const_iterator spans_, end_;
};

ServedSequence sequence_of(const Json& line) {
  const Spans spans(line);
  ServedSequence s;
  s.request_id = text_of(line, "request_id");
  s.finish_reason = text_of(line, "finish_reason");
  s.prompt_tokens = number_of(line, "prompt_tokens");
  s.cached_tokens = number_of(line, "cached_tokens");
  s.completion_tokens = number_of(line, "completion_tokens");
  s.preemptions = number_of(line, "preemptions");
  s.receive_s = spans.seconds("receive");
  s.tokenize_s = spans.seconds("tokenize");
  s.queue_s = spans.seconds("queue");
  s.prefill_s = spans.seconds("prefill");
  s.decode_s = spans.seconds("decode");
  s.preempted_s = spans.seconds("preempted");
  s.ttft_s = spans.end("prefill");
  s.lag_s = spans.end("stream") - spans.end("decode");
  return s;
}

}  // namespace

ServeRecords read_serve_records(const fs::path& dir) {
  if (!fs::is_directory(dir))
    fail(ErrorKind::input, "{}: expected a folder that dserve --out wrote, found no folder", dir.string());
  if (std::none_of(std::begin(kFiles), std::end(kFiles), [&](const char* f) { return fs::exists(dir / f); }))
    fail(ErrorKind::input, "{}: expected events.jsonl, spans.jsonl or steps.jsonl of dserve --out, found none of them",
         dir.string());
  ServeRecords records;
  records.dir = dir;
  const auto torn = [&](const char* file, int64_t n) {
    if (n > 0) records.notes.push_back(fmt::format("{}: {} lines are no JSON objects (cut off?)", file, n));
  };
  torn(kFiles[0], for_each_json_line(dir / kFiles[0], [&](const Json& line, const std::string& text) {
         EventRecord event;
         event.event = text_of(line, "event");
         event.time = text_of(line, "time");
         event.line = text;
         records.events.push_back(std::move(event));
       }));
  int64_t left_out = 0;
  torn(kFiles[1], for_each_json_line(dir / kFiles[1], [&](const Json& line, const std::string&) {
         records.sequences.push_back(sequence_of(line));
         if (records.sequences.size() < 2 * kMostSequences) return;
         records.sequences.erase(records.sequences.begin(), records.sequences.begin() + kMostSequences);
         left_out += static_cast<int64_t>(kMostSequences);
       }));
  if (left_out > 0) records.notes.push_back(fmt::format("spans.jsonl: the first {} sequences are left out", left_out));
  StepReading steps;
  torn(kFiles[2], for_each_json_line(dir / kFiles[2], [&](const Json& line, const std::string&) { steps.line(line); }));
  records.steps = steps.facts();
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().filename().string().starts_with("dump-") && entry.path().extension() == ".json")
      records.dumps.push_back(entry.path());
  std::sort(records.dumps.begin(), records.dumps.end());
  return records;
}

}  // namespace rw
