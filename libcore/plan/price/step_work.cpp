#include "libcore/plan/price/step_work.h"

#include <algorithm>
#include <map>

#include "libcore/base/check.h"
#include "libcore/train/dry_run.h"

namespace rw {
namespace {

bool same(const Cost& a, const Cost& b) {
  return a.flops == b.flops && a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written;
}

void add_op(Work& work, const OpCall& call, int64_t times) {
  const auto at = std::find_if(work.ops.begin(), work.ops.end(), [&](const OpCall& o) {
    return o.shape == call.shape && same(o.cost, call.cost) && o.op == call.op;
  });
  const int64_t calls = call.calls * times;
  if (at == work.ops.end()) {
    CHECK(calls >= 0, "%s is taken away and was not there", call.op.c_str());
    if (calls > 0)
      work.ops.push_back({.op = call.op, .scope = "", .shape = call.shape, .cost = call.cost, .calls = calls});
    return;
  }
  at->calls += calls;
  CHECK(at->calls >= 0, "%s is taken away more often than it was there", call.op.c_str());
  if (at->calls == 0) work.ops.erase(at);
}

void add_comm(Work& work, const CommWork& comm, int64_t times) {
  const auto at = std::find_if(work.comm.begin(), work.comm.end(), [&](const CommWork& c) {
    return c.kind == comm.kind && c.bytes == comm.bytes && c.group == comm.group;
  });
  const int64_t calls = comm.calls * times;
  if (at == work.comm.end()) {
    CHECK(calls >= 0, "a collective of %s is taken away and was not there", comm.group.c_str());
    if (calls > 0) work.comm.push_back({.kind = comm.kind, .group = comm.group, .calls = calls, .bytes = comm.bytes});
    return;
  }
  at->calls += calls;
  CHECK(at->calls >= 0, "a collective of %s is taken away more often than it was there", comm.group.c_str());
  if (at->calls == 0) work.comm.erase(at);
}

// A traced step, cut where its scope changes: what was done under a scope, each time that it was entered.
class Scopes {
 public:
  explicit Scopes(const DryTrace& trace) {
    size_t op = 0;
    for (const DryTrace::CommCall& c : trace.comm) {
      for (; op < c.at; ++op) add_op(enter(trace.ops[op].scope), trace.ops[op], 1);
      if (c.group == "tp")
        add_comm(enter(c.scope), {.kind = c.kind, .group = c.group, .calls = 1, .bytes = static_cast<double>(c.bytes)},
                 1);
    }
    for (; op < trace.ops.size(); ++op) add_op(enter(trace.ops[op].scope), trace.ops[op], 1);
  }
  // The last time; nothing when it was never entered.
  Work last(const std::string& scope) const {
    const auto at = times_.find(scope);
    return at == times_.end() ? Work{} : at->second.back();
  }

 private:
  Work& enter(const std::string& scope) {
    std::vector<Work>& times = times_[scope];
    if (scope != now_ || times.empty()) times.emplace_back();
    now_ = scope;
    return times.back();
  }
  std::map<std::string, std::vector<Work>> times_;
  std::string now_;
};

Scopes trace(const WorkQuery& q, const std::vector<int64_t>& stage_layers, int64_t stage) {
  ModelSpec model = q.model;
  model.layers = 0;
  for (const int64_t n : stage_layers) model.layers += n;
  const Layout layout{.tp = q.tp,
                      .pp = static_cast<int64_t>(stage_layers.size()),
                      .sp = q.sp,
                      .recompute = q.recompute,
                      .recompute_layers = q.recompute == Recompute::none ? 0 : model.layers,
                      .schedule = q.split_backward ? ScheduleKind::zb_h1 : ScheduleKind::one_f_one_b,
                      .micro_batch = q.micro_batch,
                      .global_batch = q.micro_batch * (q.gradients == Write::accumulate ? 2 : 1),
                      .seq_len = q.seq_len,
                      .stage_layers = stage_layers};
  DryTrace trace;
  dry_run({.step = {.spec = model,
                    .layout = layout,
                    .adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
                    .clip_norm = 1},
           .backend = {.ops = q.backend, .stream = {.threads = q.threads}, .t = q.t},
           .ranks_per_node = layout.ranks(),
           .trace = &trace},
          stage * q.tp);
  return Scopes(trace);
}

// What depends on the number of a stage's parameters, not on which they are: of the norm's partial sums.
bool of_all_params(const OpCall& call) { return call.op == "zero" || call.op == "read"; }

// Once a step: of the gradients' norm and their small sums, of the optimizer, of packing.
Work update(const Scopes& scopes) {
  Work work;
  for (const char* scope : {"gradients", "optimizer"})
    for (const OpCall& call : scopes.last(scope).ops)
      if (!of_all_params(call)) add_op(work, call, 1);
  return work;
}

struct PerParam {
  double params = 0, flops = 0, bytes = 0, pack_bytes = 0;
};
void count_update(const Work& update, PerParam& sum) {
  for (const OpCall& call : update.ops) {
    const auto calls = static_cast<double>(call.calls);
    const double bytes = calls * (call.cost.bytes_read + call.cost.bytes_written);
    if (call.op == "adamw") sum.params += calls * static_cast<double>(call.shape.m);
    if (call.op == "gemm_pack") sum.pack_bytes += bytes;
    if (call.op == "adamw" || call.op == "sum_squares") sum.flops += calls * call.cost.flops, sum.bytes += bytes;
  }
}

}  // namespace

double Work::flops() const {
  double sum = 0;
  for (const OpCall& o : ops) sum += static_cast<double>(o.calls) * o.cost.flops;
  return sum;
}

double Work::bytes() const {
  double sum = 0;
  for (const OpCall& o : ops) sum += static_cast<double>(o.calls) * (o.cost.bytes_read + o.cost.bytes_written);
  return sum;
}

Work& Work::add(const Work& other, int64_t times) {
  for (const OpCall& o : other.ops) add_op(*this, o, times);
  for (const CommWork& c : other.comm) add_comm(*this, c, times);
  return *this;
}

StepWork step_work(const WorkQuery& q) {
  const auto first_stage = [&](int64_t layers) {
    return trace(q, q.one_stage ? std::vector<int64_t>{layers} : std::vector<int64_t>{layers, 1}, 0);
  };
  const Scopes two = first_stage(2), one = first_stage(1);
  StepWork w;
  w.layer.forward = two.last("block 1 (forward)");
  w.layer.backward_weight = two.last("block 1 (weight gradients)");
  w.layer.backward = two.last("block 1 (backward)");
  w.layer.backward.add(w.layer.backward_weight);
  w.layer.recompute = two.last("block 1 (recompute)");
  w.first_layer_forward = two.last("block 0 (forward)");
  w.chunk_output = two.last("block 1 (output)");
  w.embedding_forward = two.last("embedding (forward)");
  w.embedding_backward = two.last("embedding (backward)");
  w.embedding_update = update(one);
  w.layer_update = update(two).add(w.embedding_update, -1);
  w.embedding_update.add(w.layer_update, -1);
  if (q.one_stage) {
    w.head = two.last("head");
  } else {
    const Scopes last_stage = trace(q, {1, 1}, 1);
    w.head = last_stage.last("head");
    w.head_update = update(last_stage).add(w.layer_update, -1);
    w.head_update.add(last_stage.last("losses")).add(one.last("losses"), -1);
  }
  for (const OpCall& call : one.last("optimizer").ops)
    if (of_all_params(call)) add_op(w.per_step, call, 1);
  w.per_step.add(one.last("data")).add(one.last("losses"));  // what the host brings, and what it waits for
  PerParam layer, ends;
  count_update(w.layer_update, layer);
  count_update(w.embedding_update, ends);
  count_update(w.head_update, ends);
  w.optimizer_flops = layer.flops / layer.params;
  w.optimizer_bytes = layer.bytes / layer.params;
  w.pack_bytes = layer.pack_bytes / layer.params;
  w.params_layer = layer.params;
  w.params_ends = ends.params;
  return w;
}

}  // namespace rw
