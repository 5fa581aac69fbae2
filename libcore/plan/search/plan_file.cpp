#include "libcore/plan/search/plan_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/plan/draw/schedule_view.h"
#include "libcore/spec/train_spec.h"

namespace rw {

std::string read_plan_file(PlanSpec& spec, const std::string& text, const std::string& where) {
  TrainSpec file;
  file.micro_batch = 0;  // not said
  Json tables = Json::object();
  read_toml(fields(file), text, where, {"plan", "predicted"}, &tables);
  if (file.seq_len == 0 || file.global_batch == 0)
    fail(ErrorKind::usage, "{}: expected seq-len and global-batch: a plan is made for one batch", where);
  spec.model = file.model;
  spec.precision = file.precision;
  spec.seq_len = file.seq_len;
  spec.global_batch = file.global_batch;
  spec.micro_batch = file.micro_batch;
  spec.tp = file.tp;
  spec.pp = file.pp;
  spec.vpp = file.vpp;
  spec.dp = file.dp == "auto" ? 0 : std::stoll(file.dp);
  spec.sp = file.sp ? "true" : "false";
  spec.zero = std::to_string(file.zero);
  spec.zero_group = file.zero_group;
  spec.recompute = file.recompute;
  spec.recompute_layers = file.recompute_layers;
  spec.schedule = file.schedule;
  if (tables.contains("plan")) spec.nodes = json_int(tables["plan"], "nodes", where + ": [plan]", 0);
  return file.stage_layers;
}

void check_bare_pins(const PlanSpec& spec) {
  if (spec.sp == "true" && spec.tp <= 1)
    fail(ErrorKind::usage,
         "--sp shards over the tensor-parallel ranks, but --tp is 1; give --tp 2 or more, or leave --sp out");
  if (spec.schedule == "interleaved" && spec.vpp <= 1)
    fail(ErrorKind::usage, "--schedule interleaved runs several chunks a stage, but --vpp is 1; give --vpp 2 or more");
  if (spec.vpp > 1 && spec.pp <= 1)
    fail(ErrorKind::usage, "--vpp {} gives each pipeline stage several chunks, but --pp is 1; give --pp 2 or more",
         spec.vpp);
  if (spec.zero_group == "node" && (spec.zero == "0" || spec.zero == "auto"))
    fail(ErrorKind::usage, "--zero-group node says where --zero shards, but --zero is 0; give --zero 1, 2 or 3");
}

int64_t nodes_for(const ClusterSpec& cluster, int64_t devices) {
  const int64_t has = cluster.device_count();
  const auto round_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  if (cluster.nodes.size() == 1) return round_up(devices, cluster.nodes.front().devices);
  return round_up(devices, has) * cluster.node_count();
}

Layout pinned_layout(const PlanInputs& in, const std::string& stage_layers) {
  const PlanSpec& s = in.spec();
  TrainSpec train;
  const auto at_least_one = [](int64_t pin) { return std::max<int64_t>(1, pin); };
  train.seq_len = s.seq_len;
  train.global_batch = s.global_batch;
  train.tp = at_least_one(s.tp);
  train.pp = at_least_one(s.pp);
  train.vpp = at_least_one(s.vpp);
  if (s.dp > 0) train.dp = std::to_string(s.dp);
  train.sp = s.sp == "true";
  if (s.zero != "auto") train.zero = s.zero[0] - '0';
  if (s.zero_group != "auto") train.zero_group = s.zero_group;
  if (s.recompute != "auto") train.recompute = s.recompute;
  train.recompute_layers = s.recompute_layers;
  if (s.schedule != "auto") train.schedule = s.schedule;
  train.stage_layers = stage_layers;
  const int64_t devices = in.cluster().device_count(), ranks = s.dp > 0 ? ranks_needed(train) : devices;
  if (ranks > devices)
    fail(ErrorKind::usage,
         "the layout needs {} devices (tp {} x pp {} x dp {}), and {} has {}: give --nodes {} or more", ranks, train.tp,
         train.pp, train.dp, in.cluster().name, devices, nodes_for(in.cluster(), ranks));
  // dtrain's own micro-batch where it divides the batch; one that does not would refuse a batch that nobody pinned.
  const int64_t dp = std::max<int64_t>(1, ranks / (train.tp * train.pp));
  const int64_t in_rows = train.schedule == "interleaved" ? train.pp : 1;
  if (s.micro_batch > 0) train.micro_batch = s.micro_batch;
  else if (train.global_batch % (train.micro_batch * dp * in_rows) != 0) train.micro_batch = 1;
  return settle_layout(train, in.model(), ranks);
}

Prediction chosen_plan(const PlanInputs& in, const ChosenPlan& how) {
  const PlanQuestion question = in.question();
  Layout layout;
  if (how.from_file) {
    layout = pinned_layout(in, how.stage_layers);
  } else {
    const PlanAnswer answer = search_plans(question, 1);
    if (answer.plans.empty())
      fail(ErrorKind::verdict, "nothing fits on {} devices of {}: {}; {}", in.cluster().device_count(),
           in.cluster().name, answer.nothing_fits,
           answer.remedy.empty() ? "no single change would help" : "what would: " + answer.remedy);
    layout = answer.plans.front().layout;
  }
  const PipelineShape shape = layout.pipeline();
  if (how.keep_timeline && action_count(shape) > kMostDrawnActions)
    fail(ErrorKind::usage,
         "{} with {} micro-batches: a timeline of {} actions is too long to draw, expected at most {}; use a larger "
         "--micro-batch or a smaller --global-batch",
         layout.text(), shape.micro_batches, action_count(shape), kMostDrawnActions);
  Predictor predictor({.model = in.model(),
                       .cluster = in.cluster(),
                       .precision = question.precision,
                       .trainer = question.trainer,
                       .backend = question.backend,
                       .threads = question.threads,
                       .keep_timeline = how.keep_timeline});
  return predictor.predict(layout);
}

}  // namespace rw
