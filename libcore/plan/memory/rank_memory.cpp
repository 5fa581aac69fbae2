#include "libcore/plan/memory/rank_memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "libcore/model/block_shape.h"
#include "libcore/model/linear.h"
#include "libcore/plan/memory/held_slots.h"
#include "libcore/plan/memory/rank_params.h"
#include "libcore/plan/memory/stage_memory.h"
#include "libcore/spec/tensor_parallel.h"

namespace rw {
namespace {

constexpr double kFloat = sizeof(float);
constexpr int64_t kAlign = 16;  // elements: groups and slices start at multiples of it

double align(int64_t elements) { return static_cast<double>((elements + kAlign - 1) / kAlign * kAlign); }
// What an arena takes for so many bytes of its own; memory that ranks share is counted as it is.
double pages(double bytes) {
  constexpr int64_t kPage = 4096;
  return static_cast<double>(std::max<int64_t>(1, (static_cast<int64_t>(bytes) + kPage - 1) / kPage) * kPage);
}
double shared(double bytes, int64_t ranks) { return ranks == 1 ? pages(bytes) : bytes; }

}  // namespace

double RankMemory::total() const { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }

struct MemoryModel::Impl {
  explicit Impl(const Terms& t) : terms(t) {}

  // Of the parameters: what a shard group of so many ranks has of each group.
  struct States {
    RankParams whole, slice;
  };
  struct Packed {
    double block, head;
  };
  using PartsKey = std::tuple<int64_t, bool, Recompute, int64_t, int64_t>;

  const States& states_of(int64_t tp, int64_t shard) {
    const auto key = std::pair(tp, shard);
    if (const auto at = states.find(key); at != states.end()) return at->second;
    return states.emplace(key, States{RankParams(terms.model, tp), RankParams(terms.model, tp, shard)}).first->second;
  }

  const Packed& packed_of(int64_t tp) {
    if (const auto at = packed.find(tp); at != packed.end()) return at->second;
    const Exec exec{.ops = terms.backend, .stream = {.threads = terms.threads}, .t = terms.t};
    const BlockShape s(terms.model, tp);
    const auto both = [&](int64_t n_out, int64_t n_in) {
      const PackedLinear w{.n_out = n_out, .n_in = n_in};
      return pages(static_cast<double>(packed_fwd_bytes(w, exec))) +
             pages(static_cast<double>(packed_bwd_bytes(w, exec)));
    };
    const VocabRange vocab = vocab_range(terms.model, {.size = tp, .rank = 0});
    const Packed p{.block = both(s.qkv_n, s.c) + both(s.c, s.h * s.d) + both(s.u, s.c) + both(s.c, s.f),
                   .head = both(vocab.end - vocab.begin, s.c)};
    return packed.emplace(tp, p).first->second;
  }

  const StageParts& parts_of(const Layout& l) {
    const PartsKey key{l.tp, l.sp, l.recompute, l.micro_batch, l.seq_len};
    if (const auto at = parts.find(key); at != parts.end()) return at->second;
    return parts
        .emplace(key, stage_parts({.model = terms.model,
                                   .tp = l.tp,
                                   .sp = l.sp,
                                   .recompute = l.recompute,
                                   .micro_batch = l.micro_batch,
                                   .seq_len = l.seq_len,
                                   .t = terms.t,
                                   .backend = terms.backend,
                                   .threads = terms.threads}))
        .first->second;
  }

  RankMemory of(const Layout& layout, int64_t stage);
  void add_states(RankMemory& memory, const Layout& layout, int64_t stage);
  void add_activations(RankMemory& memory, const Layout& layout, int64_t stage);

  Terms terms;
  std::map<std::pair<int64_t, int64_t>, States> states;
  std::map<int64_t, Packed> packed;
  std::map<PartsKey, StageParts> parts;
};

// Masters, packed weights, gradients, moments, and the buffers that gradients are summed in.
void MemoryModel::Impl::add_states(RankMemory& memory, const Layout& l, int64_t stage) {
  const int64_t shard = zero_ranks(l, terms.ranks_per_node), replica = l.dp / shard;
  const States& s = states_of(l.tp, shard);
  const Packed& p = packed_of(l.tp);
  const bool head = stage + 1 == l.pp;
  double total = 0, slices = 0, ends = 0, norms = 0, kv = 0;
  // A slice's group is the whole's with the same name.
  s.whole.each_group(l, stage, [&](const GroupParams& g, int64_t n) {
    total += static_cast<double>(n) * align(g.elements);
    if (&g != &s.whole.block) ends += shared(static_cast<double>(g.elements) * kFloat, shard);
  });
  s.slice.each_group(l, stage, [&](const GroupParams& g, int64_t n) {
    slices += static_cast<double>(n) * align(g.elements);
    norms += static_cast<double>(n * g.norms);
    kv += static_cast<double>(n * g.kv);
  });
  // Two blocks and the ends in turn: leased weights, lent gradients.
  const double leased = 2 * shared(static_cast<double>(s.whole.block.elements) * kFloat, shard) + ends;
  using O = MemoryOwner;
  if (l.zero == 3) {
    memory[O::weights] = pages(slices * kFloat) + leased;
    memory[O::packed_weights] = 2 * p.block + (head ? p.head : 0);
  } else {
    memory[O::weights] = shared(total * kFloat, shard);
    memory[O::packed_weights] = static_cast<double>(RankParams::stage_layers(l, stage)) * p.block + (head ? p.head : 0);
  }
  memory[O::gradients] =
      l.zero < 2 ? shared(total * kFloat, l.zero == 0 ? replica : shard) : pages(slices * kFloat) + leased;
  memory[O::optimizer] = 2 * pages(slices * kFloat);
  if (l.sp) memory[O::comm] += shared(norms * kFloat, l.tp);
  if (const int64_t share = kv_share(terms.model, l.tp); share > 1) memory[O::comm] += kv * kFloat;
  const double partials = norm_partials(s.whole, l, stage, l.zero == 0 ? l.dp : shard);
  memory[O::comm] += shared(partials * static_cast<double>(sizeof(double)), shard);
}

void MemoryModel::Impl::add_activations(RankMemory& memory, const Layout& l, int64_t stage) {
  const StageParts& p = parts_of(l);
  const bool head = stage + 1 == l.pp, split = l.schedule == ScheduleKind::zb_h1;
  double bytes = p.base + (head ? p.head : 0);
  const std::vector<Live> live = held_slots(l.pipeline(), static_cast<int>(stage));
  int64_t before = 0, again_in_all = 0;
  if (l.recompute != Recompute::none)
    again_in_all = l.recompute_layers == 0 ? RankParams::stage_layers(l, stage) : l.recompute_layers;
  if (again_in_all > 0) bytes += p.recompute;
  for (int64_t c = 0; c < l.vpp; ++c) {
    const int64_t n = l.stage_layers[static_cast<size_t>(c * l.pp + stage)];
    const int64_t again = std::clamp<int64_t>(again_in_all - before, 0, n);
    before += n;
    const auto recomputed = static_cast<double>(again), others = static_cast<double>(n - again);
    const Live& held = live[static_cast<size_t>(c)];
    const double slot = p.slot + (stage == 0 && c == 0 ? 0 : p.d_input) + static_cast<double>(n - 1) * p.input +
                        others * p.layer + recomputed * p.recomputed_layer;
    bytes += std::max(1, held.activations) * slot;
    if (split)
      bytes += std::max(1, held.weight_gradients) *
               (p.weight_slot + others * p.weight_layer + recomputed * p.weight_recomputed_layer);
  }
  memory[MemoryOwner::activations] += bytes;
  memory[MemoryOwner::workspace] = head ? p.workspace_head : p.workspace;
  memory[l.tp == 1 ? MemoryOwner::activations : MemoryOwner::comm] += p.tensor_parallel;
}

RankMemory MemoryModel::Impl::of(const Layout& layout, int64_t stage) {
  RankMemory memory;
  add_states(memory, layout, stage);
  add_activations(memory, layout, stage);
  const double tokens = static_cast<double>(layout.global_batch / layout.dp * layout.seq_len);
  constexpr double kBytes = 4;  // of an id, a position, a loss, a cosine
  const auto rows = static_cast<double>(layout.micro_batch * layout.seq_len);
  double data = 2 * pages(tokens * kBytes) + pages(rows * kBytes);      // ids, targets; positions
  data += pages(static_cast<double>(layout.micro_batch + 1) * kBytes);  // where samples begin
  if (stage + 1 == layout.pp) data += pages(tokens * kBytes);           // losses
  if (!terms.model.learned_position())                                  // the rotary table
    data += 2 * pages(static_cast<double>(layout.seq_len * (terms.model.head_dim / 2)) * kBytes);
  memory[MemoryOwner::data] = data;
  return memory;
}

MemoryModel::MemoryModel(const Terms& terms) : impl_(std::make_unique<Impl>(terms)) {}
MemoryModel::~MemoryModel() = default;

RankMemory MemoryModel::of(const Layout& layout, int64_t stage) { return impl_->of(layout, stage); }

WorstStage MemoryModel::worst_stage(const Layout& layout) {
  WorstStage worst{.stage = 0, .memory = impl_->of(layout, 0)};
  for (int64_t stage = 1; stage < layout.pp; ++stage) {
    const RankMemory memory = impl_->of(layout, stage);
    if (memory.total() > worst.memory.total()) worst = {.stage = stage, .memory = memory};
  }
  return worst;
}

namespace {

MemoryModel model_of(const MemoryQuery& q) {
  return MemoryModel(
      {.model = q.model, .ranks_per_node = q.ranks_per_node, .t = q.t, .backend = q.backend, .threads = q.threads});
}

}  // namespace

RankMemory rank_memory(const MemoryQuery& query, int64_t stage) { return model_of(query).of(query.layout, stage); }
WorstStage worst_stage(const MemoryQuery& query) { return model_of(query).worst_stage(query.layout); }

}  // namespace rw
