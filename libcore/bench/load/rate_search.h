// The highest rate that keeps an objective, by measuring at chosen rates. Knows nothing of servers: what measures is
// passed in.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rw {

enum class ProbeVerdict : uint8_t { kept, missed, is_void };  // is_void: the client could not offer this rate

struct RateProbe {
  double rate = 0, attainment = 0;
  ProbeVerdict verdict = ProbeVerdict::missed;
};

struct RateSearch {
  double start = 1;      // requests a second
  double lowest = 0.01;  // below it nothing is tried
  double highest = 1e6;
  double tolerance = 0.05;  // relative width of the answer
  int64_t most_probes = 40;
};

struct RateAnswer {
  double rate = 0;                 // the highest that kept the objective; 0: none did
  double above = 0;                // the lowest that did not; 0: none was found
  bool limited_by_client = false;  // `above` is a void probe: the server may do more
  std::vector<RateProbe> probes;   // in the order they were made
  std::string why;                 // one line, when the answer is not an ordinary one
};
// Doubles (or halves) from `start` until one rate keeps the objective and a higher one does not, then bisects in the
// logarithm until above / rate <= 1 + tolerance. The answer is measured once more; when that misses (a noisy server) it
// goes down by the tolerance until a rate keeps the objective twice. Probes are few: they cost minutes each.
RateAnswer find_rate(const RateSearch& search, const std::function<RateProbe(double rate)>& measure);

}  // namespace rw
