#include "libcore/plan/serve/workload.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/rng.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

// Lengths and ids beyond these are slips of whoever wrote the file.
constexpr int64_t kLongest = int64_t{1} << 24;

int64_t whole(const Json& line, const char* key, const std::string& where, int64_t least) {
  const auto found = line.find(key);
  if (found == line.end()) fail(ErrorKind::input, "{}: expected the key \"{}\", found none", where, key);
  if (!found->is_number_integer() || *found < least || *found > kLongest)
    fail(ErrorKind::input, "{}: {}: expected a whole number from {} to {}, found {}", where, key, least, kLongest,
         found->dump());
  return found->get<int64_t>();
}

WorkloadRequest trace_line(const Json& line, const std::string& where) {
  if (!line.is_object())
    fail(ErrorKind::input, "{}: expected an object with timestamp, input_length and output_length, found {}", where,
         line.type_name());
  WorkloadRequest r;
  const double ms = json_number(line, "timestamp", where);
  if (!(ms >= 0) || !std::isfinite(ms))
    fail(ErrorKind::input, "{}: timestamp: expected milliseconds from 0 on, found {}", where, ms);
  r.arrival_s = ms / 1000;
  r.input = whole(line, "input_length", where, 1);
  r.output = whole(line, "output_length", where, 1);
  const auto ids = line.find("hash_ids");
  if (ids == line.end() || ids->is_null()) return r;
  if (!ids->is_array())
    fail(ErrorKind::input, "{}: hash_ids: expected an array of ids, found {}", where, ids->type_name());
  const int64_t blocks = (r.input + kTraceBlockTokens - 1) / kTraceBlockTokens;
  if (static_cast<int64_t>(ids->size()) > blocks)
    fail(ErrorKind::input, "{}: hash_ids: expected at most {} for {} input tokens ({} to a block), found {}", where,
         blocks, r.input, kTraceBlockTokens, ids->size());
  for (const Json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      fail(ErrorKind::input, "{}: hash_ids: expected whole numbers from 0 to {}, found {}", where, INT32_MAX,
           id.dump());
    r.hash_ids.push_back(id.get<int32_t>());
  }
  return r;
}

// A key's value: a number, or two with ".." between.
struct Span {
  int64_t low = 0, high = 0;
};

double number(const std::string& text, const std::string& key, double least, double most) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !(value >= least && value <= most))
    fail(ErrorKind::usage, "--workload: {}: expected a number from {} to {}, found \"{}\"", key, least, most, text);
  return value;
}

int64_t integer(const std::string& text, const std::string& key, int64_t least, int64_t most) {
  const double value = number(text, key, static_cast<double>(least), static_cast<double>(most));
  if (value != std::floor(value))
    fail(ErrorKind::usage, "--workload: {}: expected a whole number, found \"{}\"", key, text);
  return static_cast<int64_t>(value);
}

Span lengths(const std::string& text, const std::string& key) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) {
    const int64_t n = integer(text, key, 1, kLongest);
    return {n, n};
  }
  const Span s{integer(text.substr(0, dots), key, 1, kLongest), integer(text.substr(dots + 2), key, 1, kLongest)};
  if (s.low > s.high)
    fail(ErrorKind::usage, "--workload: {}: expected the lower length first, found \"{}\"", key, text);
  return s;
}

// A gamma variate of mean 1 by Marsaglia and Tsang (2000); draws are counters of `key` from `first` on. Shapes below 1
// are lifted by one and thinned by a power of a uniform number, as they propose.
double gamma_of_mean_1(double shape, uint64_t key, uint64_t first) {
  const double lifted = shape < 1 ? shape + 1 : shape, d = lifted - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  uint64_t at = first;
  const double thin = shape < 1 ? std::pow(1 - random_uniform(key, at++), 1 / shape) : 1;
  for (;;) {
    const double u1 = 1 - random_uniform(key, at), u2 = random_uniform(key, at + 1),
                 u = 1 - random_uniform(key, at + 2);
    at += 3;
    const double normal = std::sqrt(-2 * std::log(u1)) * std::cos(2 * M_PI * u2);
    const double v = std::pow(1 + c * normal, 3);
    if (v <= 0 || std::log(u) >= normal * normal / 2 + d * (1 - v + std::log(v))) continue;
    return thin * d * v / shape;
  }
}

double gap_of_mean_1(double burst, uint64_t key, int64_t i) {
  if (burst == 0) return 1;
  const uint64_t first = static_cast<uint64_t>(i) << 20;  // more draws than a gap will ever take
  if (burst == 1) return -std::log(1 - random_uniform(key, first));
  return gamma_of_mean_1(1 / burst, key, first);
}

int64_t draw(const Span& s, uint64_t key, int64_t i) {
  return s.low +
         static_cast<int64_t>(random_uniform(key, static_cast<uint64_t>(i)) * static_cast<double>(s.high - s.low + 1));
}

struct Description {
  Span in, out;
  double rate = 0, burst = 1;
  int64_t requests = 2000, prefix = 0;
};

Description parse_description(const std::string& text) {
  static const std::vector<std::string> kKeys = {"in", "out", "rate", "requests", "burst", "prefix"};
  Description d;
  std::vector<std::string> seen;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    at = comma + 1;
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (equals == std::string::npos || std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      const std::string near = nearest(key, kKeys);
      fail(ErrorKind::usage,
           "--workload: expected a trace file or "
           "in=TOKENS,out=TOKENS,rate=PER_SECOND[,requests=N][,burst=G][,prefix=P], "
           "found \"{}\"{}",
           part, near.empty() ? "" : "; did you mean \"" + near + "=\"?");
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      fail(ErrorKind::usage, "--workload: {}: expected once, found again", key);
    seen.push_back(key);
    const std::string value = part.substr(equals + 1);
    if (key == "in") d.in = lengths(value, key);
    else if (key == "out") d.out = lengths(value, key);
    else if (key == "rate") d.rate = number(value, key, 1e-6, 1e9);
    else if (key == "requests") d.requests = integer(value, key, 1, kMostRequests);
    else if (key == "burst") d.burst = number(value, key, 0, 1000);
    else d.prefix = integer(value, key, 0, kLongest);
  }
  for (const char* key : {"in", "out", "rate"})
    if (std::find(seen.begin(), seen.end(), key) == seen.end())
      fail(ErrorKind::usage, "--workload: expected {}= in \"{}\", found none", key, text);
  return d;
}

}  // namespace

bool Workload::shares_prefixes() const {
  return std::any_of(requests.begin(), requests.end(),
                     [](const WorkloadRequest& r) { return r.prefix > 0 || !r.hash_ids.empty(); });
}

double Workload::mean_input() const {
  double sum = 0;
  for (const WorkloadRequest& r : requests) sum += static_cast<double>(r.input);
  return sum / static_cast<double>(requests.size());
}

double Workload::mean_output() const {
  double sum = 0;
  for (const WorkloadRequest& r : requests) sum += static_cast<double>(r.output);
  return sum / static_cast<double>(requests.size());
}

int64_t Workload::longest() const {
  int64_t most = 0;
  for (const WorkloadRequest& r : requests) most = std::max(most, r.input + r.output);
  return most;
}

Workload parse_trace(std::string_view text, const std::string& where) {
  Workload w{.name = where, .requests = {}};
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = where + ":" + std::to_string(number);
    if (static_cast<int64_t>(w.requests.size()) == kMostRequests)
      fail(ErrorKind::input, "{}: expected at most {} requests, found more; plan with a part of the trace", place,
           kMostRequests);
    w.requests.push_back(trace_line(parse_json(line, place), place));
  }
  if (w.requests.empty())
    fail(ErrorKind::input,
         "{}: expected a line {{\"timestamp\", \"input_length\", \"output_length\"}} for each request, "
         "found nothing",
         where);
  std::stable_sort(w.requests.begin(), w.requests.end(),
                   [](const WorkloadRequest& a, const WorkloadRequest& b) { return a.arrival_s < b.arrival_s; });
  const double first = w.requests.front().arrival_s;
  for (WorkloadRequest& r : w.requests) r.arrival_s -= first;
  const double span = w.requests.back().arrival_s;
  const auto n = static_cast<double>(w.requests.size());
  // n requests bound n - 1 gaps; a trace of one moment is one second's.
  w.rate = span > 0 ? (n - 1) / span : n;
  return w;
}

Workload describe_workload(const std::string& description, uint64_t seed) {
  const Description d = parse_description(description);
  const uint64_t gaps = rng_key(seed, "workload/arrival"), in = rng_key(seed, "workload/input"),
                 out = rng_key(seed, "workload/output");
  Workload w{.name = description, .requests = {}, .rate = d.rate};
  w.requests.reserve(static_cast<size_t>(d.requests));
  double now = 0;
  for (int64_t i = 0; i < d.requests; ++i) {
    if (i > 0) now += gap_of_mean_1(d.burst, gaps, i) / d.rate;
    const int64_t input = draw(d.in, in, i);
    w.requests.push_back(
        {.arrival_s = now, .input = input, .output = draw(d.out, out, i), .prefix = std::min(d.prefix, input)});
  }
  return w;
}

Workload load_workload(const std::string& what, uint64_t seed) {
  if (what.find('=') != std::string::npos && !std::filesystem::exists(what)) return describe_workload(what, seed);
  if (!std::filesystem::is_regular_file(what))
    fail(ErrorKind::usage,
         "--workload {}: expected a trace file, or a description like in=1024,out=256,rate=4; found no "
         "such file",
         what);
  if (const auto size = static_cast<int64_t>(std::filesystem::file_size(what)); size > kMostTraceBytes)
    fail(ErrorKind::input, "{}: expected a trace of at most {}, found {}; plan with a part of it", what,
         format_bytes(static_cast<double>(kMostTraceBytes)), format_bytes(static_cast<double>(size)));
  return parse_trace(read_file(what), what);
}

std::vector<int32_t> prompt_tokens(const WorkloadRequest& r, int64_t index) {
  // Ids of blocks are from 0 on, of the common prefix INT32_MIN, of what is a request's own below 0.
  std::vector<int32_t> tokens(static_cast<size_t>(r.input), static_cast<int32_t>(-1 - index));
  std::fill_n(tokens.begin(), r.prefix, INT32_MIN);
  for (size_t b = 0; b < r.hash_ids.size(); ++b) {
    const int64_t first = static_cast<int64_t>(b) * kTraceBlockTokens;
    std::fill(tokens.begin() + first, tokens.begin() + std::min(first + kTraceBlockTokens, r.input), r.hash_ids[b]);
  }
  return tokens;
}

Json workload_json(const Workload& w) {
  return {{"name", w.name},
          {"requests", w.requests.size()},
          {"rate", w.rate},
          {"mean_input_tokens", w.mean_input()},
          {"mean_output_tokens", w.mean_output()},
          {"longest_tokens", w.longest()}};
}

}  // namespace rw
