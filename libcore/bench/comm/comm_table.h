// The arithmetic and the rows of `dbench comm`: bandwidths as nccl-tests defines them, so that figures compare.
//
// S is the size column: the buffer of all_reduce, broadcast and a message, the whole array (all ranks' parts) of
// reduce_scatter and all_gather. algbw = S / time. busbw = algbw * factor, the factor being what the busiest wire of an
// ideal ring carries per byte of S, so that busbw can be held against the hardware whatever the number of ranks p:
// all_reduce 2(p-1)/p, reduce_scatter and all_gather (p-1)/p, broadcast and send_recv 1. A barrier carries nothing: S
// is 0, and it has a time alone. GB/s are 1e9 bytes a second.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "libcore/base/json.h"

namespace rw {

enum class BenchOp : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send_recv, barrier };
constexpr BenchOp kBenchOps[] = {BenchOp::all_reduce, BenchOp::reduce_scatter, BenchOp::all_gather,
                                 BenchOp::broadcast,  BenchOp::send_recv,      BenchOp::barrier};
const char* bench_op_name(BenchOp op);
std::optional<BenchOp> find_bench_op(const std::string& name);

double busbw_factor(BenchOp op, int ranks);

// min, min * factor, ... up to max, each rounded down to whole elements a rank (`multiple` bytes); none twice, none 0.
struct SizeRange {
  int64_t min = 0, max = 0;
  double factor = 2;
};
std::vector<int64_t> bench_sizes(const SizeRange& range, int64_t multiple);

struct CommTiming {
  double us = 0, us_min = 0, us_max = 0;  // of the samples; a sample's time is the slowest rank's
  int64_t samples = 0;
  std::vector<double> blocks_us;  // the median of each interleaved block of samples, in the order taken
  int64_t wrong = 0;              // elements that are not the exact result, on all ranks; -1: not checked
};
// What the rank that sends most sends for one call, counted from its step list; nothing is known of the other ways
// (shared memory, the library's).
struct SentCount {
  int64_t bytes = 0, messages = 0;
};
struct CommCase {
  BenchOp op = BenchOp::all_reduce;
  std::string way;         // "auto", "direct", "ring", ...; "mpi-blocking": the library's blocking call
  bool is_shared = false;  // memory of Comm::allocate
  DType t = DType::f32;
  int64_t bytes = 0, count = 0;  // S; elements, per rank where the ranks have parts
  int ranks = 1, nodes = 1;
  int64_t segment_bytes = 0;  // of step lists; 0 otherwise
  std::optional<SentCount> sent;
  std::optional<CommTiming> out_of_place, in_place;
};
double algbw_gb_s(const CommCase& c, const CommTiming& t);
double busbw_gb_s(const CommCase& c, const CommTiming& t);

std::string counted(int64_t n, const char* what);  // "1 node", "2 nodes"
// The table: three lines of head, then one line a case.
std::string comm_table_head(int ranks, int nodes, const std::string& comm);
std::string comm_table_line(const CommCase& c);
// One object a timing: op, way, memory, type, redop, root, bytes, count, ranks, nodes, in_place, us, us_min, us_max,
// samples, blocks_us, algbw_gb_s, busbw_gb_s (null of a barrier), wrong (null: not checked); of step lists
// segment_bytes, sent_bytes, sent_messages.
std::vector<Json> comm_case_json(const CommCase& c);

}  // namespace rw
