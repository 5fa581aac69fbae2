// From measured runs to a cluster's calibration: the fractions of its peaks that are reached, and what its links take.
#pragma once
#include <string>
#include <vector>

#include "libcore/plan/measure/measured_run.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// One number that is fitted, before and after.
struct FittedNumber {
  std::string name;  // "gemm-fraction"
  double before = 0, after = 0;
};
// A run's seconds, predicted and measured.
struct RunResidual {
  std::string where, layout;
  double measured = 0, before = 0, after = 0;  // of a step
  double compute = 0, compute_after = 0, communication = 0, communication_after = 0;
};
struct Calibration {
  ClusterSpec cluster;  // with the fitted numbers; marked measured when they explain the runs
  std::vector<FittedNumber> numbers;
  std::vector<RunResidual> runs;
  double mean_error_before = 0, mean_error_after = 0;  // of the step times, relative
  std::vector<std::string> notes;                      // for people: what makes the fit doubtful
};

// Fits the device type of the cluster's first node to the runs, and that node's link. All runs must fit the cluster's
// devices; Error{usage} names the run that does not. At least one run. The device type is marked measured when
// the mean error of the runs is 10 % or less afterwards.
Calibration calibrate(const ClusterSpec& cluster, const std::vector<MeasuredRun>& runs);
// How far a cluster's predictions are from runs that it was not fitted to.
std::vector<RunResidual> compare_runs(const ClusterSpec& cluster, const std::vector<MeasuredRun>& runs);

}  // namespace rw
