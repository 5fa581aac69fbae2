#include "libcore/bench/load/rate_search.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"

namespace rw {
namespace {

class Searcher {
 public:
  Searcher(const RateSearch& search, const std::function<RateProbe(double)>& measure)
      : search_(search), measure_(measure) {}

  RateAnswer run() {
    bracket();
    if (answer_.rate > 0 && answer_.above > 0) bisect();
    if (answer_.rate > 0) confirm();
    explain();
    return std::move(answer_);
  }

 private:
  bool may_probe() const { return static_cast<int64_t>(answer_.probes.size()) < search_.most_probes; }

  bool keeps(double rate) {
    RateProbe probe = measure_(rate);
    probe.rate = rate;
    answer_.probes.push_back(probe);
    if (probe.verdict != ProbeVerdict::kept) {
      answer_.above = rate;
      answer_.limited_by_client = probe.verdict == ProbeVerdict::is_void;
    }
    return probe.verdict == ProbeVerdict::kept;
  }

  void bracket() {
    double rate = std::clamp(search_.start, search_.lowest, search_.highest);
    const bool upwards = keeps(rate);
    if (upwards) answer_.rate = rate;
    while (may_probe()) {
      const double next = std::clamp(upwards ? 2 * rate : rate / 2, search_.lowest, search_.highest);
      if (next == rate) return;
      rate = next;
      const bool kept = keeps(rate);
      if (kept) answer_.rate = rate;
      if (kept != upwards) return;
    }
  }

  void bisect() {
    while (answer_.above / answer_.rate > 1 + search_.tolerance && may_probe()) {
      const double rate = std::sqrt(answer_.rate * answer_.above);
      if (keeps(rate)) answer_.rate = rate;
    }
  }

  void confirm() {
    while (may_probe()) {
      if (keeps(answer_.rate)) return;
      answer_.rate /= 1 + search_.tolerance;
      if (answer_.rate < search_.lowest) {
        answer_.rate = 0;
        return;
      }
      noisy_ = true;
    }
  }

  void explain() {
    if (answer_.rate == 0) answer_.why = fmt::format("not even {:.4g} requests/s kept the objective", answer_.above);
    else if (answer_.above == 0)
      answer_.why =
          fmt::format("every rate up to {:.4g} requests/s kept the objective; raise the search's limit", answer_.rate);
    else if (answer_.limited_by_client)
      answer_.why = fmt::format("at {:.4g} requests/s the client was too slow: the server may do more", answer_.above);
    else if (noisy_) answer_.why = "rates near the limit kept the objective at one time and missed it at another";
  }

  const RateSearch& search_;
  const std::function<RateProbe(double)>& measure_;
  RateAnswer answer_;
  bool noisy_ = false;
};

}  // namespace

RateAnswer find_rate(const RateSearch& search, const std::function<RateProbe(double)>& measure) {
  return Searcher(search, measure).run();
}

}  // namespace rw
