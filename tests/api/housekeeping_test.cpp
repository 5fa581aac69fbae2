// Alerts, the memory ring, the dump after a failure and spans, with a clock of the test's own.
#include "libcore/api/housekeeping.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/api/request_telemetry.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "tests/api/served_fixture.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

// A folder that goes with the test.
struct Folder {
  Folder() : path(fs::temp_directory_path() / ("rw-api-" + std::to_string(::getpid()))) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::vector<Json> lines(const char* name) const {
    std::vector<Json> lines;
    std::ifstream file(path / name);
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  fs::path path;
};

struct Watched {
  explicit Watched(const std::string& out) {
    ServeSpec spec;
    spec.out = out;
    spec.log_spans = spec.trace = !out.empty();
    spec.alert_for_s = 3;
    spec.alert_kv_usage = 0.5;
    spec.alert_itl_ms = 100;
    state = std::make_unique<ApiState>(spec);
    state->set_loaded(
        {.model = {.name = "m", .tokenizer = tokenizer.get(), .max_model_len = 64}, .engine = &engine, .limits = {}});
    housekeeping = std::make_unique<Housekeeping>(*state);
  }
  std::unique_ptr<Tokenizer> tokenizer = bos_tokenizer();
  FakeEngine engine;
  std::unique_ptr<ApiState> state;
  std::unique_ptr<Housekeeping> housekeeping;
};

TEST_CASE("alerts: raised when a value stays beyond its threshold, and cleared") {
  const Folder folder;
  Watched w(folder.path.string());
  EngineStats stats{.running = 1, .used_pages = 6, .pages = 10, .free_pages = 4};
  w.engine.set_stats(stats);
  double now = 1000;
  const auto seconds = [&](int n) {
    for (int i = 0; i < n; ++i) w.housekeeping->turn(++now);
  };
  seconds(3);
  CHECK(folder.lines("events.jsonl").empty());  // not for long enough yet
  seconds(2);
  auto lines = folder.lines("events.jsonl");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["event"] == "alert");
  CHECK(lines[0]["name"] == "kv_usage");
  CHECK(lines[0]["state"] == "raised");
  CHECK(lines[0]["value"] == 0.6);
  CHECK(lines[0]["time"].get<std::string>().ends_with("Z"));
  stats.used_pages = 1;
  stats.free_pages = 9;
  w.engine.set_stats(stats);
  seconds(5);
  lines = folder.lines("events.jsonl");
  REQUIRE(lines.size() == 2);
  CHECK(lines[1]["state"] == "cleared");
  // Slow tokens in every second, then silence while something runs, which is no news.
  for (int i = 0; i < 5; ++i) w.state->metrics.token_gaps(0.2, 1), seconds(1);
  seconds(5);
  lines = folder.lines("events.jsonl");
  REQUIRE(lines.size() == 3);
  CHECK(lines[2]["name"] == "itl_ms");
  stats.running = 0;
  w.engine.set_stats(stats);
  seconds(5);
  CHECK(folder.lines("events.jsonl").size() == 4);
}

TEST_CASE("memory ring: a snapshot a second, thinner as it ages, half an hour at most") {
  Watched w("");
  for (int s = 0; s < 40 * 60; ++s) {
    w.housekeeping->turn(1000 + s);
    w.housekeeping->turn(1000.5 + s);  // too soon for another
  }
  const double now = 1000 + 40 * 60;
  const Json history = w.state->memory_ring.json(now, 30 * 60);
  const auto& snapshots = history["snapshots"];
  CHECK(snapshots.size() >= 170);
  CHECK(snapshots.size() <= 300);
  CHECK(snapshots.front()["age_s"].get<double>() <= 1810);
  CHECK(snapshots.front()["age_s"].get<double>() > 1700);
  const Json& last = snapshots.back();
  CHECK(last["values"]["weights_bytes"] == 1000);
  CHECK(last["values"]["kv_used_bytes"] == 4 * 64);
  CHECK(last["requests"][0]["bytes"] == 4 * 64);
  CHECK(last["prefixes"][0]["name"] == "system");
  CHECK(history["high_water"]["kv_used_bytes"]["value"] == 4 * 64);
}

TEST_CASE("a failed engine leaves its dump, once") {
  const Folder folder;
  Watched w(folder.path.string());
  w.housekeeping->turn(1000);
  w.engine.set_state(EngineState::failed);
  w.housekeeping->turn(1001);
  w.housekeeping->turn(1002);
  int dumps = 0;
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    if (!entry.path().filename().string().starts_with("dump-")) continue;
    ++dumps;
    const Json dump = read_json(entry.path());
    CHECK(dump["state"] == "failed");
    CHECK(dump["failure"] == "rank 1 on host b: gone");
    CHECK(dump["stats"]["steps"] == 0);
    CHECK(dump["memory"]["sequences"][0]["request_id"] == "r\"1");
    CHECK(dump["memory"]["sequences"][0]["bytes"] == 4 * 64);
    CHECK(dump["memory"]["prefixes"][0]["expires_in_s"].is_null());
    CHECK(dump["history"]["snapshots"].size() == 2);
  }
  CHECK(dumps == 1);
  CHECK(folder.lines("events.jsonl").at(0)["event"] == "failure");
}

TEST_CASE("spans: a line for every sequence that has ended") {
  const Folder folder;
  {
    Watched w(folder.path.string());
    RequestRecord record;
    record.id = "r";
    record.trace.trace_id = std::string(32, 'a');
    record.prompt_tokens = {7};
    record.received_s = 100;
    record.handled_s = 100.25;
    record.tokenized_s = 100.5;
    RequestTelemetry request(record, w.state->metrics, w.state->spans.get());
    SequenceEvent e;
    e.tokens.resize(1);
    e.times = {.received = 100, .queued = 100.5, .scheduled = 101, .first_token = 102, .last_token = 102};
    request.event(e);
    e.times.last_token = 105;  // preempted after the first token, for two seconds
    e.times.preempted_s = 2;
    e.times.n_preemptions = 1;
    e.usage.cached_tokens = 4;
    e.finish = FinishReason::length;
    request.event(e);
  }
  const auto lines = folder.lines("spans.jsonl");
  REQUIRE(lines.size() == 1);
  const Json& line = lines[0];
  CHECK(line["request_id"] == "r");
  CHECK(line["trace_id"] == std::string(32, 'a'));
  CHECK(line["finish_reason"] == "length");
  CHECK(line["prompt_tokens"] == 7);
  CHECK(line["cached_tokens"] == 4);
  CHECK(line["completion_tokens"] == 2);
  CHECK(line["preemptions"] == 1);
  const auto span = [&](const char* name) {
    for (const Json& s : line["spans"])
      if (s["name"] == name) return std::pair(s["start_ms"].get<double>(), s["end_ms"].get<double>());
    return std::pair(-1.0, -1.0);
  };
  CHECK(span("receive") == std::pair(0.0, 250.0));
  CHECK(span("tokenize") == std::pair(250.0, 500.0));
  CHECK(span("queue") == std::pair(500.0, 1000.0));
  CHECK(span("prefill") == std::pair(1000.0, 2000.0));
  CHECK(span("decode") == std::pair(2000.0, 5000.0));
  CHECK(span("preempted") == std::pair(2000.0, 4000.0));
  CHECK(span("stream").second >= span("stream").first);
  const Json trace = Json::parse(read_file(folder.path / "trace.json"));
  CHECK(trace.is_array());
  CHECK(trace.size() > 6);
}

TEST_CASE("debug/memory: now and the last half hour") {
  Served s;
  Json json;
  for (int i = 0; i < 200; ++i) {
    json = Json::parse(get(s.port, "/debug/memory").body);
    if (!json["history"]["snapshots"].empty()) break;
    ::usleep(20'000);
  }
  CHECK(json["now"]["pages"] == 10);
  CHECK(json["now"]["partly_filled_tokens"] == 3);
  CHECK(json["history"]["snapshots"][0]["values"]["kv_free_bytes"] == 4 * 64);
}

}  // namespace
}  // namespace rw
