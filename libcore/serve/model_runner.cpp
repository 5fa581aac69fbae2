#include "libcore/serve/model_runner.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "libcore/base/check.h"

namespace rw {
namespace {

ModelPart share_of(const ModelSpec& spec, const Comm& tp) {
  ModelPart part = whole_model(spec);
  part.tp = {.size = tp.size(), .rank = tp.rank()};
  return part;
}

DeviceMemory* memory_of(const RunnerSpec& spec) { return spec.device != nullptr ? spec.device->memory() : nullptr; }

Exec exec_of(const RunnerSpec& spec) {
  const Ops& ops = spec.backend != nullptr  ? *spec.backend
                   : spec.device != nullptr ? spec.device->ops()
                                            : this_cpu_ops();
  Stream stream = spec.device != nullptr ? spec.device->stream() : Stream{};
  stream.threads = spec.threads;
  return {.ops = ops, .stream = stream, .t = spec.precision, .deterministic = spec.deterministic};
}

StepShape most_of(const RunnerSpec& spec) {
  return {
      .rows = spec.max_rows, .seqs = spec.max_seqs, .pages = (spec.max_len + spec.page_tokens - 1) / spec.page_tokens};
}

// The power of two that n falls under, of those up to `most`.
int64_t bucket_of(int64_t n, int64_t most) {
  return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))), most);
}

}  // namespace

ModelRunner::ModelRunner(const RunnerSpec& spec, Comm& tp, ArenaKind kind)
    : spec_(spec),
      tp_(tp),
      arena_(kind == ArenaKind::count ? Arena(kind) : Arena(memory_of(spec))),
      host_arena_(kind == ArenaKind::count ? Arena(kind) : Arena(memory_of(spec))),
      exec_(exec_of(spec)),
      layout_(spec.model, share_of(spec.model, tp)),
      vocab_(vocab_range(spec.model, layout_.part().tp)),
      logit_rows_(std::min(spec.max_rows, spec.max_seqs)),
      batch_(most_of(spec), arena_) {
  const std::string fault = tp_fault(spec.model, tp.size());
  CHECK(fault.empty(), "%s", fault.c_str());
  const int64_t v = vocab_.end - vocab_.begin;
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
  chosen_ = arena_.take_mirrored<int32_t>(logit_rows_, MemoryOwner::data);
  logits_ = arena_.take_n<float>(logit_rows_ * v, MemoryOwner::activations, spec.threads);
  std::unique_ptr<DeviceLogits> on_device;
  if (memory_of(spec) != nullptr)
    on_device = std::make_unique<DeviceLogits>(
        DeviceLogits::Plan{.logits = logits_, .rows = logit_rows_, .columns = v, .host = &host_arena_}, exec_, arena_);
  sampler_ = std::make_unique<Sampler>(spec.model.vocab_size, vocab_, tp, spec.threads, std::move(on_device));
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
  weights_->read(weights, exec_, memory_of(spec_));
  // Last: what weights pass through on their way to a device is free again.
  kv_ = std::make_unique<KvPages>(kv_spec(), arena_);
  if (memory_of(spec_) == nullptr) kv_->touch(spec_.threads);
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
         .counted = s.sampling.looks_at_counts(),
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

StepShape ModelRunner::shape_of(const StepPlan& plan) const {
  StepShape s{.rows = plan.n_tokens(), .seqs = static_cast<int64_t>(plan.rows.size())};
  for (const SequenceRows& r : plan.rows)
    s.pages = std::max(s.pages, static_cast<int64_t>(sequences_.at(r.id).pages.size()));
  if (!is_recordable(plan)) return s;
  s.rows = s.seqs = bucket_of(s.seqs, logit_rows_);
  s.pages = bucket_of(s.pages, most_of(spec_).pages);
  return s;
}

// Every sequence has one row and draws from it.
bool ModelRunner::is_recordable(const StepPlan& plan) const {
  return spec_.records_steps && memory_of(spec_) != nullptr &&
         std::all_of(plan.rows.begin(), plan.rows.end(), [](const SequenceRows& r) { return r.n == 1 && r.sample; });
}

void ModelRunner::fill(const StepPlan& plan) {
  const StepShape shape = shape_of(plan);
  batch_.place(shape);
  const StepArrays::Views& to = batch_.host();
  int64_t row = 0;
  for (size_t s = 0; s < plan.rows.size(); ++s) {
    const SequenceRows& r = plan.rows[s];
    const Sequence& q = sequences_.at(r.id);
    CHECK(r.first + r.n <= static_cast<int64_t>(q.tokens.size()) &&
              r.first + r.n <= static_cast<int64_t>(q.pages.size()) * spec_.page_tokens,
          "rows up to %lld of sequence %lld, which has %zu tokens and %zu pages", static_cast<long long>(r.first + r.n),
          static_cast<long long>(r.id), q.tokens.size(), q.pages.size());
    to.starts[s] = static_cast<int32_t>(row);
    to.context[s] = static_cast<int32_t>(r.first + r.n);
    for (int64_t p = r.first; p < r.first + r.n; ++p, ++row) {
      to.ids[row] = q.tokens[static_cast<size_t>(p)];
      to.pos[row] = static_cast<int32_t>(p);
      to.slot[row] = q.pages[static_cast<size_t>(p / spec_.page_tokens)] * spec_.page_tokens + p % spec_.page_tokens;
    }
    int32_t* const table = to.table + static_cast<int64_t>(s) * shape.pages;
    std::fill(std::copy(q.pages.begin(), q.pages.end(), table), table + shape.pages, 0);
  }
  // What fills up a recorded batch: rows that are stored nowhere, and sequences that have none of them.
  for (int64_t r = row; r < shape.rows; ++r) {
    to.ids[r] = to.pos[r] = 0;
    to.slot[r] = -1;
  }
  for (auto s = static_cast<int64_t>(plan.rows.size()); s <= shape.seqs; ++s) to.starts[s] = static_cast<int32_t>(row);
  for (auto s = static_cast<int64_t>(plan.rows.size()); s < shape.seqs; ++s) {
    to.context[s] = 0;
    std::fill_n(to.table + s * shape.pages, shape.pages, 0);
  }
}

void ModelRunner::forward() {
  batch_.upload(exec_);
  const StepArrays::Views& at = batch_.device();
  const StepShape& shape = batch_.shape();
  const auto pages = [&](int64_t layer) {
    PagedKv kv = kv_->layer(layer);
    kv.slot = at.slot;
    kv.page_table = at.table;
    kv.context_len = at.context;
    kv.max_pages = shape.pages;
    return kv;
  };
  decoder_->forward_paged(at.ids, {.pos = at.pos, .cu_seqlens = at.starts, .n_seq = shape.seqs, .rows = shape.rows},
                          pages, *weights_);
}

// Of the first n chosen rows.
void ModelRunner::make_logits(int64_t n) {
  exec_.ops.upload({.device = chosen_.device, .host = chosen_.host, .bytes = n * static_cast<int64_t>(sizeof(int32_t))},
                   exec_.stream);
  decoder_->logits(chosen_.device, n, logits_, *weights_);
}

void ModelRunner::forward_recorded() {
  const StepShape shape = batch_.shape();
  std::iota(chosen_.host, chosen_.host + shape.rows, 0);
  const auto step = [&] {
    forward();
    make_logits(shape.rows);
  };
  std::unique_ptr<RecordedOps>& recorded = recorded_[shape];
  if (recorded != nullptr) tp_.replay([&] { recorded->replay(); });
  else recorded = spec_.device->record(step);
}

void ModelRunner::score_prompt(const SequenceRows& rows, int64_t first_row, std::vector<Sampled>& out) {
  const Sequence& q = sequences_.at(rows.id);
  const int64_t n = std::min(rows.n, q.n_prompt - 1 - rows.first);  // rows whose next token is a prompt's
  for (int64_t done = 0; done < n; done += logit_rows_) {
    const int64_t part = std::min(logit_rows_, n - done);
    std::iota(chosen_.host, chosen_.host + part, static_cast<int32_t>(first_row + done));
    make_logits(part);
    const size_t at = out.size();
    out.resize(at + static_cast<size_t>(part));
    sampler_->score(logits_,
                    std::span(q.tokens).subspan(static_cast<size_t>(rows.first + done + 1), static_cast<size_t>(part)),
                    q.prompt_logprobs, out.data() + at);
  }
}

void ModelRunner::draw(const StepPlan& plan, StepOutput& result) {
  sample_rows_.clear();
  const int64_t v = vocab_.end - vocab_.begin;
  for (size_t s = 0; s < plan.rows.size(); ++s) {
    const SequenceRows& r = plan.rows[s];
    if (!r.sample) continue;
    const Sequence& q = sequences_.at(r.id);
    const auto at = static_cast<int64_t>(sample_rows_.size());
    chosen_.host[at] = batch_.host().starts[s + 1] - 1;
    sample_rows_.push_back({.logits = logits_ + at * v,
                            .params = &q.sampling,
                            .counts = q.counted ? &q.counts : nullptr,
                            .position = static_cast<int64_t>(q.tokens.size()),
                            .n_output = static_cast<int64_t>(q.tokens.size()) - q.n_prompt});
  }
  if (sample_rows_.empty()) return;
  if (!is_recordable(plan)) make_logits(static_cast<int64_t>(sample_rows_.size()));
  sampled_.resize(sample_rows_.size());
  sampler_->sample(sample_rows_, sampled_.data());
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

// Weights are read by the thread that makes the runner, steps are run by the engine's.
void ModelRunner::enter_thread() {
  if (spec_.device == nullptr || thread_ == std::this_thread::get_id()) return;
  spec_.device->bind_thread();
  thread_ = std::this_thread::get_id();
}

StepOutput ModelRunner::run(const StepPlan& plan) {
  enter_thread();
  take_news(plan);
  StepOutput result;
  if (plan.rows.empty()) return result;
  fill(plan);
  is_recordable(plan) ? forward_recorded() : forward();
  for (size_t s = 0; s < plan.rows.size(); ++s) {
    const SequenceRows& r = plan.rows[s];
    result.sequences.push_back({.id = r.id});
    if (sequences_.at(r.id).prompt_logprobs >= 0)
      score_prompt(r, batch_.host().starts[s], result.sequences.back().prompt);
  }
  draw(plan, result);
  // A step that draws nothing has not been waited for: what it takes is measured, and its arrays are filled again.
  if (spec_.device != nullptr) spec_.device->wait();
  return result;
}

}  // namespace rw
