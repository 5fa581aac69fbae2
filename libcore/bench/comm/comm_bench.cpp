#include "libcore/bench/comm/comm_bench.h"

#include <algorithm>
#include <new>
#include <optional>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/median.h"
#include "libcore/bench/comm/comm_trial.h"
#include "libcore/bench/comm/link_report.h"
#include "libcore/bench/comm/mpi_peer.h"
#include "libcore/comm/segment.h"

namespace rw {
namespace {

constexpr int64_t kBatchBytes = 128 << 10;  // small operations are timed several at a time
constexpr int64_t kRewarm = 2;              // samples that do not count, of a block after others' blocks

DType find_dtype(const std::string& name) {
  for (DType t : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64})
    if (name == dtype_name(t)) return t;
  fail(ErrorKind::usage, "--dtype: expected f32, bf16, f16, f64 or i64, found \"{}\"", name);
}

// What is timed of a case.
struct Timed {
  CommTrial trial;
  std::optional<CommTiming>* result;
  TrialBlock block;
  std::vector<double> us;  // this rank's samples, block after block
};

// The median of each block of samples.
std::vector<double> block_medians(const std::vector<double>& us, const std::vector<int64_t>& cuts) {
  std::vector<double> medians;
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    if (cuts[i] < cuts[i + 1]) medians.push_back(median({us.begin() + cuts[i], us.begin() + cuts[i + 1]}));
  return medians;
}

class Bench {
 public:
  explicit Bench(const CommBenchJob& job) : job_(job), spec_(job.spec), comm_(job.comm) {
    const std::vector<int> nodes = comm_.nodes();
    nodes_ = map_nodes(nodes);
    comm_.set_timeout(spec_.comm_timeout);
    if (job_.device != nullptr && comm_.size() > 1)  // those of send_recv
      comm_.prepare_messages(std::vector<MessageEdge>{{0, comm_.size() - 1}, {comm_.size() - 1, 0}});
    try {
      const int64_t part = spec_.max_bytes / comm_.size() + 64;
      shared_ = comm_.allocate(spec_.max_bytes + 3);
      if (job_.device == nullptr) private_ = allocate_private(spec_.max_bytes);
      part_ = job_.device == nullptr ? allocate_private(part) : comm_.allocate(part);
    } catch (const std::bad_alloc&) {
      fail(ErrorKind::usage, "-e {}: a rank needs two buffers of that size, more memory than there is; lower it",
           spec_.max_bytes);
    }
  }

  std::vector<std::string> ways_of(BenchOp op, DType t) const {
    std::vector<std::string> ways{"direct"};
    if (job_.device != nullptr) return {op == BenchOp::barrier ? "direct" : kDeviceWay};
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
    std::vector<int64_t> sizes = {0};
    if (op != BenchOp::barrier)
      sizes = bench_sizes({spec_.min_bytes, spec_.max_bytes, spec_.factor},
                          dtype_bytes(t) * (has_parts(op) ? comm_.size() : 1));
    for (int64_t bytes : sizes) {
      std::vector<CommCase> cases;
      for (const std::string& way : ways_of(op, t))
        for (const bool is_shared : {true, false})
          if (takes(op, way, is_shared)) cases.push_back(make_case({op, t, bytes}, way, is_shared));
      run_cases(cases);
      for (const CommCase& c : cases) job_.report(c);
    }
  }

  // All ways of an all_reduce that a table may name, with these segments: cases of one size.
  struct Segmented {
    std::string way;
    int64_t segment_bytes;
  };
  std::vector<CommCase> run_all_reduce(int64_t bytes, const std::vector<Segmented>& ways) {
    std::vector<CommCase> cases;
    for (const Segmented& w : ways)
      cases.push_back(make_case({BenchOp::all_reduce, DType::f32, bytes, w.segment_bytes}, w.way, true));
    run_cases(cases);
    for (const CommCase& c : cases) job_.report(c);
    return cases;
  }
  int nodes() const { return static_cast<int>(nodes_.leaders.size()); }

 private:
  struct What {
    BenchOp op;
    DType t;
    int64_t bytes;
    int64_t segment_bytes = AllReducePick{}.segment_bytes;  // of ways other than auto
  };

  bool takes(BenchOp op, const std::string& way, bool is_shared) const {
    if (op == BenchOp::barrier || job_.device != nullptr) return is_shared;
    if (spec_.memory == (is_shared ? "private" : "shared")) return false;
    // The library knows no difference.
    return way != kPeerWay || !is_shared || spec_.memory != "both";
  }

  CommCase make_case(const What& what, const std::string& way, bool is_shared) const {
    CommCase c{.op = what.op,
               .way = way,
               .is_shared = is_shared,
               .t = what.t,
               .bytes = what.bytes,
               .ranks = comm_.size(),
               .nodes = nodes()};
    c.count = what.bytes / dtype_bytes(what.t) / (has_parts(what.op) ? comm_.size() : 1);
    if (what.op != BenchOp::all_reduce || way == kPeerWay || way == kDeviceWay) return c;
    AllReducePick pick{.way = {}, .segment_bytes = what.segment_bytes};
    if (way == "auto") pick = pick_all_reduce(job_.policy.table, comm_.size(), nodes(), c.bytes);
    else pick.way = *find_way(way);
    if (!pick.way.steps) return c;
    c.segment_bytes = pick.segment_bytes;
    if (job_.has_library && comm_.size() > 1) c.sent = count_sent(c, *pick.way.steps);
    return c;
  }

  // Of the rank that sends most. Lists within one node by two levels are none: the node's shared memory does it all.
  std::optional<SentCount> count_sent(const CommCase& c, CollectiveAlgorithm algorithm) const {
    if (algorithm == CollectiveAlgorithm::hierarchical && nodes() == 1) return std::nullopt;
    const int64_t size = dtype_bytes(c.t);
    const AllReduceShape shape{.algorithm = algorithm,
                               .ranks = comm_.size(),
                               .n = c.count,
                               .segment = std::max<int64_t>(1, c.segment_bytes / size),
                               .nodes = &nodes_};
    SentCount mine;
    for (const CollectiveStep& step : all_reduce_steps(shape, comm_.rank()))
      if (step.to >= 0) mine.bytes += step.send.n * size, ++mine.messages;
    return mine;  // becomes the largest of all ranks with the timings
  }

  // Before the trials of a case: what its all_reduce takes.
  void choose(const CommCase& c) {
    if (c.op != BenchOp::all_reduce || c.way == kPeerWay || c.way == kDeviceWay) return;
    job_.policy.forced.reset();
    if (c.way == "auto") return;
    AllReducePick pick{.way = *find_way(c.way)};
    if (c.segment_bytes > 0) pick.segment_bytes = c.segment_bytes;
    job_.policy.forced = pick;
  }

  std::vector<Timed> trials_of(CommCase& c) const {
    auto* data = static_cast<std::byte*>(c.is_shared ? shared_.data : private_.data);
    const int64_t most = std::clamp<int64_t>(kBatchBytes / std::max<int64_t>(1, c.bytes), 1, 32);
    Timed timed{.trial = {c.op, c.way, c.t, c.bytes, true, data, static_cast<std::byte*>(part_.data), job_.device},
                .result = &c.in_place,
                .block = {.calls = spec_.rewrite     ? 1
                                   : spec_.calls > 0 ? spec_.calls
                                                     : most,
                          .rewrite = spec_.rewrite},
                .us = {}};
    std::vector<Timed> trials;
    if (c.op != BenchOp::send_recv) trials.push_back(timed);
    timed.trial.in_place = false, timed.result = &c.out_of_place;
    if (c.op == BenchOp::send_recv || c.op == BenchOp::all_gather) trials.push_back(timed);
    return trials;
  }

  void run_cases(std::vector<CommCase>& cases) {
    std::vector<std::vector<Timed>> timed;
    for (CommCase& c : cases) {
      timed.push_back(trials_of(c));
      choose(c);
      for (Timed& t : timed.back()) {
        *t.result = CommTiming{.blocks_us = {}};
        (*t.result)->wrong = spec_.check ? count_wrong(comm_, t.trial) : -1;
      }
      if (!c.sent) continue;
      c.sent->bytes = comm_.all_reduce_value(c.sent->bytes, ReduceOp::max);
      c.sent->messages = comm_.all_reduce_value(c.sent->messages, ReduceOp::max);
    }
    const std::vector<int64_t> cuts = even_cuts(spec_.iters, static_cast<int>(spec_.repeats));
    for (size_t block = 0; block + 1 < cuts.size(); ++block) {
      if (cuts[block] == cuts[block + 1]) continue;
      for (size_t i = 0; i < cases.size(); ++i) {
        choose(cases[i]);
        for (Timed& t : timed[i]) {
          t.block.samples = cuts[block + 1] - cuts[block];
          t.block.warmup = t.us.empty() ? spec_.warmup_iters : std::min(spec_.warmup_iters, kRewarm);
          const std::vector<double> us = time_block(comm_, t.trial, t.block);
          t.us.insert(t.us.end(), us.begin(), us.end());
        }
      }
    }
    for (auto& of_case : timed)
      for (Timed& t : of_case) finish(t, cuts);
  }

  void finish(Timed& t, const std::vector<int64_t>& cuts) {
    comm_.all_reduce(t.us.data(), static_cast<int64_t>(t.us.size()), DType::f64, ReduceOp::max);
    CommTiming& timing = **t.result;
    timing.us = median(t.us);
    timing.us_min = *std::min_element(t.us.begin(), t.us.end());
    timing.us_max = *std::max_element(t.us.begin(), t.us.end());
    timing.samples = static_cast<int64_t>(t.us.size());
    timing.blocks_us = block_medians(t.us, cuts);
  }

  const CommBenchJob& job_;
  const CommBenchSpec& spec_;
  Comm& comm_;
  NodeMap nodes_;
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
      {.name = "dtype", .value = &s.dtype, .help = "element type (f32, bf16, f16, f64, i64); may repeat (-d)"},
      {.name = "device",
       .value = &s.device,
       .help =
           "cpu, cuda or cuda:N: the buffers are a GPU's, each operation takes the one way that its communicator has"},
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
      {.name = "repeats",
       .value = &s.repeats,
       .help = "blocks that the samples are taken in, those of all ways of a size in turn",
       .min = 1,
       .max = 1000},
      {.name = "calls",
       .value = &s.calls,
       .help = "of the operation in a sample; 0: as many as move 128 KiB, at most 32",
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
      {.name = "pairs",
       .value = &s.pairs,
       .help = "latency and bandwidth between every two ranks: alone one pair after another, or rounds of pairs that "
               "share no rank, at the same time",
       .choices = {"none", "alone", "rounds"}},
      {.name = "pair-bytes",
       .value = &s.pair_bytes,
       .help = "of the messages that give a pair's bandwidth",
       .min = 1,
       .is_size = true},
      {.name = "cluster-fragment",
       .value = &s.cluster_fragment,
       .help = "write the links as tables of a cluster file; with --cluster the whole file"},
      {.name = "cluster",
       .value = &s.cluster,
       .help = "a cluster file or the name of one, whose links --cluster-fragment replaces"},
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
  const char* const of_host = !spec.way.empty()          ? "--way"
                              : !spec.tune.empty()       ? "--tune"
                              : spec.pairs != "none"     ? "--pairs"
                              : spec.memory == "private" ? "--memory private"
                                                         : nullptr;
  if (spec.device != "cpu" && of_host != nullptr)
    fail(ErrorKind::usage, "--device {}: {} is about the host's memory; leave it out, or use --device cpu", spec.device,
         of_host);
  for (const std::string& name : spec.op)
    if (!find_bench_op(name))
      fail(ErrorKind::usage,
           "--op: expected all_reduce, reduce_scatter, all_gather, broadcast, send_recv or barrier, found \"{}\"",
           name);
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
    for (const std::string& type : job.spec.dtype) {
      bench.run_op(op, find_dtype(type));
      if (op == BenchOp::barrier) break;  // it has no elements
    }
  if (job.device == nullptr && std::find(ops.begin(), ops.end(), BenchOp::send_recv) != ops.end()) run_link_pairs(job);
}

size_t worth_taking(const std::vector<CommTiming>& ways, size_t now) {
  constexpr double kWorthChanging = 0.97, kMostBlocks = 0.75;
  const CommTiming& held = ways.at(now);
  size_t best = now;
  for (size_t i = 0; i < ways.size(); ++i) {
    const size_t blocks = std::min(ways[i].blocks_us.size(), held.blocks_us.size());
    size_t faster = 0;
    for (size_t b = 0; b < blocks; ++b) faster += ways[i].blocks_us[b] < held.blocks_us[b];
    if (ways[i].us < held.us * kWorthChanging &&
        static_cast<double>(faster) >= kMostBlocks * static_cast<double>(blocks) && ways[i].us < ways[best].us)
      best = i;
  }
  return best;
}

std::vector<CommTableRow> tune_all_reduce(const CommBenchJob& job) {
  constexpr int64_t kSegments[] = {64 << 10, 256 << 10, 1 << 20};
  Bench bench(job);
  std::vector<CommTableRow> rows;
  for (int64_t bytes : bench_sizes({job.spec.min_bytes, job.spec.max_bytes, job.spec.factor}, 4)) {
    std::vector<Bench::Segmented> ways;
    for (const std::string& name : bench.ways_of(BenchOp::all_reduce, DType::f32)) {
      const auto way = find_way(name);
      if (!way) continue;  // auto, mpi-blocking
      // Within one node the lists of two levels are the direct way.
      if (way->steps == CollectiveAlgorithm::hierarchical && bench.nodes() == 1 && job.spec.way.empty()) continue;
      for (const int64_t segment : kSegments)
        // A way without segments, or data below the smallest, has one to try.
        if (segment == AllReducePick{}.segment_bytes || (way->steps && bytes > kSegments[0]))
          ways.push_back({name, segment});
    }
    std::vector<AllReducePick> picks;
    std::vector<CommTiming> timings;
    for (const CommCase& c : bench.run_all_reduce(bytes, ways)) timings.push_back(*c.in_place);
    for (const Bench::Segmented& w : ways) picks.push_back({.way = *find_way(w.way), .segment_bytes = w.segment_bytes});
    size_t now = 0;  // the smaller sizes' way, else the first
    for (size_t i = 0; i < picks.size(); ++i)
      if (!rows.empty() && rows.back().pick == picks[i]) now = i;
    const size_t best = worth_taking(timings, now);
    const CommTableRow row{.ranks = job.comm.size(),
                           .nodes = bench.nodes(),
                           .max_bytes = bytes,
                           .pick = picks[best],
                           .us = timings[best].us};
    // One row for a stretch of sizes.
    if (!rows.empty() && rows.back().pick == row.pick) rows.back() = row;
    else rows.push_back(row);
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
