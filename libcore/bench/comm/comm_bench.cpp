#include "libcore/bench/comm/comm_bench.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/bench/comm/mpi_peer.h"
#include "libcore/bench/comm/pattern.h"
#include "libcore/comm/segment.h"

namespace rw {
namespace {

constexpr const char* kPeerWay = "mpi-blocking";
constexpr int64_t kBatchBytes = 128 << 10;  // small operations are timed several at a time

DType find_dtype(const std::string& name) {
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i64})
    if (name == dtype_name(t)) return t;
  fail(ErrorKind::usage, "--dtype: expected f32, bf16, f64 or i64, found \"{}\"", name);
}

// A collective, ready to run on this rank's buffers.
struct Trial {
  BenchOp op;
  std::string way;
  DType t;
  int64_t bytes;
  bool in_place;
  std::byte* data;  // (bytes)
  std::byte* part;  // (bytes / ranks) of all_gather out of place
};

class Bench {
 public:
  explicit Bench(const CommBenchJob& job) : job_(job), spec_(job.spec), comm_(job.comm) {
    const std::vector<int> nodes = comm_.nodes();
    n_nodes_ = static_cast<int>(std::set<int>(nodes.begin(), nodes.end()).size());
    comm_.set_timeout(spec_.comm_timeout);
    shared_ = comm_.allocate(spec_.max_bytes);
    private_ = allocate_private(spec_.max_bytes);
    part_ = allocate_private(spec_.max_bytes / comm_.size() + 64);
  }

  std::vector<std::string> ways_of(BenchOp op, DType t) const {
    std::vector<std::string> ways{"direct"};
    if (op == BenchOp::all_reduce && comm_.size() > 1 && job_.has_library)
      for (const std::string& name : way_names())
        if (name != "direct") ways.push_back(name);
    if (op == BenchOp::all_reduce) ways.insert(ways.begin(), "auto");
    if (job_.has_library && comm_.size() > 1 && mpi_peer_can(op, t)) ways.push_back(kPeerWay);
    if (spec_.way.empty()) return ways;
    std::erase_if(ways, [&](const std::string& w) {
      return std::find(spec_.way.begin(), spec_.way.end(), w) == spec_.way.end();
    });
    return ways;
  }

  void run_op(BenchOp op, DType t) {
    if (op == BenchOp::send_recv && comm_.size() == 1) return;
    for (int64_t bytes : bench_sizes({spec_.min_bytes, spec_.max_bytes, spec_.factor}, multiple(op, t)))
      for (const std::string& way : ways_of(op, t))
        for (const bool is_shared : {true, false}) {
          if (spec_.memory == (is_shared ? "private" : "shared")) continue;
          // The library knows no difference.
          if (way == kPeerWay && is_shared && spec_.memory == "both") continue;
          job_.report(run_case(op, t, bytes, way, is_shared));
        }
  }

  CommCase run_case(BenchOp op, DType t, int64_t bytes, const std::string& way, bool is_shared) {
    CommCase c{
        .op = op, .way = way, .is_shared = is_shared, .t = t, .bytes = bytes, .ranks = comm_.size(), .nodes = n_nodes_};
    const bool parts = op == BenchOp::reduce_scatter || op == BenchOp::all_gather;
    c.count = bytes / dtype_bytes(t) / (parts ? comm_.size() : 1);
    if (op == BenchOp::all_reduce) choose(way, bytes, c);
    auto* data = static_cast<std::byte*>(is_shared ? shared_.data : private_.data);
    Trial trial{op, way, t, bytes, true, data, static_cast<std::byte*>(part_.data)};
    if (op != BenchOp::send_recv) c.in_place = time(trial);
    if (op != BenchOp::send_recv && op != BenchOp::all_gather) return c;
    trial.in_place = false;
    c.out_of_place = time(trial);
    return c;
  }

  void set_segment(int64_t bytes) { segment_bytes_ = bytes; }
  int nodes() const { return n_nodes_; }

 private:
  int64_t multiple(BenchOp op, DType t) const {
    const bool parts = op == BenchOp::reduce_scatter || op == BenchOp::all_gather;
    return dtype_bytes(t) * (parts ? comm_.size() : 1);
  }

  void choose(const std::string& way, int64_t bytes, CommCase& c) {
    if (way == kPeerWay) return;
    job_.policy.forced.reset();
    AllReducePick pick = pick_all_reduce(job_.policy.table, comm_.size(), n_nodes_, bytes);
    if (way != "auto") {
      pick = {.way = *find_way(way), .segment_bytes = segment_bytes_};
      job_.policy.forced = pick;
    }
    if (pick.way.steps) c.segment_bytes = pick.segment_bytes;
  }

  void run(const Trial& trial) {
    const int64_t n = trial.bytes / dtype_bytes(trial.t);
    const int ranks = comm_.size(), me = comm_.rank();
    const int64_t part_bytes = trial.bytes / ranks;
    const void* part = trial.in_place ? trial.data + me * part_bytes : trial.part;
    if (trial.way == kPeerWay) return run_peer(trial);
    switch (trial.op) {
      case BenchOp::all_reduce: return comm_.all_reduce(trial.data, n, trial.t, ReduceOp::sum);
      case BenchOp::reduce_scatter: return comm_.reduce_scatter(trial.data, even_cuts(n, ranks), trial.t);
      case BenchOp::all_gather: return comm_.all_gather(part, trial.data, even_cuts(n, ranks), trial.t);
      case BenchOp::broadcast: return comm_.broadcast(trial.data, trial.bytes, 0);
      case BenchOp::send_recv:  // there and back between the ends: the last rank may be on another node
        if (me == 0)
          comm_.send(trial.data, trial.bytes, ranks - 1, 0), comm_.recv(trial.data, trial.bytes, ranks - 1, 0);
        if (me == ranks - 1) comm_.recv(trial.data, trial.bytes, 0, 0), comm_.send(trial.data, trial.bytes, 0, 0);
        return;
    }
  }

  void run_peer(const Trial& trial) {
    const int ranks = comm_.size(), me = comm_.rank();
    const bool parts = trial.op == BenchOp::reduce_scatter || trial.op == BenchOp::all_gather;
    if (trial.op == BenchOp::send_recv && me != 0 && me != ranks - 1) return;
    run_mpi_peer({.op = trial.op,
                  .data = trial.data,
                  .part = trial.op == BenchOp::all_gather && !trial.in_place ? trial.part : nullptr,
                  .n = trial.bytes / dtype_bytes(trial.t) / (parts ? ranks : 1),
                  .t = trial.t,
                  .peer = me == 0 ? ranks - 1 : 0,
                  .sends_first = me == 0});
  }

  CommTiming time(const Trial& trial) {
    CommTiming timing;
    timing.wrong = spec_.check ? count_wrong(trial) : -1;
    std::memset(trial.data, 0,
                static_cast<size_t>(trial.bytes));  // sums of zeros stay zero however often they are added
    const int64_t calls = spec_.rewrite ? 1 : std::clamp<int64_t>(kBatchBytes / trial.bytes, 1, 32);
    std::vector<double> us;
    for (int64_t i = -spec_.warmup_iters; i < spec_.iters; ++i) {
      if (spec_.rewrite) std::memset(trial.data, 0, static_cast<size_t>(trial.bytes));
      comm_.barrier();
      const double start = now_s();
      for (int64_t k = 0; k < calls; ++k) run(trial);
      const double mine = (now_s() - start) * 1e6 / static_cast<double>(calls);
      if (i >= 0) us.push_back(trial.op == BenchOp::send_recv ? mine / 2 : mine);
    }
    comm_.all_reduce(us.data(), static_cast<int64_t>(us.size()), DType::f64, ReduceOp::max);
    timing.us = median(us);
    timing.us_min = *std::min_element(us.begin(), us.end());
    timing.us_max = *std::max_element(us.begin(), us.end());
    timing.samples = static_cast<int64_t>(us.size());
    return timing;
  }

  // One run on test data; the wrong elements of all ranks.
  int64_t count_wrong(const Trial& trial) {
    const int64_t n = trial.bytes / dtype_bytes(trial.t);
    const int ranks = comm_.size(), me = comm_.rank();
    const std::vector<int64_t> cuts = even_cuts(n, ranks);
    const int64_t begin = cuts[static_cast<size_t>(me)], mine = cuts[static_cast<size_t>(me) + 1] - begin;
    std::byte* home = trial.data + begin * dtype_bytes(trial.t);
    const Pattern own = Pattern::of_rank(me, ranks, trial.t), sum = Pattern::of_sum(ranks, trial.t);
    std::memset(trial.data, 0xff, static_cast<size_t>(trial.bytes));
    const bool gathers = trial.op == BenchOp::all_gather;
    if (gathers) own.fill(trial.in_place ? home : trial.part, begin, mine);
    else if (trial.op != BenchOp::send_recv || me == 0) own.fill(trial.data, 0, n);
    run(trial);
    int64_t wrong = 0;
    switch (trial.op) {
      case BenchOp::all_reduce: wrong = sum.count_wrong(trial.data, 0, n); break;
      case BenchOp::reduce_scatter:
        wrong = sum.count_wrong(trial.way == kPeerWay ? trial.data : home, begin, mine);
        break;
      case BenchOp::all_gather:
        for (int r = 0; r < ranks; ++r) {
          const int64_t from = cuts[static_cast<size_t>(r)];
          wrong +=
              Pattern::of_rank(r, ranks, trial.t)
                  .count_wrong(trial.data + from * dtype_bytes(trial.t), from, cuts[static_cast<size_t>(r) + 1] - from);
        }
        break;
      case BenchOp::broadcast: wrong = Pattern::of_rank(0, ranks, trial.t).count_wrong(trial.data, 0, n); break;
      case BenchOp::send_recv:
        if (me == 0 || me == ranks - 1) wrong = Pattern::of_rank(0, ranks, trial.t).count_wrong(trial.data, 0, n);
        break;
    }
    return comm_.all_reduce_value(wrong, ReduceOp::sum);
  }

  const CommBenchJob& job_;
  const CommBenchSpec& spec_;
  Comm& comm_;
  int n_nodes_ = 1;
  int64_t segment_bytes_ = AllReducePick{}.segment_bytes;
  SharedBuffer shared_, private_, part_;
};

}  // namespace

FieldList fields(CommBenchSpec& s) {
  std::vector<std::string> ops, ways{"auto"};
  for (BenchOp op : kBenchOps) ops.push_back(bench_op_name(op));
  for (const std::string& name : way_names()) ways.push_back(name);
  const auto listed = [](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
    return text;
  };
  return {
      {.name = "min-bytes", .value = &s.min_bytes, .help = "smallest size (-b)", .min = 1, .is_size = true},
      {.name = "max-bytes", .value = &s.max_bytes, .help = "largest size (-e)", .min = 1, .is_size = true},
      {.name = "factor", .value = &s.factor, .help = "from one size to the next (-f)", .min = 1.01},
      {.name = "op", .value = &s.op, .help = "operation (" + listed(ops) + "); may repeat; all when none is given"},
      {.name = "way",
       .value = &s.way,
       .help = "of all_reduce (" + listed(ways) + "), and " + kPeerWay +
               ", the MPI library's own call, of every operation; may repeat; all when none is given"},
      {.name = "dtype", .value = &s.dtype, .help = "element type (f32, bf16, f64, i64); may repeat (-d)"},
      {.name = "memory",
       .value = &s.memory,
       .help = "buffers of the communicator, private ones, or both",
       .choices = {"both", "shared", "private"}},
      {.name = "iters", .value = &s.iters, .help = "samples, a barrier before each (-n)", .min = 5, .max = 1e6},
      {.name = "warmup-iters",
       .value = &s.warmup_iters,
       .help = "samples before them that do not count (-w)",
       .min = 0,
       .max = 1e6},
      {.name = "check", .value = &s.check, .help = "compare results with the exact ones"},
      {.name = "rewrite",
       .value = &s.rewrite,
       .help = "every rank rewrites its buffer before each sample, as gradients do"},
      {.name = "comm-table", .value = &s.comm_table, .help = "table that auto picks from"},
      {.name = "tune",
       .value = &s.tune,
       .help = "measure the ways of all_reduce and write the table to this file, keeping its rows for other jobs"},
      {.name = "ranks-per-node",
       .value = &s.ranks_per_node,
       .help = "consecutive ranks that count as a node; 0: those that share memory",
       .min = 0,
       .max = 1e6},
      {.name = "comm-timeout", .value = &s.comm_timeout, .help = "seconds to wait for a rank", .min = 0.001},
  };
}

namespace {

std::string other_ways() {
  std::string text;
  for (const std::string& name : way_names()) text += ", " + name;
  return text;
}

}  // namespace

void check_comm_bench(const CommBenchSpec& spec) {
  for (const std::string& name : spec.op)
    if (!find_bench_op(name))
      fail(ErrorKind::usage,
           "--op: expected all_reduce, reduce_scatter, all_gather, broadcast or send_recv, found \"{}\"", name);
  for (const std::string& way : spec.way)
    if (way != "auto" && way != kPeerWay && !find_way(way))
      fail(ErrorKind::usage, "--way: expected auto, {}{}, found \"{}\"", kPeerWay, other_ways(), way);
  if (spec.min_bytes > spec.max_bytes)
    fail(ErrorKind::usage, "-b {} is above -e {}: expected sizes from the smaller to the larger", spec.min_bytes,
         spec.max_bytes);
  for (const std::string& name : spec.dtype) find_dtype(name);
}

void run_comm_bench(const CommBenchJob& job) {
  std::vector<BenchOp> ops(std::begin(kBenchOps), std::end(kBenchOps));
  if (!job.spec.op.empty()) ops.clear();
  for (const std::string& name : job.spec.op) ops.push_back(find_bench_op(name).value());
  Bench bench(job);
  for (BenchOp op : ops)
    for (const std::string& type : job.spec.dtype) bench.run_op(op, find_dtype(type));
}

std::vector<CommTableRow> tune_all_reduce(const CommBenchJob& job) {
  constexpr double kWorthChanging = 0.97;
  constexpr int64_t kSegments[] = {64 << 10, 256 << 10, 1 << 20};
  Bench bench(job);
  std::vector<CommTableRow> rows;
  for (int64_t bytes : bench_sizes({job.spec.min_bytes, job.spec.max_bytes, job.spec.factor}, 4)) {
    CommTableRow best{.ranks = job.comm.size(),
                      .nodes = bench.nodes(),
                      .max_bytes = bytes,
                      .us = std::numeric_limits<double>::infinity()};
    double same_us = best.us;  // of the last size's pick
    for (const std::string& name : bench.ways_of(BenchOp::all_reduce, DType::f32)) {
      const auto way = find_way(name);
      if (!way) continue;  // auto, mpi-blocking
      for (int64_t segment : kSegments) {
        // Where everything is one segment there is one to try.
        if (segment != AllReducePick{}.segment_bytes && (!way->steps || bytes <= kSegments[0])) continue;
        bench.set_segment(segment);
        const CommCase c = bench.run_case(BenchOp::all_reduce, DType::f32, bytes, name, true);
        job.report(c);
        const AllReducePick pick{.way = *way, .segment_bytes = segment};
        if (c.in_place->us < best.us) best.us = c.in_place->us, best.pick = pick;
        if (!rows.empty() && rows.back().pick == pick) same_us = c.in_place->us;
      }
    }
    if (best.us > same_us * kWorthChanging) best.us = same_us, best.pick = rows.back().pick;
    // One row for a stretch of sizes.
    if (!rows.empty() && rows.back().pick == best.pick) rows.back() = best;
    else rows.push_back(best);
  }
  return rows;
}

CommTable replace_rows(const CommTable& table, const std::vector<CommTableRow>& rows) {
  CommTable result = table;
  std::erase_if(result.all_reduce, [&](const CommTableRow& old) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const CommTableRow& r) { return r.ranks == old.ranks && r.nodes == old.nodes; });
  });
  result.all_reduce.insert(result.all_reduce.end(), rows.begin(), rows.end());
  return result;
}

}  // namespace rw
