#include "libcore/plan/serve/serve_forward.h"

#include <utility>

#include "libcore/model/decoder.h"
#include "libcore/serve/serving_weights.h"

namespace rw {
namespace {

// A step may have as many; nothing is taken but numbers.
constexpr int64_t kMostRows = int64_t{1} << 24;

ModelSpec with_layers(ModelSpec model, int64_t layers) {
  model.layers = layers;
  return model;
}

ModelPart share_of(const ModelSpec& model, int64_t tp) {
  ModelPart part = whole_model(model);
  part.tp = {.size = tp, .rank = 0};
  return part;
}

}  // namespace

struct ServeForward::Impl {
  Impl(const RunnerSpec& runner, int64_t tp, int64_t layers)
      : model(with_layers(runner.model, layers)),
        kv_t(runner.kv_t),
        page_tokens(runner.page_tokens),
        layout(model, share_of(model, tp)),
        comm(watch(make_meta_comm(0, static_cast<int>(tp)), "tp", record)) {
    log.backend = runner.backend != nullptr ? runner.backend : &this_cpu_ops();
    log.calls = &calls;
    const Exec exec{.ops = meta_ops(),
                    .stream = {.threads = runner.threads, .log = &log},
                    .t = runner.precision,
                    .deterministic = runner.deterministic};
    weights = std::make_unique<ServingWeights>(layout, runner.quant, exec, arena);
    decoder = std::make_unique<Decoder>(DecoderPlan{.spec = model,
                                                    .max_rows = kMostRows,
                                                    .max_seqs = kMostRows,
                                                    .max_position = 1,
                                                    .logit_rows = kMostRows,
                                                    .quant = runner.quant,
                                                    .tp = comm.get(),
                                                    .paged = true},
                                        exec, arena);
  }
  void start() {
    calls.clear();
    for (auto& [key, count] : record->counts) count = {};
  }
  ForwardWork take() {
    ForwardWork work{.ops = calls, .comm = {}};
    for (const auto& [key, count] : record->counts)
      if (count.calls > 0) work.comm[key.second] = count;
    return work;
  }

  ModelSpec model;
  DType kv_t;
  int64_t page_tokens;
  Arena arena{ArenaKind::count};
  OpLog log;
  std::vector<OpCall> calls;
  std::shared_ptr<CommRecord> record = std::make_shared<CommRecord>();
  ParamLayout layout;
  std::unique_ptr<Comm> comm;
  std::unique_ptr<ServingWeights> weights;
  std::unique_ptr<Decoder> decoder;
};

ServeForward::ServeForward(const RunnerSpec& runner, int64_t tp, int64_t layers)
    : impl_(std::make_unique<Impl>(runner, tp, layers)) {}
ServeForward::~ServeForward() = default;

ForwardWork ServeForward::run(const std::vector<Span>& sequences) {
  std::vector<int32_t> starts = {0}, context;
  for (const Span& s : sequences) {
    starts.push_back(static_cast<int32_t>(starts.back() + s.rows));
    context.push_back(static_cast<int32_t>(s.context));
  }
  PagedKv pages{};
  pages.kv_t = impl_->kv_t;
  pages.page_tokens = impl_->page_tokens;
  pages.context_len = context.data();
  impl_->start();
  impl_->decoder->forward_paged(
      nullptr,
      {.pos = nullptr,
       .cu_seqlens = starts.data(),
       .n_seq = static_cast<int64_t>(sequences.size()),
       .rows = starts.back()},
      [&](int64_t) { return pages; }, *impl_->weights);
  return impl_->take();
}

ForwardWork ServeForward::logits(int64_t rows) {
  const std::vector<int32_t> chosen(static_cast<size_t>(rows), 0);
  impl_->start();
  impl_->decoder->logits(chosen.data(), rows, nullptr, *impl_->weights);
  return impl_->take();
}

}  // namespace rw
