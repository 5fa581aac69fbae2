// How often a training should save, what that costs, and what failures cost it then.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "libcore/base/fields.h"
#include "libcore/plan/long_run/goodput.h"
#include "libcore/spec/layout.h"
#include "libcore/spec/train_spec.h"

namespace rw {

// What is known better than the cluster file knows it; below 0 or 0: from there.
struct CheckpointTerms {
  double mtbf = 0;       // hours between failures of the whole job
  double bandwidth = 0;  // bytes/s that the job writes to shared storage
  double blocking = -1;  // seconds that a save stops the run
  // Seconds. Detection: dtrain's --comm-timeout, which bounds how long a silent failure goes unnoticed. Restart: what
  // users report from a fault to the recovered run, 948 s (meta-pytorch/torchft 329), less that.
  double detect = TrainSpec{}.comm_timeout, restart = 648;
  double step_time = 0;  // seconds
  std::string mode = "async";
};
FieldList fields(CheckpointTerms& terms);

struct CheckpointQuery {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const CheckpointTerms& terms;
  const Layout* layout = nullptr;  // null: the bytes are spread evenly over all devices
  double step_s = 0;               // predicted; terms.step_time wins; 0 and no terms: intervals in seconds alone
  double tokens = 0;               // of the whole training; 0: not asked
};

struct CheckpointPlan {
  int64_t params = 0, ranks = 0;
  double bytes = 0, largest_rank_bytes = 0;
  double write_s = 0, blocking_s = 0;
  FailureTerms failures;  // with the interval
  double young_s = 0;     // sqrt(2 C M), for comparison
  double step_s = 0;      // 0: unknown
  int64_t interval_steps = 0;
  bool write_decides = false;  // the best interval is shorter than a save takes to be written
  double goodput = 0, first_order_goodput = 0, lost_work_s = 0;
  // Of the whole training, when tokens were asked for: seconds with failures, and how many of them.
  double tokens = 0, training_s = 0, expected_failures = 0;
  std::map<std::string, std::string> sources;  // of each number: "flag", "cluster", "predicted", "guess"
};

// Bytes of a checkpoint: f32 masters and both of Adam's moments of every parameter, tied ones once (what
// checkpoint_pieces() of all ranks add up to).
double checkpoint_bytes(const ModelSpec& model);

// The interval is dtrain's own for --checkpoint-every auto (ckpt/interval.h). Error{usage} says which key of the
// cluster or which flag is missing: failures, storage bandwidth, host bandwidth.
CheckpointPlan plan_checkpoints(const CheckpointQuery& query);

Json checkpoint_plan_json(const CheckpointPlan& plan);
std::string checkpoint_plan_text(const CheckpointPlan& plan);

}  // namespace rw
