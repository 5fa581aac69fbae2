// Everything that `dtrain` can be told: one field list makes its flags, config keys, --help and run.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"

namespace rw {

struct TrainSpec {
  std::string model, init_from;
  std::vector<std::string> data, val_data;
  double val_fraction = 0.0;
  std::string out;
  std::string resume = "none";

  int64_t steps = 1000, seq_len = 0, micro_batch = 8, global_batch = 0;
  double lr = 3e-4, min_lr = 0.0;
  std::string lr_schedule = "cosine";
  int64_t warmup_steps = 100, decay_steps = 0;
  int64_t lr_base_batch = 0;
  std::string lr_batch_rule = "none";
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, clip_norm = 1.0;

  // The layout, as asked for: layout.h settles it against a model and a number of ranks.
  std::string layout_by = "flags", cluster;
  int64_t tp = 1, pp = 1, vpp = 1;
  std::string dp = "auto";
  bool sp = false;
  int64_t zero = 0;
  std::string zero_group = "all";
  std::string recompute = "none";
  int64_t recompute_layers = 0;
  std::string schedule = "1f1b", stage_layers;

  std::string device = "cpu";
  std::string precision = "bf16";
  double loss_scale = 65536.0;
  int64_t loss_scale_window = 1000;
  int64_t seed = 1, threads = 0;

  std::string allreduce = "auto", comm_table;
  int64_t ranks_per_node = 0;

  std::string on_spike = "warn";
  double spike_threshold = 8.0;
  bool nan_trace = false;
  std::string trace_steps;  // "10", "10..12"; empty: none
  int64_t check_replicas_every = 0, verify_parallel = 0;

  bool dry_run = false;
  std::string dry_run_rank = "0";
  int64_t dry_run_ranks = 0;

  int64_t eval_every = 0, log_every = 1;
  std::string checkpoint_every = "0", checkpoint_mode = "async", checkpoint_dir, local_checkpoint_dir;
  int64_t local_checkpoint_every = 0, keep_last = 2, keep_every = 0;
  double mtbf = 0.0;
  int64_t checkpoint_memory = 0, checkpoint_bandwidth = 0;  // bytes, bytes/s
  double peak_flops = 0.0;
  double comm_timeout = 300.0;
  int64_t max_skips = 10;
  bool verify_data = false;
  std::string metrics_port = "off", metrics_host = "127.0.0.1";

  // JSON text of the configuration's [plan] and [predicted] tables, on the rank that read it; "" without. No fields:
  // they say what somebody expected of this run, not what to do.
  std::string plan_table, predicted_table;
  // No field either: a benchmark measures steps and keeps nothing of them. False: no checkpoint at the end.
  bool save_at_end = true;
};

FieldList fields(TrainSpec& spec);
// Steps between durable checkpoints as --checkpoint-every says; 0: only at the end; -1: auto. Error{usage}.
int64_t checkpoint_interval(const TrainSpec& spec);
// Where --metrics-port listens: a port; 0: a free one (auto); -1: nowhere (off). Error{usage}.
int metrics_port(const TrainSpec& spec);
// What no single field can say alone; Error{usage} names the flags.
void check_train_spec(const TrainSpec& spec);
// Whether a setting changes what is computed (not the output folder, logging, threads).
bool changes_result(const std::string& field);
// Digest of the settings that change what is computed (not the output folder, logging, threads).
std::string hyper_parameter_hash(TrainSpec spec);

}  // namespace rw
