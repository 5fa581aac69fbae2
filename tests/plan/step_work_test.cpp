// Work of layers put together against the dry run of the whole model, op by op and collective by collective, and one
// layer against the products of the papers.
#include "libcore/plan/price/step_work.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "kernels/plain_sizes.h"
#include "libcore/model/exec.h"
#include "libcore/plan/price/zero_bytes.h"
#include "libcore/train/dry_run.h"

using namespace rw;

namespace {

ModelSpec llama(int64_t layers) {
  ModelSpec s;
  s.family = Family::llama;
  s.layers = layers;
  s.width = 48;
  s.heads = 4;
  s.kv_heads = 2;
  s.head_dim = 12;
  s.ffn = 68;
  s.vocab_size = 131;
  s.max_position = 64;
  return s;
}

ModelSpec gpt2(int64_t layers) {
  ModelSpec s = llama(layers);
  s.family = Family::gpt2;
  s.kv_heads = 4;
  s.qkv_bias = s.out_bias = s.mlp_bias = s.tied_head = true;
  return s;
}

ModelSpec qwen2(int64_t layers) {
  ModelSpec s = llama(layers);
  s.family = Family::qwen2;
  s.kv_heads = 1;
  s.qkv_bias = true;
  return s;
}

struct Terms {
  ModelSpec model;
  Layout layout;
  int64_t ranks_per_node = 0;
};

DryRun dry(const Terms& t, int64_t rank, const Ops& backend = plain_sizes()) {
  return dry_run({.step = {.spec = t.model,
                           .layout = t.layout,
                           .adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
                           .clip_norm = 1},
                  .backend = {.ops = backend, .stream = {.threads = 1}, .t = DType::bf16},
                  .ranks_per_node = t.ranks_per_node > 0 ? t.ranks_per_node : t.layout.ranks()},
                 rank);
}

int64_t first_rank(const Layout& l, int64_t stage) { return stage * l.tp * l.dp; }

std::map<std::string, OpCount> by_op(const Work& work) {
  std::map<std::string, OpCount> sums;
  for (const OpCall& o : work.ops) {
    OpCount& sum = sums[o.op];
    const auto calls = static_cast<double>(o.calls);
    sum.calls += o.calls;
    sum.cost.flops += calls * o.cost.flops;
    sum.cost.bytes_read += calls * o.cost.bytes_read;
    sum.cost.bytes_written += calls * o.cost.bytes_written;
  }
  return sums;
}

using Comms = std::map<std::pair<std::string, CommKind>, std::pair<double, double>>;
Comms by_group(const std::vector<CommWork>& comm) {
  Comms sums;
  for (const CommWork& c : comm) {
    auto& [calls, bytes] = sums[{c.group, c.kind}];
    calls += static_cast<double>(c.calls);
    bytes += static_cast<double>(c.calls) * c.bytes;
  }
  return sums;
}

void check_near(double got, double expected, double tolerance) {
  CHECK(std::abs(got - expected) <= tolerance * std::abs(expected));
}

// The dry run's collectives of a stage, the mean over its data-parallel ranks: their slices differ by rows.
Comms mean_comm(const Terms& t, int64_t stage) {
  Comms mean;
  for (int64_t d = 0; d < t.layout.dp; ++d)
    for (const auto& [key, count] : dry(t, first_rank(t.layout, stage) + d * t.layout.tp).comm) {
      mean[key].first += static_cast<double>(count.calls) / static_cast<double>(t.layout.dp);
      mean[key].second += static_cast<double>(count.bytes) / static_cast<double>(t.layout.dp);
    }
  return mean;
}

void check_stage(const Terms& t, const WorkParts& parts, int64_t stage) {
  CAPTURE(stage);
  const DryRun run = dry(t, first_rank(t.layout, stage));
  const Work work = stage_work(parts, t.layout, stage);
  const auto ops = by_op(work);
  CHECK(ops.size() == run.ops.size());
  double flops = 0;
  for (const auto& [name, count] : run.ops) {
    CAPTURE(name);
    REQUIRE(ops.contains(name));
    const OpCount& sum = ops.at(name);
    flops += count.cost.flops;
    CHECK(sum.calls == count.calls);
    CHECK(sum.cost.flops == count.cost.flops);
    // The norm's partial sums grow with the number of parameters.
    const bool partials = name == "zero" || name == "read";
    CHECK(std::abs(sum.cost.bytes_read - count.cost.bytes_read) <= (partials ? 65536 : 0));
    CHECK(std::abs(sum.cost.bytes_written - count.cost.bytes_written) <= (partials ? 65536 : 0));
  }
  CHECK(stage_flops(parts, t.layout, stage) == doctest::Approx(flops).epsilon(1e-12));
  // Over "tp": what the micro-batches do, and dp_traffic's once a step.
  Comms comm = by_group(work.comm);
  const std::vector<CommWork> traffic = dp_traffic(t.model, t.layout, stage, t.layout.ranks());
  for (const auto& [key, sum] : by_group(traffic)) {
    comm[key].first += sum.first;
    comm[key].second += sum.second;
  }
  for (const auto& [key, count] : run.comm) {
    const std::string what = key.first + " " + comm_kind_name(key.second);
    CAPTURE(what);
    if (key.first != "tp") continue;
    CHECK(comm[key].first == static_cast<double>(count.calls));
    CHECK(comm[key].second == static_cast<double>(count.bytes));
  }
}

void check_layout(ModelSpec model, Layout layout) {
  if (layout.stage_layers.empty()) layout.stage_layers = deal_layers(model, layout.pp * layout.vpp, layout.seq_len);
  const std::string text = layout.text();
  CAPTURE(text);
  const Terms t{.model = model, .layout = layout};
  const WorkParts parts = work_parts({.model = model, .layout = layout, .t = DType::bf16, .backend = plain_sizes()});
  for (int64_t stage = 0; stage < layout.pp; ++stage) check_stage(t, parts, stage);
}

void check_traffic(const ModelSpec& model, Layout layout, int64_t ranks_per_node) {
  layout.stage_layers = deal_layers(model, layout.pp * layout.vpp, layout.seq_len);
  const std::string text = layout.text();
  CAPTURE(text);
  CAPTURE(ranks_per_node);
  for (int64_t stage = 0; stage < layout.pp; ++stage) {
    CAPTURE(stage);
    const Comms expected = mean_comm({.model = model, .layout = layout, .ranks_per_node = ranks_per_node}, stage);
    Comms got = by_group(dp_traffic(model, layout, stage, ranks_per_node));
    for (const auto& [key, sum] : expected) {
      const std::string what = key.first + " " + comm_kind_name(key.second);
      CAPTURE(what);
      const bool in_micro_batches = key.first == "tp" || key.first.starts_with("pp_");
      if (in_micro_batches) continue;
      const auto [calls, bytes] = got[key];
      CHECK(calls == sum.first);
      // The norm's partial sums: pieces are counted as if no two cuts met.
      const bool partials = what == "shard all_reduce";
      check_near(bytes, sum.second, partials ? 0.1 : 0.01);
    }
    for (const auto& [key, sum] : got)
      if (sum.first > 0) CHECK(expected.contains(key));
  }
}

Layout batch(int64_t micro_batches, int64_t micro_batch = 1) {
  Layout l;
  l.micro_batch = micro_batch;
  l.global_batch = micro_batch * micro_batches;
  l.seq_len = 13;
  return l;
}

const OpCall* find(const Work& work, const char* op, OpShape shape) {
  for (const OpCall& o : work.ops)
    if (o.op == op && o.shape == shape) return &o;
  return nullptr;
}

}  // namespace

TEST_CASE("step_work: layers put together are the whole step, op by op and collective by collective") {
  for (const auto& model : {llama(5), gpt2(5), qwen2(5)})
    for (const int64_t m : {1, 3})
      for (const int64_t tp : {1, 2})
        for (const int64_t pp : {1, 2})
          for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
            Layout l = batch(m, 2);
            l.tp = tp;
            l.pp = pp;
            l.recompute = recompute;
            check_layout(model, l);
            l.sp = tp > 1;
            if (l.sp) check_layout(model, l);
          }
}

TEST_CASE("step_work: partly recomputed stages, chunks, split backwards, uneven stages") {
  Layout l = batch(4);
  l.tp = 2;
  l.sp = true;
  l.pp = 2;
  l.recompute = Recompute::full;
  l.recompute_layers = 2;
  check_layout(llama(7), l);
  l.schedule = ScheduleKind::zb_h1;
  check_layout(llama(7), l);
  check_layout(gpt2(7), l);
  l.schedule = ScheduleKind::interleaved;
  l.vpp = 2;
  l.recompute = Recompute::selective;
  check_layout(qwen2(7), l);
  l.recompute = Recompute::none;
  l.recompute_layers = 0;
  l.schedule = ScheduleKind::gpipe;
  check_layout(gpt2(7), l);
  l.vpp = 1;
  l.stage_layers = {6, 1};
  check_layout(gpt2(7), l);
}

TEST_CASE("step_work: a layer's products, FLOPs and collectives as the papers count them") {
  const ModelSpec model = llama(40);
  const int64_t t = 13 * 3, c = model.width, f = model.ffn, q = 48, kv = 24, tp = 2;
  const StepWork w = step_work({.model = model,
                                .tp = tp,
                                .sp = true,
                                .recompute = Recompute::full,
                                .micro_batch = 3,
                                .seq_len = 13,
                                .backend = plain_sizes()});
  // Forward: qkv, out, gate and up, down (Shoeybi et al. 2019: columns, then rows).
  CHECK(find(w.layer.forward, "gemm", {t, (q + 2 * kv) / tp, c}) != nullptr);
  CHECK(find(w.layer.forward, "gemm", {t, c, q / tp}) != nullptr);
  CHECK(find(w.layer.forward, "gemm", {t, 2 * f / tp, c}) != nullptr);
  CHECK(find(w.layer.forward, "gemm", {t, c, f / tp}) != nullptr);
  CHECK(find(w.layer.forward, "attention_fwd", {t, model.heads / tp, model.head_dim}) != nullptr);
  const auto gemm_flops = [](const Work& work) { return by_op(work)["gemm"].cost.flops; };
  const auto matrices = static_cast<double>(c * (q + 2 * kv) + c * q + 3 * c * f) / tp;
  CHECK(gemm_flops(w.layer.forward) == 2 * matrices * static_cast<double>(t));
  CHECK(gemm_flops(w.layer.backward) == 2 * gemm_flops(w.layer.forward));
  CHECK(gemm_flops(w.layer.backward_weight) == gemm_flops(w.layer.forward));
  // All but the last product (Korthikanti et al. 2022).
  CHECK(gemm_flops(w.layer.recompute) == gemm_flops(w.layer.forward) - 2.0 * static_cast<double>(t * c * f / tp));
  // A reduce-scatter and an all-gather for each of two all-reduces; the backward gathers two inputs again.
  const auto calls = [](const Work& work, CommKind kind) {
    Comms sums = by_group(work.comm);
    CHECK(sums[{"tp", kind}].second == sums[{"tp", kind}].first * static_cast<double>(13 * 3 * 48 * 2));
    return sums[{"tp", kind}].first;
  };
  CHECK(calls(w.layer.forward, CommKind::all_gather) == 2);
  CHECK(calls(w.layer.forward, CommKind::reduce_scatter) == 2);
  CHECK(calls(w.layer.backward, CommKind::all_gather) == 4);
  CHECK(calls(w.layer.backward, CommKind::reduce_scatter) == 2);
  CHECK(calls(w.layer.backward_weight, CommKind::all_gather) == 2);
  CHECK(calls(w.layer.recompute, CommKind::all_gather) == 2);
  CHECK(calls(w.layer.recompute, CommKind::reduce_scatter) == 1);
  CHECK(w.params_layer == matrices + 2 * static_cast<double>(c));
  // Rank 0 has 65 of the 131 vocabulary's rows, and the final norm.
  CHECK(w.params_ends == static_cast<double>(2 * 65 * c + c));
  // A parameter's master is read and one copy of 16 bits written; norms are not packed.
  CHECK(w.pack_bytes * w.params_layer == doctest::Approx(6 * matrices));
  // AdamW reads 16 bytes and writes 12, the norm reads 4 and writes one f64 for a block.
  CHECK(w.optimizer_bytes == doctest::Approx(32).epsilon(0.05));
}

TEST_CASE("dp_traffic: what data parallelism sends, as the dry run counts it") {
  for (const auto& model : {llama(7), gpt2(7), qwen2(7)})
    for (const int64_t zero : {0, 1, 2, 3})
      for (const int64_t pp : {1, 2})
        for (const ZeroGroup group : {ZeroGroup::all, ZeroGroup::node}) {
          if (zero == 0 && group == ZeroGroup::node) continue;
          Layout l = batch(12);
          l.dp = 4;
          l.pp = pp;
          l.tp = 2;
          l.zero = zero;
          l.zero_group = group;
          check_traffic(model, l, 4);
        }
}

TEST_CASE("dp_traffic: ZeRO-3 gathers under every schedule, few layers too") {
  for (const ScheduleKind schedule :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1})
    for (const int64_t layers : {4, 5, 7, 11, 13}) {
      Layout l = batch(24);
      l.dp = 3;
      l.pp = 2;
      l.vpp = schedule == ScheduleKind::interleaved ? 2 : 1;
      l.zero = 3;
      l.schedule = schedule;
      check_traffic(llama(layers), l, 6);
    }
}

TEST_CASE("zero_bytes: sums of slices and packing, as the dry run counts them") {
  const ModelSpec model = llama(11);
  for (const int64_t zero : {0, 1, 2, 3})
    for (const int64_t pp : {1, 2})
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        Layout l = batch(12);
        l.dp = 2;
        l.pp = pp;
        l.zero = zero;
        l.schedule = ScheduleKind::gpipe;
        l.recompute = recompute;
        l.stage_layers = deal_layers(model, pp, l.seq_len);
        const std::string text = l.text();
        CAPTURE(text);
        const WorkParts parts = work_parts({.model = model, .layout = l, .t = DType::bf16, .backend = this_cpu_ops()});
        const auto of = [](const auto& ops, const char* name) {
          const auto at = ops.find(name);
          return at == ops.end() ? 0.0 : at->second.cost.bytes_read + at->second.cost.bytes_written;
        };
        for (int64_t stage = 0; stage < pp; ++stage) {
          const Work work = stage_work(parts, l, stage);
          double packing = 0, sums = 0;
          for (const int64_t d : {0, 1}) {
            const DryRun run = dry({.model = model, .layout = l}, stage * 2 + d, this_cpu_ops());
            packing += of(run.ops, "gemm_pack") / 2;
            sums += (of(run.ops, "cast") + of(run.ops, "add")) / 2;
          }
          const auto ops = by_op(work);
          sums -= of(ops, "cast") + of(ops, "add");
          const ZeroBytes got = zero_bytes({.work = parts.first,
                                            .model = model,
                                            .layout = l,
                                            .ranks_per_node = l.ranks(),
                                            .backend = this_cpu_ops()},
                                           stage);
          // Where all is recomputed, the blocks at which GPipe turns are packed for both directions already.
          check_near(got.packing, packing, recompute == Recompute::full && zero == 3 ? 0.05 : 0.01);
          check_near(got.sums, sums, 0.01);
        }
      }
  // One copy for both directions: made for each gather, of which there are two a micro-batch.
  Layout l = batch(3);
  l.zero = 3;
  l.stage_layers = {11};
  const StepWork w = step_work({.model = model, .seq_len = 13, .backend = plain_sizes(), .one_stage = true});
  const double ends = zero_bytes({.work = w, .model = model, .layout = l, .backend = plain_sizes()}, 0).packing -
                      11 * 3 * 2 * w.pack_bytes * w.params_layer;
  CHECK(ends == doctest::Approx(6.0 * 131 * 48));
}

TEST_CASE("plain_sizes: one copy of a weight in the activations' type; what products and attention need beside") {
  const Ops& ops = plain_sizes();
  const GemmPack fwd{
      .packed = nullptr, .b = nullptr, .n = 7, .k = 5, .b_trans = Trans::yes, .src_t = DType::f32, .t = DType::bf16};
  CHECK(ops.packed_bytes(fwd, {}) == 7 * 5 * 2);
  GemmPack bwd = fwd;
  bwd.b_trans = Trans::no;
  CHECK(ops.packed_bytes(bwd, {}) == 0);
  const int32_t cu_seqlens[] = {0, 100, 300};
  AttentionBwd a{};
  a.cu_seqlens = cu_seqlens;
  a.n_seq = 2;
  a.heads = 3;
  a.kv_heads = 1;
  a.d = 40;
  a.t = DType::bf16;
  CHECK(ops.attention_workspace(a, {}) == 300 * 3 * 4 + 4);
  CHECK(ops.gemm_workspace({.n = 7, .ct = DType::bf16}, {}) == (32 << 20) + 14);
  CHECK(ops.gemm_workspace({.n = 7, .ct = DType::f32}, {}) == (32 << 20) + 28);
  // Serving: 1,024 chunks of a context to each of 8 kv heads, with o, a maximum and a sum for each of 32 heads.
  CHECK(ops.paged_attention_workspace({.heads = 32, .kv_heads = 8, .d = 128}, {}) == int64_t{1024} * 32 * 130 * 4);
  // 130 of k are three steps of 64 and two blocks of 128: a byte a weight and a scale in bf16 a block; of a row of a
  // two bytes a number and a scale in f32 a block.
  CHECK(ops.quant_packed_bytes({.n = 3, .k = 130, .bits = QuantBits::int8, .group = 128}, {}) == 3 * 192 + 64);
  CHECK(ops.quant_gemm_workspace({.m = 5, .n = 3, .k = 130, .bits = QuantBits::int8, .group = 128}, {}) ==
        5 * (2 * 192 + 4 * 2));
}
