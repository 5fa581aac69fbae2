#include "libcore/bench/record/bench_record.h"

#include <charconv>
#include <cmath>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/version.h"
#include "libcore/bench/record/machine.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

constexpr Better kBetters[] = {Better::lower, Better::higher, Better::neither};
constexpr MetricKind kKinds[] = {MetricKind::time, MetricKind::count, MetricKind::fact};

// A value that JSON cannot hold is null there.
Json number_json(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

template <typename Enum, size_t n>
Enum parse_name(const Enum (&values)[n], const char* (*name_of)(Enum), const Json& object, const char* key,
                const std::string& where, Enum otherwise) {
  const std::string found = json_string(object, key, where, name_of(otherwise));
  std::string known;
  for (const Enum value : values) {
    if (found == name_of(value)) return value;
    known += (known.empty() ? "" : ", ") + std::string(name_of(value));
  }
  fail(ErrorKind::input, "{}: key \"{}\": expected one of {}, found \"{}\"", where, key, known, found);
}

std::optional<double> parse_optional(const Json& object, const char* key, const std::string& where) {
  const double v = json_number(object, key, where, std::numeric_limits<double>::quiet_NaN());
  return std::isnan(v) ? std::nullopt : std::optional(v);
}

std::vector<double> parse_samples(const Json& object, const std::string& where) {
  const auto it = object.find("samples");
  if (it == object.end() || !it->is_array())
    fail(ErrorKind::input, "{}: key \"samples\": expected an array of numbers, found {}", where,
         it == object.end() ? "none" : it->type_name());
  std::vector<double> samples;
  for (const Json& v : *it) {
    if (!v.is_number() && !v.is_null())
      fail(ErrorKind::input, "{}: key \"samples\": expected numbers or null, found {}", where,
           v.dump(-1, ' ', false, Json::error_handler_t::replace));
    samples.push_back(v.is_null() ? std::numeric_limits<double>::quiet_NaN() : v.get<double>());
  }
  return samples;
}

BenchMetric parse_metric(const Json& json, const std::string& where) {
  BenchMetric m;
  m.name = json_string(json, "name", where);
  const std::string here = where + ": metric \"" + m.name + "\"";
  m.unit = json_string(json, "unit", here, "");
  m.better = parse_name(kBetters, better_name, json, "better", here, Better::lower);
  m.kind = parse_name(kKinds, metric_kind_name, json, "kind", here, MetricKind::time);
  m.samples = parse_samples(json, here);
  m.predicted = parse_optional(json, "predicted", here);
  m.limit = parse_optional(json, "limit", here);
  return m;
}

std::string object_text(const Json& json, const char* key, const std::string& where) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return "{}";
  if (!it->is_object())
    fail(ErrorKind::input, "{}: key \"{}\": expected an object, found {}", where, key, it->type_name());
  return it->dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t major_of(const std::string& version) {
  int64_t major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

void add_records(const Json& json, const std::string& where, std::vector<BenchRecord>& out) {
  if (!json.is_array()) return out.push_back(parse_record(json, where));
  for (size_t i = 0; i < json.size(); ++i) out.push_back(parse_record(json[i], where + "[" + std::to_string(i) + "]"));
}

// JSON lines; line 1 has to be whole by itself, else this is one text and `error` of it is the truth.
std::vector<BenchRecord> read_lines(const std::string& text, const std::string& where, const Error& error) {
  std::vector<BenchRecord> out;
  size_t begin = 0;
  for (int64_t n = 1; begin < text.size(); ++n) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (out.empty() && !Json::accept(line)) throw error;
    const std::string here = where + ":" + std::to_string(n);
    add_records(parse_json(line, here), here, out);
  }
  return out;
}

}  // namespace

const char* better_name(Better better) {
  switch (better) {
    case Better::lower: return "lower";
    case Better::higher: return "higher";
    case Better::neither: break;
  }
  return "neither";
}

const char* metric_kind_name(MetricKind kind) {
  switch (kind) {
    case MetricKind::time: return "time";
    case MetricKind::count: return "count";
    case MetricKind::fact: break;
  }
  return "fact";
}

BenchRecord new_record(const std::string& bench, const std::string& name, const Json& config) {
  BenchRecord record;
  record.bench = bench;
  record.name = name;
  record.time = utc_timestamp();
  record.tool_version = version();
  record.machine = machine_json(machine_identity()).dump();
  record.config = config.dump(-1, ' ', false, Json::error_handler_t::replace);
  return record;
}

void set_device(BenchRecord& record, const std::string& device) {
  Json machine = parse_json(record.machine, "machine of a record");
  set_device(machine, device);
  record.machine = machine.dump();
}

const BenchMetric* find_metric(const BenchRecord& record, const std::string& name) {
  for (const BenchMetric& m : record.metrics)
    if (m.name == name) return &m;
  return nullptr;
}

Json record_json(const BenchRecord& r) {
  Json metrics = Json::array();
  for (const BenchMetric& m : r.metrics) {
    Json samples = Json::array();
    for (const double v : m.samples) samples.push_back(number_json(v));
    Json one = {{"name", m.name},
                {"unit", m.unit},
                {"better", better_name(m.better)},
                {"kind", metric_kind_name(m.kind)},
                {"samples", std::move(samples)},
                {"median", number_json(quantile_of(m.samples, 0.5))}};
    if (m.predicted) one["predicted"] = number_json(*m.predicted);
    if (m.limit) one["limit"] = number_json(*m.limit);
    metrics.push_back(std::move(one));
  }
  const auto object = [](const std::string& text, const char* what) {
    return text.empty() ? Json::object() : parse_json(text, what);
  };
  return {{"bench", r.bench},
          {"name", r.name},
          {"time", r.time},
          {"tool_version", r.tool_version},
          {"machine", object(r.machine, "machine of a record")},
          {"config", object(r.config, "config of a record")},
          {"repeats", r.repeats},
          {"cpu_share", number_json(r.cpu_share)},
          {"quiet", r.quiet},
          {"metrics", std::move(metrics)},
          {"details", object(r.details, "details of a record")}};
}

BenchRecord parse_record(const Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("bench"))
    fail(ErrorKind::input,
         "{}: expected a record of dbench (an object with \"bench\", \"name\", \"metrics\"; what --json prints), found "
         "{} without \"bench\"",
         where, json.is_object() ? "an object" : json.type_name());
  BenchRecord r;
  r.bench = json_string(json, "bench", where);
  r.name = json_string(json, "name", where);
  const std::string here = where + " (" + r.bench + " \"" + r.name + "\")";
  r.time = json_string(json, "time", here, "");
  r.tool_version = json_string(json, "tool_version", here, "");
  if (major_of(r.tool_version) > major_of(version()))
    fail(ErrorKind::input, "{}: expected a record of version {} or older, found one of {}; read it with that version",
         here, version(), r.tool_version);
  r.machine = object_text(json, "machine", here);
  r.config = object_text(json, "config", here);
  r.repeats = json_int(json, "repeats", here, 1);
  if (r.repeats < 1) fail(ErrorKind::input, "{}: key \"repeats\": expected 1 or more, found {}", here, r.repeats);
  r.cpu_share = json_number(json, "cpu_share", here, std::numeric_limits<double>::quiet_NaN());
  r.quiet = json_bool(json, "quiet", here, true);
  r.details = object_text(json, "details", here);
  const auto metrics = json.find("metrics");
  if (metrics == json.end() || !metrics->is_array())
    fail(ErrorKind::input, "{}: key \"metrics\": expected an array, found {}", here,
         metrics == json.end() ? "none" : metrics->type_name());
  std::set<std::string> names;
  for (const Json& m : *metrics) {
    r.metrics.push_back(parse_metric(m, here));
    if (!names.insert(r.metrics.back().name).second)
      fail(ErrorKind::input, "{}: key \"metrics\": expected each name once, found \"{}\" twice", here,
           r.metrics.back().name);
  }
  return r;
}

std::vector<BenchRecord> read_records(const std::string& path) {
  const bool is_stdin = path == "-";
  const std::string where = is_stdin ? "standard input" : path;
  const std::string text =
      is_stdin ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_regular_file(path);
  std::vector<BenchRecord> out;
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    fail(ErrorKind::input, "{}: expected records of dbench (what --json prints), found an empty file", where);
  Json whole;
  try {
    whole = parse_json(text, where);
  } catch (const Error& error) {
    return read_lines(text, where, error);
  }
  add_records(whole, where, out);
  if (out.empty()) fail(ErrorKind::input, "{}: expected records of dbench, found an empty array", where);
  return out;
}

}  // namespace rw
