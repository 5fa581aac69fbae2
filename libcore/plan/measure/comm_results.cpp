#include "libcore/plan/measure/comm_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/units.h"
#include "libcore/plan/measure/link_fit.h"

namespace rw {
namespace {

// Worse than these a line is no measurement of what lies under it: of the sizes' relative errors.
constexpr double kMostMeanError = 0.15, kMostWorstError = 1;
constexpr const char* kLibraryWay = "mpi-blocking";  // no job takes it

struct Timing {
  std::string kind;
  int64_t ranks = 0, nodes = 0;
  std::string way;
  bool is_shared = false, is_in_place = false;
  bool is_quiet = true;  // as far as its record says
  TimedSize point;
};

std::string kind_of(const std::string& op) { return op == "send_recv" ? "send" : op; }

Timing read_timing(const Json& line, const std::string& where) {
  Timing t{.kind = kind_of(json_string(line, "op", where)),
           .ranks = json_int(line, "ranks", where),
           .nodes = json_int(line, "nodes", where),
           .way = json_string(line, "way", where),
           .is_shared = json_string(line, "memory", where, "private") == "shared",
           .is_in_place = json_bool(line, "in_place", where, false),
           .is_quiet = true,
           .point = {.bytes = json_number(line, "bytes", where), .seconds = json_number(line, "us", where) * 1e-6}};
  if (t.ranks < 1 || t.nodes < 1 || t.nodes > t.ranks)
    fail(ErrorKind::input, "{}: expected ranks of at least 1 on at most as many nodes, found {} on {}", where, t.ranks,
         t.nodes);
  if (const int64_t wrong = json_int(line, "wrong", where, 0); wrong > 0)
    fail(ErrorKind::input, "{}: {} elements of the result were wrong, so its time means nothing; run dbench comm again",
         where, wrong);
  return t;
}

// The rows of a record of dbench comm.
std::vector<Timing> read_record(const Json& record, const std::string& where) {
  if (const std::string bench = json_string(record, "bench", where); bench != "comm")
    fail(ErrorKind::input, "{}: expected a record of dbench comm, found one of dbench {}", where, bench);
  const Json details = record.value("details", Json());
  const Json rows = details.is_object() ? details.value("rows", Json()) : Json();
  if (!rows.is_array())
    fail(ErrorKind::input, "{}: key \"details.rows\": expected an array of timings, found {}", where, rows.type_name());
  std::vector<Timing> timings;
  const bool is_quiet = json_bool(record, "quiet", where, true);
  for (const Json& row : rows) {
    const std::string place = fmt::format("{}: details.rows[{}]", where, timings.size());
    if (!row.is_object()) fail(ErrorKind::input, "{}: expected a timing, an object, found {}", place, row.type_name());
    timings.push_back(read_timing(row, place));
    timings.back().is_quiet = is_quiet;
  }
  return timings;
}

std::vector<Timing> read_timings(const std::string& text, const std::string& where) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    fail(ErrorKind::input, "{}: expected timings of dbench comm --json, found an empty file", where);
  std::vector<Timing> timings;
  const auto add = [&](const Json& json, const std::string& place) {
    if (!json.is_object())
      fail(ErrorKind::input, "{}: expected a record or a line of dbench comm --json, an object, found {}", place,
           json.type_name());
    if (!json.contains("bench")) return timings.push_back(read_timing(json, place));
    std::vector<Timing> rows = read_record(json, place);
    timings.insert(timings.end(), std::make_move_iterator(rows.begin()), std::make_move_iterator(rows.end()));
  };
  // A record that somebody laid out over several lines is one value; otherwise a line is.
  if (const Json whole = Json::parse(text, nullptr, false); whole.is_object()) {
    add(whole, where);
  } else {
    std::istringstream lines(text);
    int64_t n = 0;
    for (std::string line; std::getline(lines, line);) {
      ++n;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string place = fmt::format("{}:{}", where, n);
      add(parse_json(line, place), place);
    }
  }
  if (timings.empty()) fail(ErrorKind::input, "{}: expected timings of dbench comm --json, found none", where);
  return timings;
}

bool is_fitted(const std::string& kind) {
  return kind == "all_reduce" || kind == "all_gather" || kind == "reduce_scatter" || kind == "send";
}

// What jobs do: the way that the table picks ("auto"; of a job that tries all ways for a new table, at each size the
// fastest), of operations that have one way that one; shared memory; all_reduce within a buffer, the others from one to
// another.
struct Choice {
  std::vector<TimedSize> points;
  std::string way;  // "auto", "fastest", "direct", "pair", on a GPU "device"; another: not what jobs take
  bool is_jobs_way = true, is_quiet = true;
};

Choice choose(const std::vector<Timing>& all) {
  const auto of_library = [](const Timing& t) { return t.way == kLibraryWay; };
  Choice choice;
  const auto has = [&](const char* way) {
    return std::any_of(all.begin(), all.end(), [&](const Timing& t) { return t.way == way; });
  };
  std::set<std::string> ways;
  for (const Timing& t : all)
    if (!of_library(t)) ways.insert(t.way);
  if (ways.empty()) return choice;
  choice.way = has("auto") ? "auto" : ways.size() > 1 ? "fastest" : *ways.begin();
  choice.is_jobs_way =
      choice.way == "auto" || choice.way == "fastest" || choice.way == "device" || all.front().kind != "all_reduce";
  const auto takes = [&](const Timing& t) {
    return !of_library(t) && (choice.way == "fastest" || t.way == choice.way);
  };
  const auto rank = [](const Timing& t) { return 2 * t.is_shared + (t.is_in_place == (t.kind == "all_reduce")); };
  int best = 0;
  for (const Timing& t : all)
    if (takes(t)) best = std::max(best, rank(t));
  std::map<double, double> fastest;
  for (const Timing& t : all) {
    if (!takes(t) || rank(t) != best) continue;
    choice.is_quiet = choice.is_quiet && t.is_quiet;
    if (choice.way != "fastest") {
      choice.points.push_back(t.point);
      continue;
    }
    const auto [known, is_new] = fastest.emplace(t.point.bytes, t.point.seconds);
    if (!is_new) known->second = std::min(known->second, t.point.seconds);
  }
  for (const auto& [bytes, seconds] : fastest) choice.points.push_back({.bytes = bytes, .seconds = seconds});
  return choice;
}

// Why a fit is a guess, for its note; "" when it is a measurement.
std::string doubt(const Choice& choice, const FitError& error) {
  std::string why;
  const auto add = [&](const std::string& reason) { why += (why.empty() ? "; a guess: " : ", ") + reason; };
  if (!choice.is_jobs_way) add(fmt::format("the way {} alone, which jobs may not take", choice.way));
  if (!choice.is_quiet) add("the machine was not quiet");
  if (error.mean > kMostMeanError || error.worst > kMostWorstError) add("the lines miss the times by too much");
  if (choice.points.size() < 2) add("one size tells no latency from bandwidth");
  return why;
}

}  // namespace

LinkFits fit_comm_results(const std::string& text, const std::string& where) {
  std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<Timing>> groups;  // by kind, ranks, nodes
  LinkFits fits;
  for (Timing& t : read_timings(text, where)) {
    fits.nodes = std::max(fits.nodes, t.nodes);
    groups[{t.kind, t.ranks, t.nodes}].push_back(std::move(t));
  }
  for (const auto& [key, timings] : groups) {
    const auto& [kind, ranks, nodes] = key;
    if (!is_fitted(kind) || ranks < 2) continue;
    if (nodes > 1 && nodes < ranks) {
      fits.notes.push_back(
          fmt::format("{}: {} over {} ranks on {} nodes tells of two links at once and is not used; "
                      "run one rank a node",
                      where, kind, ranks, nodes));
      continue;
    }
    const Choice choice = choose(timings);
    if (choice.points.empty()) {
      fits.notes.push_back(
          fmt::format("{}: {} over {} ranks: only the MPI library's own call was measured, which jobs "
                      "do not take; it is not used",
                      where, kind, ranks));
      continue;
    }
    CollectiveFit fit{.kind = kind, .ranks = ranks, .segments = fit_segments(choice.points), .provenance = "measured"};
    for (LinkSegment& line : fit.segments)
      line.alpha = four_digits(line.alpha), line.bandwidth = four_digits(line.bandwidth);
    const FitError error = fit_error(fit.segments, choice.points);
    const std::string why = doubt(choice, error);
    if (!why.empty()) fit.provenance = "guess";
    fits.notes.push_back(fmt::format(
        "{}: {} ({}) over {} ranks on {}: {} times, {} line(s), error {:.1f} % on average, {:.1f} % at most{}", where,
        kind, choice.way, ranks, nodes == 1 ? "one node" : fmt::format("{} nodes", nodes), choice.points.size(),
        fit.segments.size(), 100 * error.mean, 100 * error.worst, why));
    (nodes == 1 ? fits.node : fits.network).push_back(std::move(fit));
  }
  return fits;
}

LinkSpeed link_below(const CollectiveFit& fit) {
  CHECK(!fit.segments.empty() && fit.ranks > 1, "a fit over %lld ranks", static_cast<long long>(fit.ranks));
  const double r = static_cast<double>(fit.ranks);
  const double passes = fit.kind == "send" ? 0 : fit.kind == "all_reduce" ? 2 : 1;
  const double rounds = passes == 0 ? 1 : passes * (r - 1), share = passes == 0 ? 1 : passes * (r - 1) / r;
  return {.latency = four_digits(fit.segments.front().alpha / rounds),
          .bandwidth = four_digits(fit.segments.back().bandwidth * share)};
}

const CollectiveFit* plainest(const std::vector<CollectiveFit>& fits) {
  const auto rounds = [](const CollectiveFit& f) {
    const int64_t n = f.kind == "send" ? 1 : (f.ranks - 1) * (f.kind == "all_reduce" ? 2 : 1) + 1;
    return std::pair(f.provenance == "guess", n);
  };
  const auto it = std::min_element(
      fits.begin(), fits.end(), [&](const CollectiveFit& a, const CollectiveFit& b) { return rounds(a) < rounds(b); });
  return it == fits.end() ? nullptr : &*it;
}

}  // namespace rw
