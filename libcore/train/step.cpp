#include "libcore/train/step.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"

namespace rw {
namespace {

// Logits of this many rows are held at once: enough for the products to run at full speed, small enough to stay cheap.
constexpr int64_t kHeadRows = 1024;

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

}  // namespace

TrainStep::TrainStep(const StepSettings& settings, const Exec& exec, Comm& dp, Arena& arena)
    : settings_(settings),
      exec_(exec),
      dp_(dp),
      layout_(settings.spec),
      params_(arena.take_n<float>(layout_.total(), MemoryOwner::weights, exec.stream.threads)),
      weights_(layout_, params_, WeightUse::training, exec, arena),
      decoder_({.spec = settings.spec,
                .max_rows = settings.micro_batch * settings.seq_len,
                .max_seqs = settings.micro_batch,
                .max_position = settings.seq_len,
                .use = WeightUse::training,
                .head_rows = kHeadRows},
               exec, arena),
      optimizer_(layout_, settings.adam, arena, exec.stream.threads),
      sink_(layout_, dp),
      local_samples_(settings.global_batch / dp.size()),
      ids_(arena.take_n<int32_t>(local_samples_ * settings.seq_len, MemoryOwner::data)),
      targets_(arena.take_n<int32_t>(local_samples_ * settings.seq_len, MemoryOwner::data)) {
  arena.adopt(sink_.bytes(), MemoryOwner::gradients);
  for (int64_t s = 0; s <= settings.micro_batch; ++s) cu_seqlens_.push_back(static_cast<int32_t>(s * settings.seq_len));
  for (int64_t s = 0; s < settings.micro_batch; ++s)
    for (int64_t t = 0; t < settings.seq_len; ++t) pos_.push_back(static_cast<int32_t>(t));
}

AttnBatch TrainStep::batch_of(int64_t samples) const {
  return {.pos = pos_.data(), .cu_seqlens = cu_seqlens_.data(), .n_seq = samples, .rows = samples * settings_.seq_len};
}

StepResult TrainStep::run(int64_t first_sample, double lr, const ReadSamples& read, bool stop_asked, StepClock& clock) {
  const int64_t n_local = local_samples_ * settings_.seq_len;
  const uint64_t digest = read(first_sample + dp_.rank() * local_samples_, local_samples_, ids_, targets_);
  check_ids(ids_, n_local, settings_.spec.vocab_size);
  clock.mark(TimeCategory::data);

  int64_t counts[3] = {count_valid(targets_, n_local), stop_asked ? 1 : 0, static_cast<int64_t>(digest)};
  dp_.all_reduce(counts, 3, DType::i64, ReduceOp::sum);
  clock.mark(TimeCategory::communication);
  StepResult result{};
  result.valid_tokens = counts[0];
  result.stop = counts[1] > 0;
  result.fingerprint = static_cast<uint64_t>(counts[2]);

  // Without a valid target every gradient is zero whatever the scale.
  const float d_scale = 1.0f / static_cast<float>(std::max<int64_t>(1, result.valid_tokens));
  const int64_t n_micro = local_samples_ / settings_.micro_batch;
  const AttnBatch batch = batch_of(settings_.micro_batch);
  double loss_sum = 0;
  for (int64_t m = 0; m < n_micro; ++m) {
    const int64_t offset = m * batch.rows;
    sink_.start(m, n_micro);
    decoder_.forward(ids_ + offset, batch, weights_);
    loss_sum += decoder_.loss_and_backward(ids_ + offset, targets_ + offset, d_scale, batch, weights_, sink_, layout_,
                                           [&] { dp_.progress(); });
  }
  clock.mark(TimeCategory::compute);
  sink_.wait();
  loss_sum = dp_.all_reduce_value(loss_sum, ReduceOp::sum);
  clock.mark(TimeCategory::communication);

  result.loss = result.valid_tokens > 0 ? loss_sum / static_cast<double>(result.valid_tokens) : 0.0;
  result.grad_norm = optimizer_.grad_norm(sink_.grads(), exec_);
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (!result.skipped) {
    optimizer_.step(params_, sink_.grads(), lr, clip_scale(result.grad_norm, settings_.clip_norm), exec_);
    weights_.refresh(exec_);
  }
  clock.mark(TimeCategory::compute);
  return result;
}

double TrainStep::evaluate(const int32_t* ids, const int32_t* targets, int64_t n) {
  const AttnBatch batch = batch_of(n);
  check_ids(ids, batch.rows, settings_.spec.vocab_size);
  decoder_.forward(ids, batch, weights_);
  return decoder_.loss(targets, batch, weights_);
}

}  // namespace rw
