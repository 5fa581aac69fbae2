// Several runs of one load as one result.
#pragma once
#include <string>
#include <vector>

#include "libcore/bench/load/load_report.h"

namespace rw {

// Requests, tokens, how requests ended, the duration and the number of values are sums over the repeats; rates, shares,
// latencies and each percentile are the median of the repeats' own; the client's health and the most requests at a time
// are the worst of any. Spans and the curve over time are the last repeat's. Each repeat counts once, so that one which
// was disturbed moves the result little; a pooled 99th percentile would be that repeat's alone. `results`: at least
// one, whose outcomes are joined as far as they were kept.
LoadResult combine_repeats(const std::vector<LoadResult>& results);
// A line a repeat.
std::string load_repeats_text(const std::vector<LoadResult>& results);

}  // namespace rw
