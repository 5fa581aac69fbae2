#include "libcore/plan/search/plan_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/spec/train_spec.h"

namespace rw {

std::string read_plan_file(PlanSpec& spec, const std::string& text, const std::string& where) {
  TrainSpec file;
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

Layout pinned_layout(const PlanInputs& in, const std::string& stage_layers) {
  const PlanSpec& s = in.spec();
  TrainSpec train;
  const auto at_least_one = [](int64_t pin) { return std::max<int64_t>(1, pin); };
  train.seq_len = s.seq_len;
  train.global_batch = s.global_batch;
  if (s.micro_batch > 0) train.micro_batch = s.micro_batch;
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
    fail(ErrorKind::usage, "the layout needs {} devices (tp {} x pp {} x dp {}), and {} has {}: give --nodes", ranks,
         train.tp, train.pp, train.dp, in.cluster().name, devices);
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
