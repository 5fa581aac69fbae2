// What memory an op reads and writes, as matrices of numbers: for whoever looks at values from outside, as the checking
// table does.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace rw {

struct Operand {
  const char* field;  // its name in the argument struct
  const void* data;   // null: none
  DType t;            // f32, f64, bf16 or f16; others hold no numbers that could be bad
  int64_t rows, cols;
  int64_t ld = 0;                // in elements; 0 = cols
  std::vector<int64_t> at = {};  // when not empty: rows at[0], at[1], ... in place of 0, 1, ...
  DType held_as = t;             // a value that overflows this type counts as infinite
  enum class Low : uint8_t { bad, legal } minus_infinity = Low::bad;
};

// Index arrays (ids, positions, slots, pages) are no numbers and are left out, so is a packed matrix, whose layout is
// its backend's own. What an op packs stands for the packed matrix. Accumulated outputs are inputs too.
struct Operands {
  std::vector<Operand> in, out;
};
Operands operands(const Gemm&);
Operands operands(const GemmPack&);
Operands operands(const QuantPack&);
Operands operands(const QuantUnpack&);
Operands operands(const QuantGemm&);
Operands operands(const BiasBwd&);
Operands operands(const NormFwd&);
Operands operands(const NormBwd&);
Operands operands(const Rope&);
Operands operands(const AttentionFwd&);
Operands operands(const AttentionBwd&);
Operands operands(const KvWrite&);
Operands operands(const PagedAttention&);
Operands operands(const GeluFwd&);
Operands operands(const GeluBwd&);
Operands operands(const SwigluFwd&);
Operands operands(const SwigluBwd&);
Operands operands(const EmbeddingFwd&);
Operands operands(const EmbeddingBwd&);
Operands operands(const CrossEntropyPart&);
Operands operands(const CrossEntropyFinish&);
Operands operands(const SampleScan&);
Operands operands(const AdamW&);
Operands operands(const SumSquares&);
Operands operands(const Cast&);
Operands operands(const Add&);
Operands operands(const Scale&);
Operands operands(const Zero&);
Operands operands(const Read&);
Operands operands(const Upload&);

// The first value of an operand that is NaN or infinite, by rows; row -1: there is none.
struct BadValue {
  int64_t row = -1, col = 0;
  const char* what = "";  // "NaN", "inf"
};
BadValue first_bad(const Operand&);

}  // namespace rw
