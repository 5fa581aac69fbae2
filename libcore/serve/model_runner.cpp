#include "libcore/serve/model_runner.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {
namespace {

bool looks_at_counts(const SamplingParams& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

ModelPart share_of(const ModelSpec& spec, const Comm& tp) {
  ModelPart part = whole_model(spec);
  part.tp = {.size = tp.size(), .rank = tp.rank()};
  return part;
}

}  // namespace

ModelRunner::ModelRunner(const RunnerSpec& spec, Comm& tp, ArenaKind kind)
    : spec_(spec),
      tp_(tp),
      arena_(kind),
      exec_{.ops = spec.backend != nullptr ? *spec.backend : this_cpu_ops(),
            .stream = {.threads = spec.threads},
            .t = spec.precision,
            .deterministic = spec.deterministic},
      layout_(spec.model, share_of(spec.model, tp)),
      sampler_(spec.model.vocab_size, vocab_range(spec.model, layout_.part().tp), tp, spec.threads),
      vocab_(vocab_range(spec.model, layout_.part().tp)),
      logit_rows_(std::min(spec.max_rows, spec.max_seqs)) {
  const std::string fault = tp_fault(spec.model, tp.size());
  CHECK(fault.empty(), "%s", fault.c_str());
  weights_ = std::make_unique<ServingWeights>(layout_, spec.quant, exec_, arena_);
  decoder_ = std::make_unique<Decoder>(DecoderPlan{.spec = spec.model,
                                                   .max_rows = spec.max_rows,
                                                   .max_seqs = spec.max_seqs,
                                                   .max_position = spec.max_len,
                                                   .logit_rows = logit_rows_,
                                                   .quant = spec.quant,
                                                   .tp = &tp,
                                                   .paged = true},
                                       exec_, arena_);
  kv_ = std::make_unique<KvPages>(kv_spec(), arena_);
  logits_ = arena_.take_n<float>(logit_rows_ * (vocab_.end - vocab_.begin), MemoryOwner::activations, spec.threads);
}

KvPagesSpec ModelRunner::kv_spec() const {
  const BlockShape shape(spec_.model, tp_.size());
  return {.layers = spec_.model.layers,
          .kv_heads = shape.hkv,
          .head_dim = shape.d,
          .n_pages = spec_.n_pages,
          .page_tokens = spec_.page_tokens,
          .t = spec_.kv_t};
}

void ModelRunner::load(const TensorSource& weights) {
  weights_->read(weights, exec_);
  kv_->touch(spec_.threads);
}

void ModelRunner::take_news(const StepPlan& plan) {
  for (const SequenceId id : plan.ends) sequences_.erase(id);
  for (const SequenceStart& s : plan.starts) {
    const auto n_prompt = static_cast<int64_t>(s.tokens.size()) - s.n_output;
    const auto [it, fresh] = sequences_.try_emplace(s.id);
    CHECK(fresh, "sequence %lld starts twice", static_cast<long long>(s.id));
    Sequence& q = it->second;
    q = {.tokens = s.tokens,
         .n_prompt = n_prompt,
         .sampling = s.sampling,
         .prompt_logprobs = s.prompt_logprobs,
         .counts = {},
         .counted = looks_at_counts(s.sampling),
         .pages = {}};
    if (!q.counted) continue;
    for (size_t i = 0; i < s.tokens.size(); ++i)
      ++(static_cast<int64_t>(i) < n_prompt ? q.counts.prompt : q.counts.output)[s.tokens[i]];
  }
  for (const PageGrant& g : plan.grants) {
    std::vector<int32_t>& pages = sequences_.at(g.id).pages;
    pages.insert(pages.end(), g.pages.begin(), g.pages.end());
  }
}

void ModelRunner::forward(const StepPlan& plan) {
  ids_.clear();
  pos_.clear();
  slot_.clear();
  starts_.assign(1, 0);
  context_.clear();
  size_t max_pages = 0;
  for (const SequenceRows& r : plan.rows) max_pages = std::max(max_pages, sequences_.at(r.id).pages.size());
  table_.assign(plan.rows.size() * max_pages, 0);
  for (size_t s = 0; s < plan.rows.size(); ++s) {
    const SequenceRows& r = plan.rows[s];
    const Sequence& q = sequences_.at(r.id);
    CHECK(r.first + r.n <= static_cast<int64_t>(q.tokens.size()) &&
              r.first + r.n <= static_cast<int64_t>(q.pages.size()) * spec_.page_tokens,
          "rows up to %lld of sequence %lld, which has %zu tokens and %zu pages", static_cast<long long>(r.first + r.n),
          static_cast<long long>(r.id), q.tokens.size(), q.pages.size());
    for (int64_t p = r.first; p < r.first + r.n; ++p) {
      ids_.push_back(q.tokens[static_cast<size_t>(p)]);
      pos_.push_back(static_cast<int32_t>(p));
      slot_.push_back(q.pages[static_cast<size_t>(p / spec_.page_tokens)] * spec_.page_tokens + p % spec_.page_tokens);
    }
    starts_.push_back(static_cast<int32_t>(ids_.size()));
    context_.push_back(static_cast<int32_t>(r.first + r.n));
    std::copy(q.pages.begin(), q.pages.end(), table_.begin() + static_cast<std::ptrdiff_t>(s * max_pages));
  }
  const auto pages = [&](int64_t layer) {
    PagedKv kv = kv_->layer(layer);
    kv.slot = slot_.data();
    kv.page_table = table_.data();
    kv.context_len = context_.data();
    kv.max_pages = static_cast<int64_t>(max_pages);
    return kv;
  };
  decoder_->forward_paged(ids_.data(),
                          {.pos = pos_.data(),
                           .cu_seqlens = starts_.data(),
                           .n_seq = static_cast<int64_t>(plan.rows.size()),
                           .rows = static_cast<int64_t>(ids_.size())},
                          pages, *weights_);
}

void ModelRunner::score_prompt(const SequenceRows& rows, int64_t first_row, std::vector<Sampled>& out) {
  const Sequence& q = sequences_.at(rows.id);
  const int64_t n = std::min(rows.n, q.n_prompt - 1 - rows.first);  // rows whose next token is a prompt's
  for (int64_t done = 0; done < n; done += logit_rows_) {
    const int64_t part = std::min(logit_rows_, n - done);
    chosen_.clear();
    for (int64_t i = 0; i < part; ++i) chosen_.push_back(static_cast<int32_t>(first_row + done + i));
    decoder_->logits(chosen_.data(), part, logits_, *weights_);
    const size_t at = out.size();
    out.resize(at + static_cast<size_t>(part));
    sampler_.score(logits_,
                   std::span(q.tokens).subspan(static_cast<size_t>(rows.first + done + 1), static_cast<size_t>(part)),
                   q.prompt_logprobs, out.data() + at);
  }
}

void ModelRunner::draw(const StepPlan& plan, StepOutput& result) {
  chosen_.clear();
  sample_rows_.clear();
  const int64_t v = vocab_.end - vocab_.begin;
  for (size_t s = 0; s < plan.rows.size(); ++s) {
    const SequenceRows& r = plan.rows[s];
    if (!r.sample) continue;
    const Sequence& q = sequences_.at(r.id);
    sample_rows_.push_back({.logits = logits_ + static_cast<int64_t>(chosen_.size()) * v,
                            .params = &q.sampling,
                            .counts = q.counted ? &q.counts : nullptr,
                            .position = static_cast<int64_t>(q.tokens.size()),
                            .n_output = static_cast<int64_t>(q.tokens.size()) - q.n_prompt});
    chosen_.push_back(starts_[s + 1] - 1);
  }
  if (chosen_.empty()) return;
  decoder_->logits(chosen_.data(), static_cast<int64_t>(chosen_.size()), logits_, *weights_);
  sampled_.resize(chosen_.size());
  sampler_.sample(sample_rows_, sampled_.data());
  size_t next = 0;
  for (size_t s = 0; s < plan.rows.size(); ++s) {
    if (!plan.rows[s].sample) continue;
    Sampled& token = sampled_[next++];
    Sequence& q = sequences_.at(plan.rows[s].id);
    q.tokens.push_back(token.id);
    if (q.counted) ++q.counts.output[token.id];
    result.sequences[s].sampled = true;
    result.sequences[s].token = std::move(token);
  }
}

StepOutput ModelRunner::run(const StepPlan& plan) {
  take_news(plan);
  StepOutput result;
  if (plan.rows.empty()) return result;
  forward(plan);
  for (size_t s = 0; s < plan.rows.size(); ++s) {
    const SequenceRows& r = plan.rows[s];
    result.sequences.push_back({.id = r.id});
    if (sequences_.at(r.id).prompt_logprobs >= 0) score_prompt(r, starts_[s], result.sequences.back().prompt);
  }
  draw(plan, result);
  return result;
}

}  // namespace rw
