#include "libcore/serve/generate.h"

#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"

namespace rw {

Generator::Generator(const GeneratorSpec& spec, const TensorSource& weights)
    : spec_(spec),
      exec_{.ops = this_cpu_ops(), .stream = {.threads = spec.threads}, .t = spec.precision},
      layout_(spec.model),
      masters_(arena_.take_n<float>(layout_.total(), MemoryOwner::weights, spec.threads)),
      logits_(static_cast<size_t>(spec.model.vocab_size)) {
  for (size_t i = 0; i < layout_.params().size(); ++i) {
    const Param& p = layout_.params()[i];
    weights.read(p.name, whole(p.shape), DType::f32, masters_ + layout_.slice(i).offset);
  }
  weights_ = std::make_unique<ResidentWeights>(layout_, masters_, WeightUse::inference, exec_, arena_);
  weights_->refresh(exec_);
  spec_.prefill_chunk = std::min(spec.prefill_chunk, spec.max_tokens);
  decoder_ = std::make_unique<Decoder>(DecoderPlan{.spec = spec.model,
                                                   .max_rows = spec_.prefill_chunk,
                                                   .max_seqs = 1,
                                                   .max_position = spec.max_tokens,
                                                   .logit_rows = 1},
                                       exec_, arena_);
  const int64_t n_pages = (spec.max_tokens + spec.page_tokens - 1) / spec.page_tokens;
  pool_ = std::make_unique<KvPool>(spec.model,
                                   KvPoolSpec{.n_pages = n_pages, .page_tokens = spec.page_tokens, .t = spec.precision},
                                   arena_, spec.threads);
}

void Generator::start_over() {
  for (const int32_t page : pages_) pool_->give(page);
  pages_.clear();
  context_ = 0;
}

void Generator::feed_chunk(const int32_t* ids, int64_t n) {
  pos_.clear();
  slot_.clear();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t position = context_ + i;
    if (position / spec_.page_tokens == static_cast<int64_t>(pages_.size())) pages_.push_back(pool_->take());
    pos_.push_back(static_cast<int32_t>(position));
    slot_.push_back(pages_[static_cast<size_t>(position / spec_.page_tokens)] * spec_.page_tokens +
                    position % spec_.page_tokens);
  }
  context_ += n;
  const int32_t q_start[2] = {0, static_cast<int32_t>(n)};
  const int32_t context_len = static_cast<int32_t>(context_);
  const auto pages = [&](int64_t layer) {
    return PagedKv{.k_pages = pool_->k_pages(layer),
                   .v_pages = pool_->v_pages(layer),
                   .slot = slot_.data(),
                   .page_table = pages_.data(),
                   .context_len = &context_len,
                   .max_pages = static_cast<int64_t>(pages_.size()),
                   .page_tokens = spec_.page_tokens};
  };
  decoder_->forward_paged(ids, {.pos = pos_.data(), .cu_seqlens = q_start, .n_seq = 1, .rows = n}, pages, *weights_);
}

const std::vector<float>& Generator::feed(const std::vector<int32_t>& ids, bool first) {
  if (first) start_over();
  const int64_t n = static_cast<int64_t>(ids.size());
  CHECK(n > 0, "nothing to feed");
  if (context_ + n > spec_.max_tokens)
    fail(ErrorKind::input, "{} tokens do not fit: {} are there and the longest sequence is {}", n, context_,
         spec_.max_tokens);
  int32_t last = 0;
  for (int64_t done = 0; done < n; done += spec_.prefill_chunk) {
    const int64_t chunk = std::min(spec_.prefill_chunk, n - done);
    feed_chunk(ids.data() + done, chunk);
    last = static_cast<int32_t>(chunk - 1);
  }
  decoder_->logits(&last, 1, logits_.data(), *weights_);
  return logits_;
}

GenerateReport Generator::generate(const GenerateRequest& request, const std::function<bool(int32_t)>& on_token) {
  GenerateReport report{.prompt_tokens = static_cast<int64_t>(request.prompt.size()),
                        .new_tokens = 0,
                        .prefill_s = 0,
                        .decode_s = 0,
                        .stopped = false};
  const double start = now_s();
  feed(request.prompt, true);
  report.prefill_s = now_s() - start;
  const int64_t vocab = spec_.model.vocab_size;
  while (report.new_tokens < request.max_new_tokens) {
    const int32_t id = sampler_.sample(logits_.data(), vocab, request.sampling, context_);
    if (request.stop_at_end && (id == request.stop_id || spec_.model.ends_text(id))) {
      report.stopped = true;
      break;
    }
    ++report.new_tokens;
    if (!on_token(id) || report.new_tokens == request.max_new_tokens || context_ == spec_.max_tokens) break;
    feed({id}, false);
  }
  report.decode_s = now_s() - start - report.prefill_s;
  return report;
}

}  // namespace rw
