// What is counted or checked of the ops that run on a stream, and two tables that do it: the meta table, which computes
// nothing, and the checking table, which computes and looks for the first value that is not finite.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"

namespace rw {

struct OpCount {
  int64_t calls = 0;
  Cost cost;
};

// A call's shape, as far as its speed depends on it. Products: (m, n, k). Attention: m rows, n query heads, k head
// size. Others: (m rows, n columns, 0); what goes over a flat run of m elements (zero: bytes) is one column of them.
struct OpShape {
  int64_t m = 0, n = 0, k = 0;
  bool operator==(const OpShape&) const = default;
};
struct OpCall {
  std::string op;     // the table's name: "gemm"
  std::string scope;  // of the log when it was called
  OpShape shape;
  Cost cost = {};  // of one call
  int64_t calls = 1;
};

struct OpLog {
  const Ops* backend = nullptr;  // whose sizes (workspace, packed) and, when checking, whose functions are used
  std::string scope;             // set by the model: "block 3", "head"; for messages
  // By the op's name in the table ("gemm", "norm_fwd"). A product with GELU counts as the ops it stands for ("gemm" and
  // "gelu_fwd" or "gelu_bwd"): which ones a backend has in one is known where it runs alone.
  std::map<std::string, OpCount, std::less<>> ops;
  std::vector<OpCall>* calls = nullptr;  // when set, every call is kept there too (meta_ops)
  bool look = true;                      // checked_ops looks through results; without, it only counts
  std::string first_bad;  // "attention_fwd in block 3: element (row 17, column 2) of o is NaN", by checked_ops

  void count(std::string_view op, const Cost& cost);
};

// Counts every call in stream.log (required) and touches no memory but what prices are read from, which is the host's
// (cu_seqlens, q_start, context_len): all other pointers may be anything. Sizes come from log->backend. Read fills with
// ones.
const Ops& meta_ops();

// Runs log->backend's functions, counts them, and writes to log->first_bad, once, which op's output first held NaN or
// infinity, adding "(its inputs were already not finite)" where that was so. The -infinity of a masked logit and of a
// maximum over none is no fault. A packed matrix is looked at when it is packed. Slow: for tracing.
const Ops& checked_ops();

}  // namespace rw
