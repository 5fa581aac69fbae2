// What failures cost a run that saves every so often: the share of its time that is training.
#pragma once
#include <cstdint>

#include "libcore/spec/cluster_spec.h"

namespace rw {

// All in seconds.
struct FailureTerms {
  double interval_s = 0;  // T, of training between two saves
  double cost_s = 0;      // C, what a save adds to the run: the blocking part, or all of it when saves are synchronous
  double persist_s = 0;   // W <= T: from the end of the blocking part until the save stands; 0: synchronous
  double detect_s = 0;    // until a failure is noticed
  double restart_s = 0;   // until training goes on: processes, reading the checkpoint
  double mtbf_s = 0;      // M, of the job
};

// Expected share of training in the time of a run whose failures are exponential, with M between them also during
// saves and restarts. A committed interval takes, with R = detect + restart,
//   E = M e^((R + W) / M) (e^((T + C) / M) - 1),
// which is J. T. Daly's (Future Generation Computer Systems 22, 2006, eq. 13) with the time R + W in the place of his
// restart: a failure before a save stands throws the run back to the one before, so to reach the next one it must
// first stay alive for W. Goodput is T / E. The T that makes it largest depends on C and M alone
// (ckpt/interval.h), however long saves take in the background.
double expected_goodput(const FailureTerms& terms);
// To first order, as clusters report it (effective training time ratio):
//   1 - (T / 2 + W + detect + restart) / M - C / T,
// 0 where that is negative.
double first_order_goodput(const FailureTerms& terms);
// Training that a failure throws away, on average, to first order: T / 2 + W.
double lost_work_s(const FailureTerms& terms);

// Mean time between failures of a job on so many of the cluster's devices: the cluster's, in proportion, or that of its
// device types (the mean rate over all of them). Error{usage} names the keys to give when neither is known.
double job_mtbf_s(const ClusterSpec& cluster, int64_t devices);

}  // namespace rw
