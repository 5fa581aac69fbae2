#include "libcore/plan/predict.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/model/exec.h"
#include "libcore/model/model_flops.h"
#include "libcore/plan/op_price.h"
#include "libcore/plan/step_work.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

DType type_named(const std::string& precision) {
  return precision == "f32" ? DType::f32 : precision == "f16" ? DType::f16 : DType::bf16;
}

// The device that sets the pace where several types work together.
const DeviceType& slowest_device(const ClusterSpec& cluster, DType t) {
  const DeviceType* slowest = &cluster.device_of(cluster.nodes.front());
  for (const NodeType& node : cluster.nodes) {
    const DeviceType& d = cluster.device_of(node);
    if (peak_flops(d, t) * d.gemm_fraction < peak_flops(*slowest, t) * slowest->gemm_fraction) slowest = &d;
  }
  return *slowest;
}

int64_t smallest_memory(const ClusterSpec& cluster) {
  int64_t least = INT64_MAX;
  for (const NodeType& node : cluster.nodes) {
    const DeviceType& d = cluster.device_of(node);
    least = std::min(least, d.memory - d.reserve);
  }
  return least;
}

double work_seconds(const Work& work, const DeviceType& device, DType t) {
  double s = 0;
  for (const OpCall& call : work.ops) s += op_seconds(call, device, t);
  return s;
}

bool is_gradient(CommKind kind) { return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter; }

Provenance provenance_named(const std::string& name) {
  for (const Provenance p : {Provenance::measured, Provenance::table, Provenance::roofline})
    if (name == provenance_name(p)) return p;
  return Provenance::guess;
}

}  // namespace

struct Predictor::Impl {
  explicit Impl(const PredictQuery& q)
      : query(q),
        t(type_named(q.precision)),
        topology(q.cluster),
        device(slowest_device(q.cluster, t)),
        backend(q.backend != nullptr ? *q.backend : plain_sizes()),
        memory_limit(smallest_memory(q.cluster)),
        works(q.works != nullptr ? q.works : std::make_shared<WorkCache>(q.model, t, backend, q.threads)),
        memory({.model = q.model,
                .ranks_per_node = topology.ranks_per_node(),
                .t = t,
                .backend = backend,
                .threads = q.threads}) {}

  // One micro-batch of a (tp, sp, micro-batch, recompute): seconds and executed FLOPs.
  struct Priced {
    PassSeconds layer, embedding, head;
    double layer_flops = 0, ends_flops = 0;
    double per_step = 0;
    double update_s_per_param = 0, pack_s_per_param = 0, params_layer = 0, params_ends = 0;
  };
  using Key = std::tuple<int64_t, bool, int64_t, int64_t, Recompute, bool, bool, bool>;

  double tp_seconds(const Work& work, int64_t tp) const {
    double s = 0;
    for (const CommWork& c : work.comm)
      if (c.group == "tp")
        s += static_cast<double>(c.calls) *
             topology.seconds({.kind = c.kind, .group = {.start = 0, .stride = 1, .size = tp}, .bytes = c.bytes}).s;
    return s;
  }

  PassSeconds pass_of(const Work& forward, const Work& backward, const Work* weight, const Work* again,
                      int64_t tp) const {
    PassSeconds p;
    p.forward = factor() * work_seconds(forward, device, t);
    p.tp_forward = tp_seconds(forward, tp);
    p.backward_weight = weight == nullptr ? 0 : factor() * work_seconds(*weight, device, t);
    p.backward_input = factor() * work_seconds(backward, device, t) - p.backward_weight;
    p.tp_backward = tp_seconds(backward, tp);
    if (again != nullptr) {
      p.backward_input += factor() * work_seconds(*again, device, t);
      p.tp_backward += tp_seconds(*again, tp);
    }
    return p;
  }
  double factor() const { return query.trainer.compute_factor; }

  const Priced& priced(const Layout& l, Recompute recompute) {
    const Key key{l.tp,          l.sp,
                  l.micro_batch, l.seq_len,
                  recompute,     l.schedule == ScheduleKind::zb_h1,
                  l.pp == 1,     l.zero >= 2 || l.micro_batches() == 1};
    if (const auto at = known.find(key); at != known.end()) return at->second;
    const StepWork& w = works->of(l, recompute);
    Priced p;
    p.layer = pass_of(w.layer.forward, w.layer.backward, &w.layer.backward_weight, &w.layer.recompute, l.tp);
    p.embedding = pass_of(w.embedding_forward, w.embedding_backward, nullptr, nullptr, l.tp);
    p.head = pass_of(Work{}, w.head, nullptr, nullptr, l.tp);
    p.layer_flops = w.layer.forward.flops() + w.layer.backward.flops() + w.layer.recompute.flops();
    p.ends_flops = w.embedding_forward.flops() + w.embedding_backward.flops() + w.head.flops();
    p.per_step = work_seconds(w.per_step, device, t);
    const double rate = device.memory_bandwidth * device.memory_fraction;
    p.update_s_per_param = w.optimizer_bytes / rate;
    p.pack_s_per_param = w.pack_bytes / rate;
    p.params_layer = w.params_layer;
    p.params_ends = w.params_ends;
    return known.emplace(key, p).first->second;
  }

  int64_t ranks_per_node() const { return topology.ranks_per_node(); }

  double message_seconds(const Layout& l) const {
    if (l.pp == 1) return 0;
    const double rows = static_cast<double>(l.micro_batch * l.seq_len) / static_cast<double>(l.sp ? l.tp : 1);
    return topology
        .seconds({.kind = CommKind::send,
                  .group = {.start = 0, .stride = l.tp * l.dp, .size = l.pp},
                  .bytes = rows * static_cast<double>(query.model.width * dtype_bytes(t))})
        .s;
  }

  double exposed_dp(const Layout& l, const PipelineSeconds& pipe) const;
  void rate_trust(Prediction& p) const;
  double optimizer_seconds(const Layout& l, int64_t stage, const Priced& p) const;

  PredictQuery query;
  DType t;
  Topology topology;
  const DeviceType& device;
  const Ops& backend;
  int64_t memory_limit;
  std::shared_ptr<WorkCache> works;
  MemoryModel memory;
  std::map<Key, Priced> known;
};

// Gradients of ZeRO 0 and 1 are reduced while the last micro-batch's backward goes on, those of 2 and 3 during all of
// them; ZeRO-3's weights are gathered beside all compute. What does not fit there, and a share of what does
// (1 - overlap), stands alone.
double Predictor::Impl::exposed_dp(const Layout& l, const PipelineSeconds& pipe) const {
  const MeshShape shape = mesh_shape(l, query.model, ranks_per_node());
  double grads = 0, gathers = 0, alone = 0;
  for (const CommWork& c : dp_traffic(query.model, l, pipe.slowest, ranks_per_node())) {
    const MeshPlace place(shape, pipe.slowest * l.tp * l.dp);
    const RankGroup group = c.group == "shard"         ? place.shard_group
                            : c.group == "replica"     ? place.replica_group
                            : c.group == "kv"          ? place.kv_group
                            : c.group == "ends"        ? place.ends_group
                            : c.group == "tp"          ? place.tp_group
                            : c.group == "world"       ? RankGroup{.start = 0, .stride = 1, .size = l.ranks()}
                            : c.group == "pp_backward" ? place.pp_group
                                                       : place.dp_group;
    if (group.size < 2) continue;
    const double s =
        static_cast<double>(c.calls) * topology.seconds({.kind = c.kind, .group = group, .bytes = c.bytes}).s;
    const bool data_parallel = c.group == "shard" || c.group == "replica" || c.group == "dp";
    if (!data_parallel) alone += s;
    else if (is_gradient(c.kind)) grads += s;
    else if (l.zero == 3) gathers += s;
    else alone += s;
  }
  const double grad_window = l.zero >= 2 ? pipe.all_backward : pipe.last_backward;
  const double hidden_grads = std::min(device.overlap * grads, grad_window);
  const double left = pipe.all_forward + pipe.all_backward - hidden_grads;
  const double hidden_gathers = std::min(device.overlap * gathers, std::max(0.0, left));
  return alone + grads - hidden_grads + gathers - hidden_gathers;
}

double Predictor::Impl::optimizer_seconds(const Layout& l, int64_t stage, const Priced& p) const {
  int64_t layers = 0;
  for (int64_t c = 0; c < l.vpp; ++c) {
    const Layout::Layers at = l.layers_of(stage, c);
    layers += at.end - at.begin;
  }
  const bool end = stage == 0 || stage + 1 == l.pp;
  const double params = static_cast<double>(layers) * p.params_layer + (end ? p.params_ends : 0);
  const double shards = l.zero == 0 ? 1 : static_cast<double>(zero_ranks(l, ranks_per_node()));
  return p.update_s_per_param * params / shards + p.pack_s_per_param * params + p.per_step;
}

// Provenance: of the worst number behind a twentieth of the step or more. The error bar weighs each part's by its
// share.
void Predictor::Impl::rate_trust(Prediction& p) const {
  constexpr double kMatters = 0.05;
  const Layout& l = p.layout;
  const auto link = [&](CommKind kind, const RankGroup& group) {
    return topology.seconds({.kind = kind, .group = group, .bytes = 1 << 26}).provenance;
  };
  const MeshPlace place(mesh_shape(l, query.model, ranks_per_node()), 0);
  const std::pair<double, Provenance> parts[] = {
      {p.time.compute + p.time.bubble + p.time.optimizer, provenance_named(device.provenance)},
      {p.time.exposed_tp, link(CommKind::all_reduce, place.tp_group)},
      {p.time.exposed_dp, link(CommKind::all_reduce, place.dp_group)},
      {p.time.exposed_pp, link(CommKind::send, place.pp_group)}};
  p.provenance = Provenance::measured;
  p.error_bar = 0;
  for (const auto& [seconds, from] : parts) {
    p.error_bar += seconds / p.step_s * provenance_error(from);
    if (seconds >= kMatters * p.step_s) p.provenance = std::max(p.provenance, from);
  }
}

Predictor::Predictor(const PredictQuery& query) : impl_(std::make_unique<Impl>(query)) {}
Predictor::~Predictor() = default;
const Topology& Predictor::topology() const { return impl_->topology; }
double Predictor::device_bytes() const { return static_cast<double>(impl_->memory_limit); }

WorstStage Predictor::memory(const Layout& layout) const { return impl_->memory.worst_stage(layout); }

Prediction Predictor::predict(const Layout& l, Effort effort) {
  Impl& in = *impl_;
  const Impl::Priced& plain = in.priced(l, Recompute::none);
  const Impl::Priced& again = l.recompute == Recompute::none ? plain : in.priced(l, l.recompute);
  const PipelineParts parts{.layer = plain.layer,
                            .recomputed_layer = again.layer,
                            .embedding = plain.embedding,
                            .head = plain.head,
                            .message = in.message_seconds(l)};
  Prediction p;
  p.layout = l;
  const PipelineSeconds pipe = effort == Effort::closed_form || l.pp * l.vpp == 1
                                   ? pipeline_closed_form(l, parts)
                                   : pipeline_simulated(l, parts, in.query.keep_timeline ? &p.timeline : nullptr);
  p.time = {.compute = pipe.compute,
            .exposed_tp = pipe.exposed_tp,
            .exposed_pp = pipe.exposed_pp,
            .exposed_dp = in.exposed_dp(l, pipe),
            .bubble = pipe.bubble,
            .optimizer = in.optimizer_seconds(l, pipe.slowest, plain)};
  const double nodes = std::ceil(static_cast<double>(l.ranks()) / static_cast<double>(in.ranks_per_node()));
  p.time.compute *= 1 + in.device.jitter * std::log2(std::max(1.0, nodes));
  p.time.compute += in.query.trainer.overhead;
  p.step_s = p.time.total();

  const double tokens = static_cast<double>(l.global_batch * l.seq_len);
  p.tokens_per_s = tokens / p.step_s;
  const ModelFlops flops = training_flops_per_token(in.query.model, l.seq_len);
  const double per_device = p.tokens_per_s / static_cast<double>(l.ranks()) / 1e12;
  p.tflops_per_device.full = flops.full * per_device;
  p.tflops_per_device.causal = flops.causal * per_device;
  int64_t recomputed = 0;
  for (int64_t s = 0; l.recompute != Recompute::none && s < l.pp; ++s) {
    int64_t layers = 0;
    for (int64_t c = 0; c < l.vpp; ++c) layers += l.layers_of(s, c).end - l.layers_of(s, c).begin;
    recomputed += std::min(layers, l.recompute_layers);
  }
  const double executed = static_cast<double>(l.micro_batches()) *
                          (static_cast<double>(in.query.model.layers - recomputed) * plain.layer_flops +
                           static_cast<double>(recomputed) * again.layer_flops + plain.ends_flops);
  p.tflops_per_device.hardware =
      executed * static_cast<double>(l.dp * l.tp) / static_cast<double>(l.ranks()) / p.step_s / 1e12;
  const double peak = peak_flops(in.device, in.t) / 1e12;
  p.mfu = {.full = p.tflops_per_device.full / peak,
           .causal = p.tflops_per_device.causal / peak,
           .hardware = p.tflops_per_device.hardware / peak};

  const WorstStage worst = memory(l);
  p.worst_stage = worst.stage;
  p.memory = worst.memory;
  p.device_bytes = device_bytes();
  p.cost_per_million_tokens = in.device.price * static_cast<double>(l.ranks()) / 3600 / p.tokens_per_s * 1e6;
  in.rate_trust(p);
  return p;
}

Json prediction_json(const Prediction& p) {
  const Layout& l = p.layout;
  Json layout = layout_json(l), owners = Json::object();
  layout["recompute"] = recompute_name(l.recompute);
  layout["recompute_layers"] = l.recompute_layers;
  layout["global_batch"] = l.global_batch;
  layout["seq_len"] = l.seq_len;
  for (size_t o = 0; o < p.memory.bytes.size(); ++o)
    if (p.memory.bytes[o] > 0) owners[memory_owner_name(static_cast<MemoryOwner>(o))] = p.memory.bytes[o];
  const auto by_convention = [](const ByConvention& v) {
    return Json{{"full", v.full}, {"causal", v.causal}, {"hardware", v.hardware}};
  };
  return {{"layout", layout},
          {"step_time_s", p.step_s},
          {"tokens_per_s", p.tokens_per_s},
          {"tflops_per_device", by_convention(p.tflops_per_device)},
          {"mfu", by_convention(p.mfu)},
          {"memory",
           {{"high_water_bytes", p.memory.total()},
            {"worst_stage", p.worst_stage},
            {"device_bytes", p.device_bytes},
            {"by_owner", owners}}},
          {"time_s",
           {{"compute", p.time.compute},
            {"exposed_tp", p.time.exposed_tp},
            {"exposed_pp", p.time.exposed_pp},
            {"exposed_dp", p.time.exposed_dp},
            {"bubble", p.time.bubble},
            {"optimizer", p.time.optimizer}}},
          {"cost_per_million_tokens", p.cost_per_million_tokens > 0 ? Json(p.cost_per_million_tokens) : Json()},
          {"provenance", provenance_name(p.provenance)},
          {"error_bar", p.error_bar}};
}

}  // namespace rw
