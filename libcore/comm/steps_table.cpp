#include "libcore/comm/steps_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr const char* kFormat = "rankwright comm table";
constexpr int64_t kVersion = 1;
// Up to here a leader can talk to all others at once without their messages colliding at the receivers.
constexpr int64_t kDirectNodes = 8;
// Below, a message costs its latency whatever it carries: 16 KiB take 13 us at 10 Gbit/s, where a message takes 20.
constexpr int64_t kDoublingBytes = 16 << 10;
constexpr int64_t kTreeBytes = 1 << 20;

CommTableRow parse_row(const Json& json, const std::string& where) {
  CommTableRow row;
  row.ranks = json_int(json, "ranks", where);
  row.nodes = json_int(json, "nodes", where);
  row.max_bytes = json_int(json, "max_bytes", where);
  row.pick.segment_bytes = json_int(json, "segment_bytes", where, row.pick.segment_bytes);
  row.us = json_number(json, "us", where, 0.0);
  const std::string name = json_string(json, "algorithm", where);
  const std::optional<AllReduceWay> way = find_way(name);
  if (!way) {
    std::string known;
    for (const std::string& n : way_names()) known += (known.empty() ? "" : ", ") + n;
    fail(ErrorKind::input, "{}: algorithm: expected one of {}, found \"{}\"", where, known, name);
  }
  row.pick.way = *way;
  if (row.ranks < 1 || row.nodes < 1 || row.nodes > row.ranks || row.max_bytes < 0 || row.pick.segment_bytes < 1)
    fail(ErrorKind::input,
         "{}: expected ranks >= nodes >= 1, max_bytes >= 0 and segment_bytes >= 1, found {}, {}, {}, {}", where,
         row.ranks, row.nodes, row.max_bytes, row.pick.segment_bytes);
  return row;
}

}  // namespace

const char* way_name(const AllReduceWay& way) {
  return way.steps ? algorithm_name(*way.steps) : way.is_library ? "mpi" : "direct";
}

std::optional<AllReduceWay> find_way(const std::string& name) {
  if (name == "direct") return AllReduceWay{};
  if (name == "mpi") return AllReduceWay{.is_library = true};
  for (CollectiveAlgorithm a : kCollectiveAlgorithms)
    if (name == algorithm_name(a)) return AllReduceWay{.steps = a};
  return std::nullopt;
}

std::vector<std::string> way_names() {
  std::vector<std::string> names{"direct", "mpi"};
  for (CollectiveAlgorithm a : kCollectiveAlgorithms) names.push_back(algorithm_name(a));
  return names;
}

CommTable parse_comm_table(const Json& json, const std::string& where) {
  const std::string format = json_string(json, "format", where);
  if (format != kFormat)
    fail(ErrorKind::input, "{}: format: expected \"{}\" (made by dbench comm --tune), found \"{}\"", where, kFormat,
         format);
  if (const int64_t version = json_int(json, "version", where); version != kVersion)
    fail(ErrorKind::input, "{}: version: expected {}, found {}; measure again with dbench comm --tune", where, kVersion,
         version);
  CommTable table;
  const auto rows = json.find("all_reduce");
  if (rows == json.end() || !rows->is_array())
    fail(ErrorKind::input, "{}: all_reduce: expected a list of rows, found {}", where,
         rows == json.end() ? "nothing" : rows->type_name());
  for (size_t i = 0; i < rows->size(); ++i)
    table.all_reduce.push_back(parse_row((*rows)[i], fmt::format("{}: all_reduce[{}]", where, i)));
  return table;
}

CommTable read_comm_table(const std::filesystem::path& file) {
  return parse_comm_table(read_json(file), file.string());
}

Json comm_table_json(const CommTable& table) {
  Json rows = Json::array();
  for (const CommTableRow& r : table.all_reduce)
    rows.push_back({{"ranks", r.ranks},
                    {"nodes", r.nodes},
                    {"max_bytes", r.max_bytes},
                    {"algorithm", way_name(r.pick.way)},
                    {"segment_bytes", r.pick.segment_bytes},
                    {"us", r.us}});
  return {{"format", kFormat}, {"version", kVersion}, {"all_reduce", rows}};
}

AllReducePick pick_all_reduce(const CommTable& table, int64_t ranks, int64_t nodes, int64_t bytes) {
  const auto ratio = [](int64_t a, int64_t b) {
    return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
  };
  const CommTableRow* best = nullptr;
  const auto key = [&](const CommTableRow& r) {
    const bool is_short = r.max_bytes < bytes;
    return std::tuple(ratio(r.ranks, ranks) + ratio(r.nodes, nodes), r.ranks, r.nodes, is_short,
                      is_short ? -r.max_bytes : r.max_bytes);
  };
  // What was measured between nodes says nothing about ranks that share memory, and the other way round.
  for (const CommTableRow& r : table.all_reduce)
    if ((r.nodes == 1) == (nodes == 1) && (best == nullptr || key(r) < key(*best))) best = &r;
  return best != nullptr ? best->pick : default_pick(ranks, nodes, bytes);
}

AllReducePick default_pick(int64_t ranks, int64_t nodes, int64_t bytes) {
  using enum CollectiveAlgorithm;
  if (nodes <= kDirectNodes) return {};
  if (nodes < ranks) return {.way = {.steps = hierarchical}};
  if (bytes <= kDoublingBytes) return {.way = {.steps = doubling}};
  if (bytes <= kTreeBytes) return {.way = {.steps = tree}, .segment_bytes = 32 << 10};
  return {.way = {.steps = ring}};
}

}  // namespace rw
