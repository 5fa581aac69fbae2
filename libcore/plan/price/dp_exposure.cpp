#include "libcore/plan/price/dp_exposure.h"

#include <algorithm>

#include "libcore/plan/price/real.h"
#include "libcore/plan/price/step_work.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

bool is_gradient(CommKind kind) { return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter; }

// dtrain: gradients of ZeRO 0 and 1 are reduced while the last micro-batch's backward goes on, those of 2 and 3 during
// all of them; ZeRO-3's weights are gathered beside all compute. What does not fit there, and a share of what does
// (1 - overlap), stands alone.
double own_exposure(const DpExposure& q) {
  const Layout& l = q.layout;
  const int64_t per_node = q.topology.ranks_per_node();
  const MeshPlace place(mesh_shape(l, q.model, per_node), q.pipe.slowest * l.tp * l.dp);
  double grads = 0, gathers = 0, alone = 0;
  for (const CommWork& c : dp_traffic(q.model, l, q.pipe.slowest, per_node)) {
    const RankGroup group = c.group == "shard"         ? place.shard_group
                            : c.group == "replica"     ? place.replica_group
                            : c.group == "kv"          ? place.kv_group
                            : c.group == "ends"        ? place.ends_group
                            : c.group == "tp"          ? place.tp_group
                            : c.group == "world"       ? RankGroup{.start = 0, .stride = 1, .size = l.ranks()}
                            : c.group == "pp_backward" ? place.pp_group
                                                       : place.dp_group;
    if (group.size < 2) continue;
    const double s = real(c.calls) * q.topology.seconds({.kind = c.kind, .group = group, .bytes = c.bytes}).s;
    const bool data_parallel = c.group == "shard" || c.group == "replica" || c.group == "dp";
    if (!data_parallel) alone += s;
    else if (is_gradient(c.kind)) grads += s;
    else if (l.zero == 3) gathers += s;
    else alone += s;
  }
  const double grad_window = l.zero >= 2 ? q.pipe.all_backward : q.pipe.last_backward;
  const double hidden_grads = std::min(q.overlap * grads, grad_window);
  const double left = q.pipe.all_forward + q.pipe.all_backward - hidden_grads;
  const double hidden_gathers = std::min(q.overlap * gathers, std::max(0.0, left));
  return alone + grads - hidden_grads + gathers - hidden_gathers;
}

// Seconds of a collective over all the rank's parameters, in `messages` pieces.
struct Collective {
  CommKind kind;
  RankGroup group;
  double bytes;  // of an element
  double messages;
};
double seconds_of(const DpExposure& q, const Collective& c) {
  if (c.group.size < 2) return 0;
  const double all = q.rank_params * c.bytes;
  return c.messages * q.topology.seconds({.kind = c.kind, .group = c.group, .bytes = all / c.messages}).s;
}

// What stands alone of `seconds` beside a window of compute: what does not fit, what is not hidden of the rest, and the
// last of n pieces, which nothing follows.
double beside(double seconds, double window, const DpExposure& q, double pieces) {
  const double alone = std::max(0.0, seconds - window) + (1 - q.overlap) * std::min(seconds, window) + seconds / pieces;
  return std::min(alone, seconds);
}

int64_t stage_layers(const Layout& l, int64_t stage) {
  int64_t n = 0;
  for (int64_t c = 0; c < l.vpp; ++c) n += l.layers_of(stage, c).end - l.layers_of(stage, c).begin;
  return n;
}

// Parameters of a layer: two norms; q, k, v and output, three of a gated MLP. GPT-2's: q, k and v are one, two of the
// MLP, each with a bias, as norms have.
double tensors_of_layer(const ModelSpec& model) { return model.gated_mlp() ? 9 : 12; }

// Parameters are gathered before each layer's forward and (ZeRO-3) backward, gradients scattered after it, for every
// micro-batch (Rajbhandari et al. 2020, section 7; Zhao et al. 2023).
double sharded_exposure(const DpExposure& q, const MeshPlace& place, double layers) {
  const TrainerTraits& t = q.trainer;
  const double m = real(q.layout.micro_batches());
  const double pieces = t.messages == "tensors" ? layers * tensors_of_layer(q.model) : layers;
  const double gather = t.communication_factor *
                        seconds_of(q, {CommKind::all_gather, place.shard_group, real(t.parameter_bytes), pieces});
  const double scatter = t.communication_factor *
                         seconds_of(q, {CommKind::reduce_scatter, place.shard_group, real(t.gradient_bytes), pieces});
  const double backward = scatter + (q.layout.zero == 3 ? gather : 0);
  return m * (beside(gather, q.pipe.all_forward / m, q, layers) + beside(backward, q.pipe.all_backward / m, q, layers));
}

// Gradients once a step, in buckets or tensor by tensor; ZeRO-1 hands out the parameters afterwards.
double replicated_exposure(const DpExposure& q, const MeshPlace& place, double layers) {
  const TrainerTraits& t = q.trainer;
  const double bytes = real(t.gradient_bytes) * q.rank_params;
  const double pieces =
      t.messages == "tensors" ? layers * tensors_of_layer(q.model) : std::max(1.0, bytes / t.bucket_bytes);
  const bool sharded = q.layout.zero == 1;
  const CommKind kind = sharded && !t.reduces_all ? CommKind::reduce_scatter : CommKind::all_reduce;
  double s = t.communication_factor * seconds_of(q, {kind, place.dp_group, real(t.gradient_bytes), pieces});
  double after = 0;
  if (sharded) {
    // A broadcast goes along a ring through all ranks (NCCL has no other), as the pieces of an all_gather do.
    const double parts = t.broadcasts ? real(place.shard_group.size) : pieces;
    (t.broadcasts ? after : s) += t.communication_factor * seconds_of(q, {CommKind::all_gather, place.shard_group,
                                                                          real(t.parameter_bytes), parts});
  }
  return after + (t.overlaps_gradients ? beside(s, q.pipe.last_backward, q, std::max(1.0, layers)) : s);
}

}  // namespace

double exposed_dp_seconds(const DpExposure& q) {
  if (q.trainer.is_dtrain()) return own_exposure(q);
  if (q.layout.dp == 1) return 0;
  const MeshPlace place(mesh_shape(q.layout, q.model, q.topology.ranks_per_node()),
                        q.pipe.slowest * q.layout.tp * q.layout.dp);
  const double layers = real(stage_layers(q.layout, q.pipe.slowest));
  return q.layout.zero >= 2 ? sharded_exposure(q, place, layers) : replicated_exposure(q, place, layers);
}

}  // namespace rw
