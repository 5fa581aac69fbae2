// Which one change of a layout would make it fit.
#pragma once
#include <vector>

#include "libcore/plan/search/memory_report.h"

namespace rw {

// Of sequence parallelism, micro-batch, ZeRO stage, recomputation, tensor and pipeline parallelism (at the cost of data
// parallelism as far as that goes, then of more ranks), in this order: the least of each with which no stage's first
// rank takes more than `limit` bytes by dry run. Empty: none does.
std::vector<MemoryRemedy> memory_remedies(const DryRunSettings& settings, double limit);

}  // namespace rw
