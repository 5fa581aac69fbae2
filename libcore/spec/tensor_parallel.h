// How tensor parallelism cuts each parameter (Shoeybi et al. 2019): rows of what fans out (q, k, v, gate, up, their
// biases), columns of what fans in (attention output, down), vocabulary rows of embedding and head; norms, the biases
// that are added after the sum, and learned positions are whole on every rank.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/spec/param_table.h"

namespace rw {

enum class TpSplit : uint8_t { whole, rows, columns, kv_rows };
TpSplit tp_split(ParamRole role);

struct TpPlace {
  int64_t size = 1, rank = 0;
};

// Ranks that hold the same key/value heads because there are fewer of them than ranks; 1 when there are enough.
int64_t kv_share(const ModelSpec& spec, int64_t tp);
// Why a model cannot be split over tp ranks; "" when it can.
std::string tp_fault(const ModelSpec& spec, int64_t tp);
// The part of a parameter that a rank holds. heads and ffn are divisible by the ranks, kv_heads divides them or is
// divided by them; rows of the vocabulary are dealt out evenly, as near as can be.
Box tp_box(const Param& p, const ModelSpec& spec, const TpPlace& place);
// Of several ranks that hold the same box, the lowest owns it: it alone counts and writes it.
bool tp_owner(const Param& p, const ModelSpec& spec, const TpPlace& place);

// Vocabulary rows [begin, end) of a rank.
struct VocabRange {
  int64_t begin, end;
};
VocabRange vocab_range(const ModelSpec& spec, const TpPlace& place);

}  // namespace rw
