#include "libcore/train/step.h"

#include <algorithm>
#include <cmath>

#include "kernels/op_log.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

int64_t count_valid(const int32_t* targets, int64_t n) {
  return std::count_if(targets, targets + n, [](int32_t t) { return t >= 0; });
}

void check_ids(const int32_t* ids, int64_t n, int64_t vocab) {
  for (int64_t i = 0; i < n; ++i)
    if (ids[i] < 0 || ids[i] >= vocab)
      fail(ErrorKind::input,
           "the data holds token id {}; expected ids in [0, {}), the model's vocabulary; prepare it with this model's "
           "tokenizer",
           ids[i], vocab);
}

StagePlan stage_plan(const Layout& layout, const ParamLayout& params, const MeshPlace& place) {
  const PipelineShape shape = layout.pipeline();
  const std::vector<Action> actions = pipeline_actions(shape, static_cast<int>(place.pp));
  std::vector<Layout::Layers> chunks;
  int64_t local = 0;
  for (int64_t c = 0; c < layout.vpp; ++c) {
    const Layout::Layers layers = layout.layers_of(place.pp, c);
    chunks.push_back({.begin = local, .end = local + layers.end - layers.begin});
    local = chunks.back().end;
  }
  return {.layout = &params,
          .chunks = chunks,
          .live = live_of(actions, static_cast<int>(layout.vpp)),
          .split_backward = layout.schedule == ScheduleKind::zb_h1,
          .recompute = layout.recompute,
          .recompute_layers = layout.recompute_layers == 0 ? local : layout.recompute_layers,
          .max_rows = layout.micro_batch * layout.seq_len,
          .max_seqs = layout.micro_batch,
          .max_position = layout.seq_len,
          .head_rows = kHeadRows,
          .kept_losses = layout.micro_batches()};
}

}  // namespace

MeshShape mesh_shape(const Layout& layout, const ModelSpec& model, int64_t ranks_per_node) {
  return {.tp = layout.tp,
          .dp = layout.dp,
          .pp = layout.pp,
          .shard = zero_ranks(layout, ranks_per_node),
          .kv_share = kv_share(model, layout.tp)};
}

ModelPart part_of(const Layout& layout, const MeshPlace& place) {
  ModelPart part;
  part.tp = {.size = layout.tp, .rank = place.tp};
  for (int64_t c = 0; c < layout.vpp; ++c) {
    const Layout::Layers layers = layout.layers_of(place.pp, c);
    for (int64_t l = layers.begin; l < layers.end; ++l) part.layers.push_back(l);
  }
  part.embedding = place.pp == 0;
  part.head = place.pp + 1 == layout.pp;
  return part;
}

TrainStep::TrainStep(const StepSettings& settings, const Exec& exec, Mesh& mesh,
                     const std::shared_ptr<CommRecord>& record, Arena& arena)
    : settings_(settings),
      exec_(exec),
      mesh_(mesh),
      record_(record),
      layout_(settings.spec, part_of(settings.layout, mesh.place)),
      shards_(layout_, mesh.shard->size(), mesh.shard->rank()),
      tp_({.sequence_parallel = settings.layout.sp,
           .max_rows = settings.layout.micro_batch * settings.layout.seq_len,
           .width = settings.spec.width,
           .training = true},
          exec, *mesh.tp, arena),
      weights_(settings.layout.zero, layout_, shards_, mesh, exec, arena),
      optimizer_(layout_, shards_, settings.adam, arena, exec.stream.threads),
      grads_({.zero = settings.layout.zero, .sequence_parallel = settings.layout.sp}, layout_, shards_, mesh, exec,
             arena),
      norm_(settings.layout.zero, layout_, shards_, mesh, arena),
      stage_(stage_plan(settings.layout, layout_, mesh.place), exec, tp_, arena,
             [this] {
               mesh_.replica->progress();
               mesh_.shard->progress();
               mesh_.pp_forward->progress();
               mesh_.pp_backward->progress();
             }),
      pipeline_(settings.layout, mesh, stage_, *record),
      host_(exec, arena.device()),
      local_samples_(settings.layout.global_batch / settings.layout.dp) {
  const Layout& l = settings.layout;
  const auto take = [&](int64_t n) { return arena.take_mirrored<int32_t>(n, MemoryOwner::data); };
  ids_ = take(local_samples_ * l.seq_len);
  targets_ = take(local_samples_ * l.seq_len);
  pos_ = take(l.micro_batch * l.seq_len);
  cu_seqlens_ = take(l.micro_batch + 1);
  for (int64_t s = 0; s <= l.micro_batch; ++s) cu_seqlens_.host[s] = static_cast<int32_t>(s * l.seq_len);
  for (int64_t r = 0; r < l.micro_batch * l.seq_len; ++r) pos_.host[r] = static_cast<int32_t>(r % l.seq_len);
  upload(pos_, l.micro_batch * l.seq_len);
  upload(cu_seqlens_, l.micro_batch + 1);
}

void TrainStep::upload(const Mirrored<int32_t>& array, int64_t n) const {
  exec_.ops.upload({.device = array.device, .host = array.host, .bytes = n * static_cast<int64_t>(sizeof(int32_t))},
                   exec_.stream);
}

// Returns when all that was put on the stream is done, as every Read does.
void TrainStep::wait() const {
  int64_t unused = 0;
  exec_.ops.read({.host = &unused, .device = cu_seqlens_.device, .n = 1, .t = DType::i64}, exec_.stream);
}

// What follows is this part of the step: for what is said of its ops and its collectives, and for a trace.
void TrainStep::enter(const char* phase, StepTrace* trace) const {
  if (trace != nullptr) {
    wait();
    trace->phase(phase);
  }
  record_->phase = phase;
  if (exec_.stream.log != nullptr) exec_.stream.log->scope = phase;
}

AttnBatch TrainStep::batch_of(int64_t samples) const {
  return {.pos = pos_.device,
          .cu_seqlens = cu_seqlens_.device,
          .n_seq = samples,
          .rows = samples * settings_.layout.seq_len};
}

// Of what is charged to compute: waiting for peers is communication, or the pipeline's bubble.
void TrainStep::charge(StepClock& clock, double exposed_before, double waited) const {
  const double exposed = record_->exposed_s - exposed_before;
  clock.mark(TimeCategory::compute);
  clock.move(TimeCategory::compute, TimeCategory::bubble, waited);
  clock.move(TimeCategory::compute, TimeCategory::communication, std::max(0.0, exposed - waited));
}

StepResult TrainStep::forward_backward(const StepInputs& inputs, const ReadSamples& read, StepClock& clock) {
  const Layout& l = settings_.layout;
  const int64_t n_local = local_samples_ * l.seq_len;
  enter("data", inputs.trace);
  const uint64_t digest =
      read(inputs.first_sample + mesh_.place.dp * local_samples_, local_samples_, ids_.host, targets_.host);
  check_ids(ids_.host, n_local, settings_.spec.vocab_size);
  upload(ids_, n_local);
  upload(targets_, n_local);
  clock.mark(TimeCategory::data);

  double exposed = record_->exposed_s;
  enter("counts", inputs.trace);
  const bool speaks = speaks_for_its_samples();
  int64_t counts[5] = {speaks ? count_valid(targets_.host, n_local) : 0, inputs.stop_asked ? 1 : 0,
                       speaks ? static_cast<int64_t>(digest) : 0, inputs.votes[0], inputs.votes[1]};
  mesh_.world->all_reduce(counts, 5, DType::i64, ReduceOp::sum);
  StepResult result{};
  result.valid_tokens = counts[0];
  result.stop = counts[1] > 0;
  result.fingerprint = static_cast<uint64_t>(counts[2]);
  result.votes = {counts[3], counts[4]};

  // Without a valid target every gradient is zero whatever the scale.
  const double d_scale = inputs.loss_scale / static_cast<double>(std::max<int64_t>(1, result.valid_tokens));
  const AttnBatch batch = batch_of(l.micro_batch);
  grads_.start(l.micro_batches());
  if (inputs.trace != nullptr) inputs.trace->phase("pipeline");
  pipeline_.run({.ids = ids_.device,
                 .targets = targets_.device,
                 .batch = batch,
                 .d_scale = static_cast<float>(d_scale),
                 .to = {.weights = weights_.source(), .grads = grads_},
                 .after_action = inputs.trace != nullptr ? std::function<void()>([this] { wait(); }) : nullptr});
  if (inputs.trace != nullptr) inputs.trace->add(pipeline_.timeline());
  // Here the host waits for what the stream was given, so that the times are those of the work.
  enter("losses", inputs.trace);
  wait();
  double loss_sum = stage_.take_loss();
  const double stalled = mesh_.pp_forward->take_stalled_s() + mesh_.pp_backward->take_stalled_s();
  record_->exposed_s += stalled;
  record_->add_stalls();
  charge(clock, exposed, pipeline_.waited_s() + stalled);
  exposed = record_->exposed_s;
  enter("gradients", inputs.trace);
  grads_.finish();
  // All tensor-parallel ranks of the last stage know the loss; the first speaks for them.
  loss_sum = mesh_.world->all_reduce_value(mesh_.place.tp == 0 ? loss_sum : 0.0, ReduceOp::sum);
  charge(clock, exposed, 0);
  result.loss = result.valid_tokens > 0 ? loss_sum / static_cast<double>(result.valid_tokens) : 0.0;
  return result;
}

StepResult TrainStep::run(const StepInputs& inputs, const ReadSamples& read, StepClock& clock) {
  StepResult result = forward_backward(inputs, read, clock);
  const double exposed = record_->exposed_s;
  enter("optimizer", inputs.trace);
  result.grad_norm = norm_(grads_, exec_) / inputs.loss_scale;
  record_->add_stalls();  // of the gradients: the norm was waited for
  result.finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  result.updated = result.finite && inputs.allow(result.loss, result.grad_norm);
  if (result.updated) {
    if (inputs.trace != nullptr) inputs.trace->phase("checkpoint");
    inputs.before_update();
    if (inputs.trace != nullptr) inputs.trace->phase("update");
    optimizer_.step(
        weights_, grads_,
        {.lr = inputs.lr, .grad_scale = clip_scale(result.grad_norm, settings_.clip_norm) / inputs.loss_scale}, exec_);
    weights_.updated();
  }
  charge(clock, exposed, 0);
  if (inputs.trace != nullptr) inputs.trace->phase("");
  record_->phase = "";
  return result;
}

double TrainStep::evaluate(const int32_t* ids, const int32_t* targets, int64_t n) {
  const AttnBatch batch = batch_of(n);
  check_ids(ids, batch.rows, settings_.spec.vocab_size);
  std::copy_n(ids, batch.rows, ids_.host);
  std::copy_n(targets, batch.rows, targets_.host);
  upload(ids_, batch.rows);
  upload(targets_, batch.rows);
  const double sum =
      pipeline_.evaluate({.ids = ids_.device, .target = targets_.device, .attn = batch}, weights_.source());
  wait();  // on every stage: the next batch goes where this one lies
  return sum;
}

}  // namespace rw
