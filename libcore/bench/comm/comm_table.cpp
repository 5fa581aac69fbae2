#include "libcore/bench/comm/comm_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"

namespace rw {
namespace {

const char* redop_of(BenchOp op) { return op == BenchOp::all_reduce || op == BenchOp::reduce_scatter ? "sum" : "none"; }
int root_of(BenchOp op) { return op == BenchOp::broadcast ? 0 : -1; }

std::string timing_columns(const CommCase& c, const std::optional<CommTiming>& t) {
  if (!t) return fmt::format("{:>10} {:>8} {:>8} {:>7}", "-", "-", "-", "-");
  const std::string wrong = t->wrong < 0 ? "n/a" : std::to_string(t->wrong);
  if (c.op == BenchOp::barrier) return fmt::format("{:>10.2f} {:>8} {:>8} {:>7}", t->us, "-", "-", wrong);
  return fmt::format("{:>10.2f} {:>8.3f} {:>8.3f} {:>7}", t->us, algbw_gb_s(c, *t), busbw_gb_s(c, *t), wrong);
}

// "64K", "1M" as the size flags take them; "-" of a way without segments.
std::string segment_text(int64_t bytes) {
  if (bytes <= 0) return "-";
  if (bytes % (1 << 20) == 0) return fmt::format("{}M", bytes >> 20);
  return bytes % (1 << 10) == 0 ? fmt::format("{}K", bytes >> 10) : std::to_string(bytes);
}

}  // namespace

std::string counted(int64_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

const char* bench_op_name(BenchOp op) {
  switch (op) {
    case BenchOp::all_reduce: return "all_reduce";
    case BenchOp::reduce_scatter: return "reduce_scatter";
    case BenchOp::all_gather: return "all_gather";
    case BenchOp::broadcast: return "broadcast";
    case BenchOp::send_recv: return "send_recv";
    case BenchOp::barrier: return "barrier";
  }
  return "?";
}

std::optional<BenchOp> find_bench_op(const std::string& name) {
  for (BenchOp op : kBenchOps)
    if (name == bench_op_name(op)) return op;
  return std::nullopt;
}

double busbw_factor(BenchOp op, int ranks) {
  const double p = ranks;
  switch (op) {
    case BenchOp::all_reduce: return 2 * (p - 1) / p;
    case BenchOp::reduce_scatter:
    case BenchOp::all_gather: return (p - 1) / p;
    case BenchOp::broadcast:
    case BenchOp::send_recv: return 1;
    case BenchOp::barrier: return 0;
  }
  return 0;
}

std::vector<int64_t> bench_sizes(const SizeRange& range, int64_t multiple) {
  CHECK(range.factor > 1 && multiple > 0, "sizes by a factor of %g", range.factor);
  std::vector<int64_t> sizes;
  for (double size = static_cast<double>(range.min); size <= static_cast<double>(range.max); size *= range.factor) {
    const int64_t whole = static_cast<int64_t>(size) / multiple * multiple;
    if (whole > 0 && (sizes.empty() || whole != sizes.back())) sizes.push_back(whole);
    if (size == 0) break;
  }
  return sizes;
}

double algbw_gb_s(const CommCase& c, const CommTiming& t) {
  return t.us > 0 ? static_cast<double>(c.bytes) / t.us * 1e-3 : 0;
}
double busbw_gb_s(const CommCase& c, const CommTiming& t) { return algbw_gb_s(c, t) * busbw_factor(c.op, c.ranks); }

std::string comm_table_head(int ranks, int nodes, const std::string& comm) {
  return fmt::format(
      "# {} on {}, comm {}; time of the slowest rank, median of the samples; size B, time us, bw GB/s\n"
      "#{:>90}{:>37}\n"
      "# {:<14} {:<12} {:<7} {:>7} {:>10} {:>10} {:>4} {:>5} {:>4} {:>10} {:>8} {:>8} {:>7} {:>10} {:>8} {:>8} {:>7}\n",
      counted(ranks, "rank"), counted(nodes, "node"), comm, "out of place", "in place", "op", "way", "memory",
      "segment", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
      "#wrong");
}

std::string comm_table_line(const CommCase& c) {
  return fmt::format("  {:<14} {:<12} {:<7} {:>7} {:>10} {:>10} {:>4} {:>5} {:>4} {} {}\n", bench_op_name(c.op), c.way,
                     c.is_shared ? "shared" : "private", segment_text(c.segment_bytes), c.bytes, c.count,
                     dtype_name(c.t), redop_of(c.op), root_of(c.op), timing_columns(c, c.out_of_place),
                     timing_columns(c, c.in_place));
}

std::vector<Json> comm_case_json(const CommCase& c) {
  std::vector<Json> lines;
  for (const bool in_place : {false, true}) {
    const std::optional<CommTiming>& t = in_place ? c.in_place : c.out_of_place;
    if (!t) continue;
    const bool has_bytes = c.op != BenchOp::barrier;
    Json line{{"op", bench_op_name(c.op)},
              {"way", c.way},
              {"memory", c.is_shared ? "shared" : "private"},
              {"type", dtype_name(c.t)},
              {"redop", redop_of(c.op)},
              {"root", root_of(c.op)},
              {"bytes", c.bytes},
              {"count", c.count},
              {"ranks", c.ranks},
              {"nodes", c.nodes},
              {"in_place", in_place},
              {"us", t->us},
              {"us_min", t->us_min},
              {"us_max", t->us_max},
              {"samples", t->samples},
              {"blocks_us", t->blocks_us},
              {"algbw_gb_s", has_bytes ? Json(algbw_gb_s(c, *t)) : Json()},
              {"busbw_gb_s", has_bytes ? Json(busbw_gb_s(c, *t)) : Json()},
              {"wrong", t->wrong < 0 ? Json() : Json(t->wrong)}};
    if (c.segment_bytes > 0) line["segment_bytes"] = c.segment_bytes;
    if (c.sent) line["sent_bytes"] = c.sent->bytes, line["sent_messages"] = c.sent->messages;
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace rw
