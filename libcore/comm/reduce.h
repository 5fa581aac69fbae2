// The arithmetic of the reductions: elementwise over ranks, from rank 0 upwards, so that the result does not depend on
// timing or on which rank computes it.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/dtype.h"
#include "libcore/comm/comm.h"

namespace rw {

struct RankOrderReduce {
  std::span<const void* const> sources;  // one a rank, (n) each, in rank order
  std::span<void* const> targets;        // (n) each; each is one of the sources, or apart from all of them
  int64_t n = 0;
  DType t = DType::f32;
  ReduceOp op = ReduceOp::sum;
};

// f32, f64, i64, and sums of bf16 and f16.
bool reducible(DType t, ReduceOp op);
void check_reducible(const char* what, DType t, ReduceOp op);

// target[i] = (((source0[i] op source1[i]) op source2[i]) ...), for every target. Sums of i64 wrap; max and min return
// NaN when a source holds one. Sums of bf16 and f16 are added in f32 and rounded once, to nearest even.
void reduce_in_rank_order(const RankOrderReduce& r);

bool is_16bit(DType t);                                          // bf16, f16
void widen(float* wide, const void* data, int64_t n, DType t);   // (n) <- (n) of bf16 or f16
void narrow(void* data, const float* wide, int64_t n, DType t);  // rounds to nearest even

// Of n elements, what `rank` reduces: equal parts, cut at cache lines so that two ranks never write to one line.
struct Slice {
  int64_t begin, n;
};
Slice slice_of(int64_t n, int64_t element_bytes, int rank, int ranks);

}  // namespace rw
