// Everything that `dplan train` can be told: one field list makes its flags, config keys and --help.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/plan/search/search.h"

namespace rw {

struct PlanSpec {
  std::string model, cluster;
  int64_t nodes = 0, global_batch = 0, seq_len = 0;
  std::string precision = "bf16";
  double tokens = 0;  // of the whole training, for its time and price
  // Pins; "auto" or 0: searched.
  int64_t tp = 0, pp = 0, vpp = 0, dp = 0, micro_batch = 0, recompute_layers = 0;
  std::string sp = "auto", zero = "auto", zero_group = "auto", recompute = "auto", schedule = "auto";
  int64_t max_memory = 0, top = 5, threads = 1;
  std::string backend = "auto";
};

FieldList fields(PlanSpec& spec);

// A spec with what it names: settles seq_len, checks the batch. Keeps model and cluster, so it stays where it is made.
class PlanInputs {
 public:
  explicit PlanInputs(const PlanSpec& spec);
  PlanInputs(const PlanSpec& spec, ClusterSpec cluster);  // spec.cluster and spec.nodes are not read
  PlanInputs(const PlanInputs&) = delete;
  PlanInputs& operator=(const PlanInputs&) = delete;
  const PlanSpec& spec() const { return spec_; }
  const ModelSpec& model() const { return model_; }
  const ClusterSpec& cluster() const { return cluster_; }
  PlanQuestion question() const;

 private:
  PlanSpec spec_;
  ModelSpec model_;
  ClusterSpec cluster_;
};

// The best plan as `dtrain --config` takes it: layout and batch, then [plan] (from what it was made) and [predicted].
std::string plan_toml(const PlanInputs& inputs, const Prediction& plan);
// What `dplan train --json` prints.
Json plan_answer_json(const PlanInputs& inputs, const PlanAnswer& answer);

}  // namespace rw
