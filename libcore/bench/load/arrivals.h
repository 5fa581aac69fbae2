// When requests of an open loop are due. A pure function of the plan: the same seed gives the same schedule.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace rw {

struct ArrivalPlan {
  int64_t n = 0;
  double rate = 0;            // requests a second; infinity: all at once
  double burstiness = 1;      // shape of the gamma distributed gaps, as vLLM's benchmark means it; 1: a Poisson process
  std::string ramp = "none";  // linear, exponential: the rate goes from ramp_from to ramp_to, request by request
  double ramp_from = 0, ramp_to = 0;
  uint64_t seed = 0;
};

// Due times in seconds, ascending, the first 0. Gaps are gamma distributed with shape `burstiness`, so that their
// squared coefficient of variation (what `dplan serve` calls burst) is 1 / burstiness. Without a ramp the schedule is
// stretched so that the n - 1 gaps take exactly (n - 1) / rate: the offered load is the one asked for, not what a short
// draw happened to give (vLLM's benchmark does so too). A ramp's rate at request i is that of the share i / (n - 1) of
// the way, and its gaps are as drawn.
std::vector<double> arrival_times(const ArrivalPlan& plan);

// How many requests a plan of so many seconds holds (at least 1); Error{usage} for an infinite rate.
int64_t requests_within(const ArrivalPlan& plan, double duration_s);

}  // namespace rw
