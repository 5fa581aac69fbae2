#include "libcore/serve/generate.h"

#include <algorithm>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/serve/scheduler.h"

namespace rw {
namespace {

int64_t pages_of(const GeneratorSpec& spec) { return (spec.max_tokens + spec.page_tokens - 1) / spec.page_tokens; }

}  // namespace

Generator::Generator(const GeneratorSpec& spec, const TensorSource& weights) : spec_(spec), self_(make_self_comm()) {
  spec_.prefill_chunk = std::min(spec.prefill_chunk, spec.max_tokens);
  runner_ = std::make_unique<ModelRunner>(RunnerSpec{.model = spec.model,
                                                     .precision = spec.precision,
                                                     .kv_t = spec.precision,
                                                     .quant = {},
                                                     .threads = spec.threads,
                                                     .max_rows = spec_.prefill_chunk,
                                                     .max_seqs = 1,
                                                     .max_len = spec.max_tokens,
                                                     .page_tokens = spec.page_tokens,
                                                     .n_pages = pages_of(spec),
                                                     .device = spec.device},
                                          *self_);
  runner_->load(weights);
}

GenerateReport Generator::generate(const GenerateRequest& request, const std::function<bool(int32_t)>& on_token) {
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt > spec_.max_tokens)
    fail(ErrorKind::input, "{} tokens do not fit: the longest sequence is {}", n_prompt, spec_.max_tokens);
  GenerateReport report{.prompt_tokens = n_prompt, .new_tokens = 0, .prefill_s = 0, .decode_s = 0, .stopped = false};
  // The last token drawn needs no place: it is not fed.
  const int64_t most = std::min(request.max_new_tokens, spec_.max_tokens - n_prompt + 1);
  Scheduler scheduler({.n_pages = pages_of(spec_),
                       .block_tokens = spec_.page_tokens,
                       .max_seqs = 1,
                       .max_batch_tokens = spec_.prefill_chunk,
                       .prefix_cache = false});
  constexpr SequenceId kOne = 0;
  scheduler.add({.id = kOne, .prompt = request.prompt, .max_tokens = most, .sampling = request.sampling});
  const double start = now_s();
  double first_token = 0;
  StepPlan plan;
  while (report.new_tokens < most && scheduler.next(plan)) {
    const StepOutput result = runner_->run(plan);
    StepOutcome outcome;
    for (const SequenceResult& r : result.sequences)
      if (r.sampled) outcome.drawn.emplace_back(r.id, r.token.id);
    scheduler.done(outcome);
    if (outcome.drawn.empty()) continue;
    if (first_token == 0) first_token = now_s();
    const int32_t id = outcome.drawn.front().second;
    report.stopped = request.stop_at_end && (id == request.stop_id || spec_.model.ends_text(id));
    if (report.stopped) break;
    ++report.new_tokens;
    if (!on_token(id)) break;
  }
  scheduler.end(kOne);
  runner_->run({.step = plan.step + 1, .ends = {kOne}});
  const double end = now_s();
  report.prefill_s = (first_token > 0 ? first_token : end) - start;
  report.decode_s = end - start - report.prefill_s;
  return report;
}

}  // namespace rw
