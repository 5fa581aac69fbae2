#include "libcore/plan/price/predict.h"

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
#include "libcore/plan/price/collective_seconds.h"
#include "libcore/plan/price/dp_exposure.h"
#include "libcore/plan/price/op_price.h"
#include "libcore/plan/price/step_work.h"
#include "libcore/plan/price/zero_bytes.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

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

bool is_plain_product(const OpCall& call) { return call.op == "gemm"; }

}  // namespace

struct Predictor::Impl {
  explicit Impl(const PredictQuery& q)
      : query(q),
        t(precision_type(q.precision)),
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
    return s * query.trainer.communication_factor * (1 - query.trainer.tp_hidden);
  }

  // Of some ops: with `products`, a share of these and all others.
  double work_seconds(const Work& work, double products = 1) const {
    double s = 0;
    for (const OpCall& call : work.ops)
      s += (is_plain_product(call) ? products : 1) * op_seconds(call, device, t, query.trainer.kernel());
    return s * query.trainer.compute_factor;
  }

  PassSeconds pass_of(const Work& forward, const Work& backward, const Work& weight, int64_t tp) const {
    PassSeconds p;
    p.forward = work_seconds(forward);
    p.tp_forward = tp_seconds(forward, tp);
    p.backward_weight = work_seconds(weight);
    p.backward_input = work_seconds(backward) - p.backward_weight;
    p.tp_backward = tp_seconds(backward, tp);
    return p;
  }

  PassSeconds layer_pass(const StepWork& w, const Layout& l, Recompute recompute) const {
    const TrainerTraits& trainer = query.trainer;
    PassSeconds p = pass_of(w.layer.forward, w.layer.backward, w.layer.backward_weight, l.tp);
    if (recompute == Recompute::full && trainer.whole_layers) {
      p.backward_input += p.forward;
      p.tp_backward += p.tp_forward;
    } else if (recompute == Recompute::selective && trainer.selective == "half") {
      Work products_and_rest = w.layer.forward;
      std::erase_if(products_and_rest.ops, [](const OpCall& o) { return o.op == "attention_fwd"; });
      p.backward_input += work_seconds(products_and_rest, 0.5);
    } else if (recompute != Recompute::none) {
      p.backward_input += work_seconds(w.layer.recompute);
      p.tp_backward += tp_seconds(w.layer.recompute, l.tp);
    }
    if (l.micro_batches() > 1)
      p.backward_weight += trainer.compute_factor * trainer.accumulation_bytes * w.params_layer / memory_rate();
    return p;
  }
  double memory_rate() const { return device.memory_bandwidth * device.memory_fraction; }

  const Priced& priced(const Layout& l, Recompute recompute) {
    const Key key{l.tp,          l.sp,
                  l.micro_batch, l.seq_len,
                  recompute,     l.schedule == ScheduleKind::zb_h1,
                  l.pp == 1,     l.zero >= 2 || l.micro_batches() == 1};
    if (const auto at = known.find(key); at != known.end()) return at->second;
    const StepWork& w = works->of(l, recompute);
    Priced p;
    p.layer = layer_pass(w, l, recompute);
    p.embedding = pass_of(w.embedding_forward, w.embedding_backward, {}, l.tp);
    p.head = pass_of({}, w.head, {}, l.tp);
    p.layer_flops = w.layer.forward.flops() + w.layer.backward.flops() + w.layer.recompute.flops();
    p.ends_flops = w.embedding_forward.flops() + w.embedding_backward.flops() + w.head.flops();
    p.per_step = work_seconds(w.per_step);
    p.update_s_per_param = query.trainer.compute_factor * w.optimizer_bytes / memory_rate();
    // Others' kernels take weights as they are.
    if (query.trainer.is_dtrain()) p.pack_s_per_param = w.pack_bytes / memory_rate();
    p.params_layer = w.params_layer;
    p.params_ends = w.params_ends;
    return known.emplace(key, p).first->second;
  }

  int64_t ranks_per_node() const { return topology.ranks_per_node(); }

  double message_seconds(const Layout& l) const {
    if (l.pp == 1) return 0;
    // Published trainers scatter a message over the tensor-parallel ranks, as sequence parallelism does.
    const bool scattered = l.sp || !query.trainer.is_dtrain();
    const double rows = static_cast<double>(l.micro_batch * l.seq_len) / static_cast<double>(scattered ? l.tp : 1);
    return query.trainer.communication_factor *
           topology
               .seconds({.kind = CommKind::send,
                         .group = {.start = 0, .stride = l.tp * l.dp, .size = l.pp},
                         .bytes = rows * static_cast<double>(query.model.width * dtype_bytes(t))})
               .s;
  }

  double rank_params(const Layout& l, int64_t stage, const Priced& p) const;
  StepSeconds step_seconds(const Layout& l, Effort effort, Timeline* keep);
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

double Predictor::Impl::rank_params(const Layout& l, int64_t stage, const Priced& p) const {
  int64_t layers = 0;
  for (int64_t c = 0; c < l.vpp; ++c) {
    const Layout::Layers at = l.layers_of(stage, c);
    layers += at.end - at.begin;
  }
  const bool end = stage == 0 || stage + 1 == l.pp;
  // An end of several has half of them.
  const double ends = end ? p.params_ends / (l.pp > 1 ? 2 : 1) : 0;
  return static_cast<double>(layers) * p.params_layer + ends;
}

double Predictor::Impl::optimizer_seconds(const Layout& l, int64_t stage, const Priced& p) const {
  const double params = rank_params(l, stage, p);
  const double shards = l.zero == 0 ? 1 : static_cast<double>(zero_ranks(l, ranks_per_node()));
  const double update = p.update_s_per_param * params / shards + p.per_step;
  if (!query.trainer.is_dtrain() || l.zero < 2) return update + p.pack_s_per_param * params;
  // Gradient slices are added up, and under stage 3 weights packed at every gather.
  const ZeroBytes more = zero_bytes({.work = works->of(l, l.recompute),
                                     .model = query.model,
                                     .layout = l,
                                     .ranks_per_node = ranks_per_node(),
                                     .backend = backend},
                                    stage);
  return update + (more.sums + more.packing) / memory_rate();
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
      {p.time.compute + p.time.bubble + p.time.optimizer, provenance_of(device.provenance)},
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

StepSeconds Predictor::Impl::step_seconds(const Layout& l, Effort effort, Timeline* keep) {
  const Priced& plain = priced(l, Recompute::none);
  const Priced& again = l.recompute == Recompute::none ? plain : priced(l, l.recompute);
  const TrainerTraits& trainer = query.trainer;
  const double message = message_seconds(l);
  const bool blocking = trainer.blocking_messages && l.pp > 1;
  const PipelineParts parts{.layer = plain.layer,
                            .recomputed_layer = again.layer,
                            .embedding = plain.embedding,
                            .head = plain.head,
                            .message = blocking ? 0 : message};
  PipelineSeconds pipe = effort == Effort::closed_form || l.pp * l.vpp == 1 ? pipeline_closed_form(l, parts)
                                                                            : pipeline_simulated(l, parts, keep);
  // Each chunk of each micro-batch waits for one message either way, as do the steps of the bubble.
  if (blocking) pipe.exposed_pp = 2 * message * static_cast<double>(l.vpp * l.micro_batches() + l.pp - 1);
  // Messages that travel beside compute cost their share of it, as gradients do.
  else if (trainer.is_dtrain())
    pipe.exposed_pp += 2 * (1 - device.overlap) * message * static_cast<double>(l.vpp * l.micro_batches());
  const double exposed_dp = exposed_dp_seconds({.model = query.model,
                                                .layout = l,
                                                .topology = topology,
                                                .trainer = trainer,
                                                .overlap = device.overlap,
                                                .pipe = pipe,
                                                .rank_params = rank_params(l, pipe.slowest, plain)});
  return {.compute = pipe.compute,
          .exposed_tp = pipe.exposed_tp,
          .exposed_pp = pipe.exposed_pp,
          .exposed_dp = exposed_dp,
          .bubble = pipe.bubble,
          .optimizer = optimizer_seconds(l, pipe.slowest, plain)};
}

StepSeconds Predictor::step_seconds(const Layout& l, Effort effort) { return impl_->step_seconds(l, effort, nullptr); }

Prediction Predictor::predict(const Layout& l, Effort effort) {
  Impl& in = *impl_;
  const Impl::Priced& plain = in.priced(l, Recompute::none);
  const Impl::Priced& again = l.recompute == Recompute::none ? plain : in.priced(l, l.recompute);
  Prediction p;
  p.layout = l;
  p.time = in.step_seconds(l, effort, in.query.keep_timeline ? &p.timeline : nullptr);
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
