#include "libcore/api/timings.h"

#include <algorithm>

#include "libcore/base/error.h"

namespace rw {
namespace {

double between(double from, double to) { return from > 0 && to > from ? to - from : 0; }

}  // namespace

Timings timings_of(const SequenceTimes& t) {
  return {.queue_s = between(t.queued, t.scheduled),
          .prefill_s = between(t.scheduled, t.first_token),
          .decode_s = between(t.first_token, t.last_token),
          .preempted_s = t.preempted_s,
          .ttft_s = between(t.received, t.first_token),
          .total_s = between(t.received, std::max(t.last_token, t.first_token)),
          .preemptions = t.n_preemptions};
}

void take_longest(Timings& all, const Timings& one) {
  for (double Timings::*part : {&Timings::queue_s, &Timings::prefill_s, &Timings::decode_s, &Timings::preempted_s,
                                &Timings::ttft_s, &Timings::total_s})
    all.*part = std::max(all.*part, one.*part);
  all.preemptions += one.preemptions;
}

std::string timings_json(const Timings& t, int64_t cached_tokens) {
  return fmt::format(
      "{{\"queue_ms\":{:.3f},\"prefill_ms\":{:.3f},\"decode_ms\":{:.3f},\"preempted_ms\":{:.3f},\"ttft_ms\":{:.3f},"
      "\"total_ms\":{:.3f},\"preemptions\":{},\"cached_tokens\":{}}}",
      1e3 * t.queue_s, 1e3 * t.prefill_s, 1e3 * t.decode_s, 1e3 * t.preempted_s, 1e3 * t.ttft_s, 1e3 * t.total_s,
      t.preemptions, cached_tokens);
}

}  // namespace rw
