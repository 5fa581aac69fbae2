#include "libcore/plan/search/plan_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/units.h"
#include "libcore/base/version.h"
#include "libcore/model/exec.h"
#include "libcore/spec/param_table.h"

namespace rw {
namespace {

constexpr double kMany = 1 << 20;

std::vector<std::string> or_auto(std::vector<std::string> choices) {
  choices.insert(choices.begin(), "auto");
  return choices;
}

template <typename Enum>
std::optional<Enum> named(const std::string& text, std::initializer_list<Enum> all, const char* (*name)(Enum)) {
  for (const Enum e : all)
    if (text == name(e)) return e;
  return std::nullopt;
}

const char* zero_group_name(ZeroGroup g) { return g == ZeroGroup::node ? "node" : "all"; }

bool is_cpu(const ClusterSpec& cluster) {
  return std::all_of(cluster.devices.begin(), cluster.devices.end(), [](const DeviceType& d) { return d.is_cpu(); });
}

}  // namespace

FieldList fields(PlanSpec& s) {
  return {
      {.name = "model",
       .value = &s.model,
       .help = "a name under configs/models, a config.json, or a Hugging Face directory",
       .group = "Work"},
      {.name = "cluster",
       .value = &s.cluster,
       .help = "a name under configs/clusters or a .toml file",
       .group = "Work"},
      {.name = "nodes",
       .value = &s.nodes,
       .help = "nodes to plan for; 0: as many as the cluster file has",
       .min = 0,
       .max = kMany,
       .group = "Work"},
      {.name = "global-batch",
       .value = &s.global_batch,
       .help = "samples of an optimizer step over all ranks",
       .min = 0,
       .max = 1 << 24,
       .group = "Work"},
      {.name = "seq-len",
       .value = &s.seq_len,
       .help = "tokens per sample; 0: the model's longest, at most 4096",
       .min = 0,
       .max = kMany,
       .is_size = true,
       .group = "Work"},
      {.name = "precision",
       .value = &s.precision,
       .help = "type of activations and products",
       .choices = {"bf16", "f16", "f32"},
       .group = "Work"},
      {.name = "tokens",
       .value = &s.tokens,
       .help = "tokens of the whole training, like 1e12: adds its days and its price",
       .min = 0,
       .group = "Work"},
      {.name = "tp",
       .value = &s.tp,
       .help = "tensor parallel; 0: searched, like every number below",
       .min = 0,
       .max = kMany,
       .group = "Pins"},
      {.name = "pp", .value = &s.pp, .help = "pipeline stages", .min = 0, .max = kMany, .group = "Pins"},
      {.name = "vpp", .value = &s.vpp, .help = "chunks of layers a stage", .min = 0, .max = kMany, .group = "Pins"},
      {.name = "dp", .value = &s.dp, .help = "data-parallel replicas", .min = 0, .max = kMany, .group = "Pins"},
      {.name = "sp",
       .value = &s.sp,
       .help = "sequence parallelism beside tp",
       .choices = or_auto({"true", "false"}),
       .group = "Pins"},
      {.name = "zero",
       .value = &s.zero,
       .help = "what data-parallel ranks share out",
       .choices = or_auto({"0", "1", "2", "3"}),
       .or_number = true,
       .group = "Pins"},
      {.name = "zero-group",
       .value = &s.zero_group,
       .help = "among whom",
       .choices = or_auto({"all", "node"}),
       .group = "Pins"},
      {.name = "recompute",
       .value = &s.recompute,
       .help = "activations made again in the backward",
       .choices = or_auto({"none", "selective", "full"}),
       .group = "Pins"},
      {.name = "recompute-layers",
       .value = &s.recompute_layers,
       .help = "with --recompute: of so many of a stage's layers; 0: all",
       .min = 0,
       .max = kMany,
       .group = "Pins"},
      {.name = "micro-batch",
       .value = &s.micro_batch,
       .help = "samples of a replica that go through at once",
       .min = 0,
       .max = kMany,
       .group = "Pins"},
      {.name = "schedule",
       .value = &s.schedule,
       .help = "of the pipeline",
       .choices = or_auto({"gpipe", "1f1b", "interleaved", "zb-h1"}),
       .group = "Pins"},
      {.name = "max-memory",
       .value = &s.max_memory,
       .help = "bytes of a rank that a plan may take; 0: the device's less its reserve",
       .min = 0,
       .is_size = true,
       .group = "Pins"},
      {.name = "backend",
       .value = &s.backend,
       .help = "whose buffers memory is counted with; auto: the CPU's for devices of one compute unit, an "
               "accelerator's otherwise",
       .choices = or_auto({"cpu", "accelerator"}),
       .group = "Pins"},
      {.name = "threads",
       .value = &s.threads,
       .help = "of a rank, for the CPU's buffers",
       .min = 1,
       .max = 4096,
       .group = "Pins"},
      {.name = "top", .value = &s.top, .help = "plans to print", .min = 1, .max = 1000, .group = "Output"},
  };
}

namespace {

ClusterSpec cluster_asked(const PlanSpec& spec) {
  if (spec.cluster.empty())
    fail(ErrorKind::usage, "--cluster is missing: expected a name under configs/clusters or a .toml file");
  ClusterSpec cluster = load_cluster_spec(spec.cluster);
  if (spec.nodes > 0) set_node_count(cluster, spec.nodes);
  return cluster;
}

}  // namespace

PlanInputs::PlanInputs(const PlanSpec& spec) : PlanInputs(spec, cluster_asked(spec)) {}

PlanInputs::PlanInputs(const PlanSpec& spec, ClusterSpec cluster) : spec_(spec), cluster_(std::move(cluster)) {
  if (spec_.model.empty())
    fail(ErrorKind::usage, "--model is missing: expected a name under configs/models, a config.json or a directory");
  if (spec_.global_batch < 1)
    fail(ErrorKind::usage, "--global-batch is missing: expected the samples of an optimizer step, like 256");
  model_ = load_model_spec(spec_.model);
  if (spec_.recompute_layers > 0 && (spec_.recompute == "none" || spec_.recompute == "auto"))
    fail(ErrorKind::usage,
         "--recompute-layers {} says where --recompute applies, but that is {}; give --recompute "
         "selective or full",
         spec_.recompute_layers, spec_.recompute);
  for (const NodeType& node : cluster_.nodes) {
    const DeviceType& device = cluster_.device_of(node);
    if (spec_.max_memory > device.memory - device.reserve)
      fail(ErrorKind::usage, "--max-memory {} is more than {} has beside its reserve, {}; leave it out to use all",
           format_bytes(static_cast<double>(spec_.max_memory)), device.name,
           format_bytes(static_cast<double>(device.memory - device.reserve)));
  }
  if (spec_.seq_len == 0) spec_.seq_len = std::min<int64_t>(model_.max_position, 4096);
  if (spec_.seq_len > model_.max_position)
    fail(ErrorKind::usage, "--seq-len = {} is longer than the model's longest sequence, {} (max_position_embeddings)",
         spec_.seq_len, model_.max_position);
}

PlanQuestion PlanInputs::question() const {
  const PlanSpec& s = spec_;
  PlanWishes w;
  w.global_batch = s.global_batch;
  w.seq_len = s.seq_len;
  w.precision = s.precision;
  w.tp = s.tp;
  w.pp = s.pp;
  w.vpp = s.vpp;
  w.dp = s.dp;
  w.micro_batch = s.micro_batch;
  if (s.sp != "auto") w.sp = s.sp == "true";
  if (s.zero != "auto") w.zero = s.zero[0] - '0';
  w.zero_group = named(s.zero_group, {ZeroGroup::all, ZeroGroup::node}, zero_group_name);
  w.recompute = named(s.recompute, {Recompute::none, Recompute::selective, Recompute::full}, recompute_name);
  w.recompute_layers = s.recompute_layers;
  w.schedule = named(s.schedule,
                     {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1},
                     schedule_name);
  w.max_memory = s.max_memory;
  const bool cpu = s.backend == "cpu" || (s.backend == "auto" && is_cpu(cluster_));
  w.backend = cpu ? &this_cpu_ops() : &plain_sizes();
  w.threads = static_cast<int>(s.threads);
  return {w, model_, cluster_};
}

std::string plan_toml(const PlanInputs& in, const Prediction& p) {
  const Layout& l = p.layout;
  std::string stages;
  for (const int64_t n : l.stage_layers) stages += (stages.empty() ? "" : ",") + std::to_string(n);
  std::string out =
      fmt::format("# {} on {}: {}, micro-batch {}\n", in.spec().model, in.cluster().name, l.text(), l.micro_batch);
  const auto text = [&](const char* key, const std::string& value) { out += fmt::format("{} = \"{}\"\n", key, value); };
  const auto number = [&](const char* key, auto value) { out += fmt::format("{} = {}\n", key, value); };
  text("model", in.spec().model);
  if (!is_cpu(in.cluster())) text("device", "cuda");
  text("precision", in.spec().precision);
  number("seq-len", l.seq_len);
  number("global-batch", l.global_batch);
  number("micro-batch", l.micro_batch);
  number("tp", l.tp);
  number("pp", l.pp);
  number("vpp", l.vpp);
  number("dp", l.dp);
  number("sp", l.sp);
  number("zero", l.zero);
  text("zero-group", zero_group_name(l.zero_group));
  // Where nodes shard within themselves, a dry run elsewhere must know how large they are.
  if (l.zero_group == ZeroGroup::node) number("ranks-per-node", Topology(in.cluster()).ranks_per_node());
  text("recompute", recompute_name(l.recompute));
  if (l.recompute != Recompute::none) number("recompute-layers", l.recompute_layers);
  text("schedule", schedule_name(l.schedule));
  text("stage-layers", stages);
  out += "\n[plan]\n";
  text("tool-version", version());
  text("model-identity", model_identity(in.model()));
  text("cluster", in.cluster().name);
  text("cluster-fingerprint", hex64(hash64(cluster_toml(in.cluster()))));
  number("nodes", in.cluster().node_count());
  number("ranks", l.ranks());
  text("provenance", provenance_name(p.provenance));
  number("error-bar", p.error_bar);
  out += "\n[predicted]\n";
  number("step-time-s", p.step_s);
  number("tokens-per-s", p.tokens_per_s);
  // The trainer's categories: it charges the update to compute and late messages to the bubble.
  number("compute-s", p.time.compute + p.time.optimizer);
  number("communication-s", p.time.exposed_tp + p.time.exposed_dp);
  number("bubble-s", p.time.bubble + p.time.exposed_pp);
  number("memory-bytes", static_cast<int64_t>(p.memory.total()));
  number("mfu-full", p.mfu.full);
  number("mfu-causal", p.mfu.causal);
  number("mfu-hardware", p.mfu.hardware);
  return out;
}

Json plan_answer_json(const PlanInputs& in, const PlanAnswer& answer) {
  Json plans = Json::array(), rejected = Json::array();
  for (const Prediction& p : answer.plans) {
    Json plan = prediction_json(p);
    if (in.spec().tokens > 0) {
      const double seconds = in.spec().tokens / p.tokens_per_s;
      plan["training"] = {
          {"tokens", in.spec().tokens},
          {"days", seconds / 86400},
          {"cost", p.cost_per_million_tokens > 0 ? Json(p.cost_per_million_tokens * in.spec().tokens / 1e6) : Json()}};
    }
    plans.push_back(std::move(plan));
  }
  for (const Rejected& r : answer.rejected)
    rejected.push_back({{"change", r.change},
                        {"layout", r.layout.text()},
                        {"reason", r.reason},
                        {"step_time_s", r.step_s > 0 ? Json(r.step_s) : Json()}});
  return {{"model", in.spec().model},
          {"params", n_params(in.model())},
          {"cluster", in.cluster().name},
          {"nodes", in.cluster().node_count()},
          {"devices", in.cluster().device_count()},
          {"precision", in.spec().precision},
          {"layouts", answer.layouts},
          {"fitting", answer.fitting},
          {"plans", plans},
          {"rejected", rejected},
          {"nothing_fits", answer.nothing_fits},
          {"remedy", answer.remedy}};
}

}  // namespace rw
