#include "tests/serve/served.h"

#include <algorithm>

#include "libcore/comm/comm.h"
#include "libcore/serve/rank_plans.h"
#include "tests/serve/serving_device.h"

namespace rw::test {
namespace {

Served lead(const ServedSpec& spec, StepRunner& runner, const std::vector<ServedWish>& wishes) {
  Served served;
  served.drawn.resize(wishes.size());
  served.prompt.resize(wishes.size());
  Scheduler scheduler(spec.scheduler);
  size_t open = wishes.size();
  std::vector<bool> added(wishes.size());
  while (open > 0) {
    for (size_t i = 0; i < wishes.size(); ++i) {
      const ServedWish& w = wishes[i];
      if (added[i] || w.arrives > served.steps) continue;
      added[i] = true;
      scheduler.add({.id = static_cast<SequenceId>(i),
                     .prompt = w.prompt,
                     .max_tokens = w.max_tokens,
                     .sampling = w.sampling,
                     .prompt_logprobs = w.prompt_logprobs});
    }
    StepPlan plan;
    ++served.steps;
    if (!scheduler.next(plan)) continue;
    const StepOutput result = runner.run(plan);
    StepOutcome outcome;
    for (const SequenceResult& r : result.sequences)
      if (r.sampled) outcome.drawn.emplace_back(r.id, r.token.id);
    scheduler.done(outcome);
    for (const SequenceResult& r : result.sequences) {
      const auto i = static_cast<size_t>(r.id);
      served.prompt[i].insert(served.prompt[i].end(), r.prompt.begin(), r.prompt.end());
      if (r.sampled) served.drawn[i].push_back(r.token);
      const bool all = static_cast<int64_t>(served.drawn[i].size()) == wishes[i].max_tokens,
                 fed = scheduler.view(r.id).fed >= static_cast<int64_t>(wishes[i].prompt.size());
      if (!all || !fed) continue;
      scheduler.end(r.id);
      --open;
    }
  }
  served.stats = scheduler.stats();
  return served;
}

}  // namespace

RandomWeights::RandomWeights(const ModelSpec& spec, uint64_t seed)
    : layout_(spec), values_(static_cast<size_t>(layout_.total())) {
  init_params(layout_, values_.data(), seed);
  for (const LocalParam& p : layout_.params())
    tensors_.push_back({.name = p.name, .dtype = DType::f32, .shape = p.shape});
}

void RandomWeights::read(const std::string& name, const Box& box, DType, void* dst) const {
  for (const LocalParam& p : layout_.params())
    if (p.name == name)
      for_each_run(box, whole(p.shape), box, [&](int64_t from, int64_t to, int64_t n) {
        std::copy_n(values_.data() + p.slice.offset + from, n, static_cast<float*>(dst) + to);
      });
}

Served serve_all(ServedSpec spec, const TensorSource& weights, const std::vector<ServedWish>& wishes) {
  RunnerSpec& r = spec.runner;
  r.n_pages = spec.scheduler.n_pages;
  r.page_tokens = spec.scheduler.block_tokens;
  r.max_seqs = spec.scheduler.max_seqs;
  r.max_rows = spec.scheduler.max_batch_tokens;
  if (r.max_len == 0) r.max_len = r.model.max_position;
  Served served;
  run_thread_ranks(spec.tp, [&](Comm& comm) {
    const RankDevice on(comm, spec.on_cpu);
    Comm& ranks = on.ranks(comm);
    RunnerSpec mine = r;
    mine.device = on.device.get();
    auto runner = std::make_unique<ModelRunner>(mine, ranks);
    runner->load(weights);
    if (comm.rank() > 0) return follow_plans(*runner, ranks);
    const std::unique_ptr<StepRunner> leader = make_lead_runner(std::move(runner), ranks);
    served = lead(spec, *leader, wishes);
    leader->run({.stop = true});
  });
  return served;
}

}  // namespace rw::test
