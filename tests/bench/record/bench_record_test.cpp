#include "libcore/bench/record/bench_record.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct File {
  explicit File(const std::string& text) { std::ofstream(path) << text; }
  ~File() { fs::remove(path); }
  fs::path path = fs::temp_directory_path() / "rankwright_bench_record_test.json";
};

template <typename F>
std::string message_of(F&& run) {
  try {
    run();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "(no error)";
}
std::string message_of_file(const std::string& text) {
  const File file(text);
  return message_of([&] { read_records(file.path.string()); });
}
std::string message_of_record(const std::string& text) {
  return message_of([&] { parse_record(Json::parse(text), "here"); });
}
#define HOLDS(text, part) CHECK_MESSAGE((text).find(part) != std::string::npos, (text))

constexpr const char* kRecord =
    R"({"bench":"train","name":"a","metrics":[{"name":"step_s","unit":"s","better":"lower","kind":"time","samples":[0.5,null,0.25]}]})";

}  // namespace

TEST_CASE("a record comes back as it was written") {
  BenchRecord r = new_record("train", "tiny-llama tp 2", Json{{"tp", 2}});
  CHECK(r.time.size() == 20);
  HOLDS(r.machine, "\"fingerprint\":\"");
  BenchMetric m;
  m.name = "step_s";
  m.unit = "s";
  m.samples = {0.5, std::numeric_limits<double>::quiet_NaN(), 0.25};
  m.predicted = 0.3;
  m.limit = 0.125;
  r.metrics.push_back(m);
  m = {};
  m.name = "bytes_sent";
  m.unit = "bytes";
  m.kind = MetricKind::count;
  m.samples = {1099511627777.0, 1099511627777.0, 3};
  r.metrics.push_back(m);
  m = {};
  m.name = "mfu";
  m.better = Better::higher;
  m.kind = MetricKind::fact;
  r.metrics.push_back(m);
  r.repeats = 3;
  r.cpu_share = 0.97;
  r.quiet = false;
  r.details = R"({"why":"odd"})";
  const Json json = Json::parse(record_json(r).dump());
  CHECK(json["metrics"][0]["median"].is_null());  // a sample is missing
  CHECK(json["metrics"][1]["median"] == 1099511627777.0);
  const BenchRecord back = parse_record(json, "text");
  CHECK(back.bench == "train");
  CHECK(back.name == "tiny-llama tp 2");
  CHECK(back.time == r.time);
  CHECK(back.machine == r.machine);
  CHECK(back.config == R"({"tp":2})");
  CHECK(back.details == r.details);
  CHECK(back.repeats == 3);
  CHECK(back.cpu_share == 0.97);
  CHECK_FALSE(back.quiet);
  REQUIRE(back.metrics.size() == 3);
  const BenchMetric* step = find_metric(back, "step_s");
  REQUIRE(step != nullptr);
  CHECK(step->samples[2] == 0.25);
  CHECK(std::isnan(step->samples[1]));
  CHECK(step->predicted == 0.3);
  CHECK(step->limit == 0.125);
  CHECK(find_metric(back, "bytes_sent")->kind == MetricKind::count);
  CHECK(find_metric(back, "bytes_sent")->samples[0] == 1099511627777.0);
  CHECK(find_metric(back, "mfu")->better == Better::higher);
  CHECK_FALSE(find_metric(back, "mfu")->limit);
  CHECK(find_metric(back, "mfuu") == nullptr);
}

TEST_CASE("files: one record, an array, JSON lines, a record over several lines") {
  const auto count = [](const std::string& text) {
    const File file(text);
    return read_records(file.path.string()).size();
  };
  CHECK(count(kRecord) == 1);
  CHECK(count(Json::parse(kRecord).dump(2)) == 1);
  CHECK(count(std::string("[") + kRecord + "," + kRecord + "]") == 2);
  CHECK(count(std::string(kRecord) + "\n" + kRecord + "\n\n" + kRecord + "\n") == 3);
  CHECK(count(std::string(kRecord) + "\n[" + kRecord + "," + kRecord + "]\n") == 3);
}

TEST_CASE("files of others say what they are not") {
  HOLDS(message_of_file(""), "found an empty file");
  HOLDS(message_of_file(" \n"), "found an empty file");
  HOLDS(message_of_file("[]"), "found an empty array");
  HOLDS(message_of_file("[3]"), "[0]: expected a record of dbench");
  HOLDS(message_of_file(R"({"benchmarks": []})"), "without \"bench\"");
  HOLDS(message_of_file("step,seconds\n1,2\n"), "expected JSON");
  HOLDS(message_of_file("{\"bench\": \"train\",\n"), "expected JSON");
  HOLDS(message_of_file(std::string(kRecord) + "\n{\"op\":\"gemm\"}\n"), ".json:2: expected a record of dbench");
  HOLDS(message_of_file(std::string(kRecord) + "\n{\"bench\":\n"), ".json:2: expected JSON");
  HOLDS(message_of([] { read_records("/nonexistent/x.json"); }), "/nonexistent/x.json");
}

TEST_CASE("records that are wrong name the key") {
  HOLDS(message_of_record(R"({"bench":"train","metrics":[]})"), "\"name\"");
  HOLDS(message_of_record(R"({"bench":"train","name":"a"})"), "\"metrics\": expected an array, found none");
  HOLDS(message_of_record(R"({"bench":"train","name":"a","metrics":[{"name":"s"}]})"), "metric \"s\": key \"samples\"");
  HOLDS(message_of_record(R"({"bench":"train","name":"a","metrics":[{"name":"s","samples":["1"]}]})"),
        "expected numbers or null");
  HOLDS(message_of_record(R"({"bench":"train","name":"a","metrics":[{"name":"s","samples":[],"better":"less"}]})"),
        "expected one of lower, higher, neither, found \"less\"");
  HOLDS(message_of_record(R"({"bench":"train","name":"a","metrics":[{"name":"s","samples":[],"kind":"rate"}]})"),
        "expected one of time, count, fact");
  HOLDS(message_of_record(
            R"({"bench":"train","name":"a","metrics":[{"name":"s","samples":[]},{"name":"s","samples":[]}]})"),
        "found \"s\" twice");
  HOLDS(message_of_record(R"({"bench":"train","name":"a","machine":"big","metrics":[]})"),
        "\"machine\": expected an object");
  HOLDS(message_of_record(R"({"bench":"train","name":"a","tool_version":"1000.0.0","metrics":[]})"), "version");
}
