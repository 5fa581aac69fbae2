#include "libcore/serve/memory_budget.h"

#include <fmt/core.h>

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

std::string bytes(int64_t n) { return format_bytes(static_cast<double>(n)); }

}  // namespace

std::string MemoryBudget::text() const {
  return fmt::format(
      "memory: weights {}, cache {} ({} pages), run time {}; {:.1f} sequences of full length fit at once",
      bytes(weights), bytes(kv), n_pages, bytes(runtime), full_sequences);
}

MemoryBudget memory_budget(const MemoryAsked& a) {
  const int64_t total =
      a.memory > 0 ? a.memory : static_cast<int64_t>(a.utilization * static_cast<double>(a.available));
  const int64_t left = std::max<int64_t>(total - a.weights - a.runtime, 0);
  int64_t n_pages = std::min<int64_t>(left / a.page_bytes, INT32_MAX);
  if (a.memory == 0 && a.most_pages > 0) n_pages = std::min(n_pages, a.most_pages);
  const int64_t needed = (a.max_len + a.page_tokens - 1) / a.page_tokens;
  if (n_pages < needed) {
    // What the run time takes is measured and differs a little from start to start.
    const int64_t enough = a.weights + a.runtime + a.runtime / 8 + needed * a.page_bytes,
                  enough_mib = (enough + (1 << 20) - 1) >> 20;
    const std::string shorter =
        n_pages > 0 ? fmt::format("lower --max-model-len (to {} tokens), or ", n_pages * a.page_tokens) : "";
    fail(ErrorKind::usage,
         "{} ({}): weights take {} and run time {}, which leaves {} for the cache; one sequence of {} tokens needs {}. "
         "{}; or {}use --quantize or --kv-dtype int8",
         bytes(total),
         a.memory > 0 ? "--memory" : fmt::format("--memory-utilization {} of {}", a.utilization, bytes(a.available)),
         bytes(a.weights), bytes(a.runtime), bytes(left), a.max_len, bytes(needed * a.page_bytes),
         a.memory > 0 || enough <= a.available
             ? fmt::format("Expected at least --memory {}MiB", enough_mib)
             : fmt::format("Expected {}MiB, more than there is: give it more ranks (--tp) or more memory", enough_mib),
         shorter);
  }
  return {.weights = a.weights,
          .runtime = a.runtime,
          .kv = n_pages * a.page_bytes,
          .n_pages = n_pages,
          .full_sequences = static_cast<double>(n_pages) / static_cast<double>(needed)};
}

}  // namespace rw
