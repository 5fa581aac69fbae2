#include "libcore/bench/comm/comm_record.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/bench/comm/comm_trial.h"

namespace rw {
namespace {

BenchMetric metric(std::string name, const char* unit, std::vector<double> samples) {
  BenchMetric m;
  m.name = std::move(name);
  m.unit = unit;
  m.samples = std::move(samples);
  return m;
}

BenchMetric exact(std::string name, const char* unit, int64_t value) {
  BenchMetric m = metric(std::move(name), unit, {static_cast<double>(value)});
  m.kind = MetricKind::count;
  return m;
}

std::string stem(const CommCase& c, bool in_place) {
  std::string name = fmt::format("comm.{}.{}.{}.{}", bench_op_name(c.op), c.way, c.bytes, dtype_name(c.t));
  if (c.way == "pair") return name + (c.nodes == 1 ? ".node" : ".network");
  if (!c.is_shared && c.way != kPeerWay) name += ".private";
  if (c.op == BenchOp::all_gather && in_place) name += ".in_place";
  return name;
}

void add_case(BenchRecord& record, const CommCase& c) {
  for (const bool in_place : {false, true}) {
    const std::optional<CommTiming>& t = in_place ? c.in_place : c.out_of_place;
    if (!t) continue;
    const std::string name = stem(c, in_place);
    record.metrics.push_back(metric(name + ".us", "us", t->blocks_us));
    if (t->wrong >= 0) record.metrics.push_back(exact(name + ".wrong", "elements", t->wrong));
    if (!c.sent) continue;
    record.metrics.push_back(exact(name + ".sent_bytes", "bytes", c.sent->bytes));
    record.metrics.push_back(exact(name + ".sent_messages", "messages", c.sent->messages));
  }
}

}  // namespace

std::vector<Json> comm_rows(const std::vector<CommCase>& cases) {
  std::vector<Json> rows;
  for (const CommCase& c : cases)
    for (Json& row : comm_case_json(c)) rows.push_back(std::move(row));
  return rows;
}

BenchRecord comm_record(const CommFindings& found) {
  CommBenchSpec spec = found.spec;
  BenchRecord record = new_record(
      "comm", fmt::format("{} on {}, {}", counted(found.ranks, "rank"), counted(found.nodes, "node"), found.comm),
      fields_json(fields(spec)));
  set_device(record, found.device);
  record.repeats = spec.repeats;
  record.cpu_share = found.quiet.cpu_share;
  record.quiet = found.quiet.is_quiet;
  for (const CommCase& c : found.cases) add_case(record, c);
  Json details{{"ranks", found.ranks}, {"nodes", found.nodes}, {"comm", found.comm}};
  details["others_share"] = std::isnan(found.quiet.others_share) ? Json() : Json(found.quiet.others_share);
  details["rows"] = comm_rows(found.cases);
  details["links"] = link_json(found.fits);
  if (found.pairs) {
    for (const PairSpeed& p : found.pairs->pairs) {
      const std::string name = fmt::format("comm.pair.{}-{}", p.a, p.b);
      record.metrics.push_back(metric(name + ".latency_us", "us", p.latencies_us));
      std::vector<double> speeds;
      for (double us : p.times_us) speeds.push_back(static_cast<double>(found.pairs->bytes) / us * 1e-3);
      record.metrics.push_back(metric(name + ".gb_s", "GB/s", std::move(speeds)));
      record.metrics.back().better = Better::higher;
    }
    details["pair_matrix"] = pair_json(*found.pairs);
  }
  record.details = details.dump();
  return record;
}

}  // namespace rw
