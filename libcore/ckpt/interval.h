// How often to save: too rare loses hours, too often wastes them.
#pragma once
#include <cstdint>

namespace rw {

struct IntervalInputs {
  double cost_s = 0;        // what a save adds to the run: blocking, and slower steps while it is written
  double background_s = 0;  // from its request to its commit: a save cannot follow another sooner
  double mtbf_s = 0;        // mean time between failures of the whole job, > 0
  double step_s = 0;        // a step without a save, > 0
};

// sqrt(2 C M): J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974. For comparison.
double young_interval_s(double cost_s, double mtbf_s);
// Seconds of training between two saves that make lost work and overhead least: Young's with the higher-order terms of
// J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006; M where a save
// costs more than 2 M. Saves that are written in the background change nothing in it: see plan/goodput.h.
double optimal_interval_s(double cost_s, double mtbf_s);
// The same in steps, at least 1 and long enough for a save to be committed before the next is due: the
// background in whole steps, and one whose sums tell all ranks that the files are on disk.
int64_t optimal_interval_steps(const IntervalInputs& inputs);

}  // namespace rw
