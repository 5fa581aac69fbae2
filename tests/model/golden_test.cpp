// Logits, loss and every gradient against transformers (tests/golden/models).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "libcore/device/arena.h"
#include "libcore/model/decoder.h"
#include "libcore/model/stage.h"
#include "tests/support/golden_model.h"

using namespace rw;
using golden::GoldenModel;

namespace {

class KeepGrads final : public GradSink {
 public:
  explicit KeepGrads(int64_t n) : grads(static_cast<size_t>(n), std::nanf("")) {}
  GradPlace open(int64_t group) override {
    return {.base = grads.data(), .write = opened.insert(group).second ? Write::overwrite : Write::accumulate};
  }
  void done(int64_t group) override { order.push_back(group); }
  std::vector<float> grads;
  std::vector<int64_t> order;
  std::set<int64_t> opened;
};

struct Run {
  double loss;
  std::vector<float> logits, grads;
  std::vector<int64_t> order;
};

Run run_model(const GoldenModel& g, DType t, const char* isa, int threads, int64_t head_rows) {
  Arena arena;
  const ParamLayout layout(g.spec);
  float* masters = arena.take_n<float>(layout.total(), MemoryOwner::weights);
  for (size_t i = 0; i < layout.params().size(); ++i)
    g.weights->read(layout.params()[i].name, whole(layout.params()[i].shape), DType::f32,
                    masters + layout.slice(i).offset);
  const Exec exec{.ops = cpu_ops(isa), .stream = {.threads = threads}, .t = t};
  ResidentWeights weights(layout, masters, WeightUse::training, exec, arena);
  weights.refresh(exec);
  const int64_t rows = g.batch * g.seq_len;
  Decoder decoder({.spec = g.spec, .max_rows = rows, .max_seqs = g.batch, .max_position = g.seq_len, .logit_rows = 1},
                  exec, arena);
  const auto self = make_self_comm();
  const TensorParallel tp({.max_rows = rows, .width = g.spec.width}, exec, *self, arena);
  Stage stage({.layout = &layout,
               .chunks = {{.begin = 0, .end = g.spec.layers}},
               .live = {{.activations = 1}},
               .max_rows = rows,
               .max_seqs = g.batch,
               .max_position = g.seq_len,
               .head_rows = head_rows},
              exec, tp, arena, [] {});
  std::vector<int32_t> pos, cu, picked(1);
  for (int64_t b = 0; b <= g.batch; ++b) cu.push_back(static_cast<int32_t>(b * g.seq_len));
  for (int64_t r = 0; r < rows; ++r) pos.push_back(static_cast<int32_t>(r % g.seq_len));
  const AttnBatch batch{.pos = pos.data(), .cu_seqlens = cu.data(), .n_seq = g.batch, .rows = rows};
  const int64_t valid = std::count_if(g.targets.begin(), g.targets.begin() + rows, [](int32_t x) { return x >= 0; });
  REQUIRE(valid > 0);
  REQUIRE(valid < rows);  // the goldens hold ignored targets

  Run out;
  decoder.forward(g.ids.data(), batch, weights);
  out.logits.resize(static_cast<size_t>(rows * g.spec.vocab_size));
  for (int64_t r = 0; r < rows; ++r) {
    picked[0] = static_cast<int32_t>(r);
    decoder.logits(picked.data(), 1, out.logits.data() + r * g.spec.vocab_size, weights);
  }
  KeepGrads sink(layout.total());
  const Stage::Batch all{.ids = g.ids.data(), .target = g.targets.data(), .attn = batch};
  const Stage::Sinks to{.weights = weights, .grads = sink};
  stage.embed({0, 0}, all, weights);
  stage.forward({0, 0}, all, weights);
  const double before = stage.loss({0, 0}, all, weights);
  stage.head_backward({0, 0}, all, 1.0f / static_cast<float>(valid), to);
  const double sum = stage.take_loss();
  CHECK(before == sum);
  stage.backward({0, 0}, all, to);
  out.loss = sum / static_cast<double>(valid);
  out.grads = sink.grads;
  out.order = sink.order;
  return out;
}

double worst_logit(const GoldenModel& g, const Run& run) {
  double worst = 0;
  for (size_t i = 0; i < run.logits.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(run.logits[i]) - g.logits_f64[i]));
  return worst;
}

template <typename T>
double worst_grad(const GoldenModel& g, const std::vector<T>& grads, std::string* where) {
  const ParamLayout layout(g.spec);
  const std::vector<double> scale = golden::layer_scale(layout, g.grad_f64);
  double worst = 0;
  for (size_t i = 0; i < layout.params().size(); ++i) {
    const Range s = layout.slice(i);
    for (int64_t k = s.offset; k < s.offset + s.n; ++k) {
      const double error =
          std::abs(static_cast<double>(grads[static_cast<size_t>(k)]) - g.grad_f64[static_cast<size_t>(k)]) / scale[i];
      if (!(error <= worst)) worst = error, *where = layout.params()[i].name;
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("f32: logits, loss and every gradient are as near to f64 as the reference's own f32, times 8") {
  for (const std::string& name : golden::golden_names())
    for (const char* isa : {"scalar", "avx2", "avx512", "avx512_bf16"}) {
      CAPTURE(name);
      CAPTURE(isa);
      const GoldenModel g = golden::load_golden(name);
      Run run;
      try {
        run = run_model(g, DType::f32, isa, 2, 13);
      } catch (const std::invalid_argument&) {
        continue;  // this CPU has not got it
      }
      CHECK(worst_logit(g, run) <= 8 * g.logits_f32_error);
      CHECK(std::abs(run.loss - g.loss_f64) <= 1e-5 * g.loss_f64);
      std::string where, reference_where;
      const double error = worst_grad(g, run.grads, &where);
      const double reference = worst_grad(g, g.grad_f32, &reference_where);
      CAPTURE(where);
      CAPTURE(reference);
      CHECK(error <= 8 * reference);
      CHECK(error <= 1e-5);
    }
}

TEST_CASE("bf16: errors against f64 stay within 4 times those of the reference under autocast") {
  for (const std::string& name : golden::golden_names()) {
    CAPTURE(name);
    const GoldenModel g = golden::load_golden(name);
    double largest = 0;
    for (const double x : g.logits_f64) largest = std::max(largest, std::abs(x));
    const Run run = run_model(g, DType::bf16, nullptr, 1, 1024);
    CHECK(worst_logit(g, run) <= 4 * g.bf16_logit_error * largest);
    CHECK(std::abs(run.loss - g.loss_f64) <= 4 * g.bf16_logit_error * largest);
    std::string where;
    const double error = worst_grad(g, run.grads, &where);
    CAPTURE(where);
    CHECK(error <= 4 * g.bf16_grad_error);
  }
}

TEST_CASE("the head in chunks of any size and any number of threads gives the same loss and gradients") {
  const GoldenModel g = golden::load_golden("qwen2");
  const Run one = run_model(g, DType::f32, nullptr, 1, 1024);
  for (const int threads : {1, 2})
    for (const int64_t head_rows : {1, 7, 34}) {
      const Run other = run_model(g, DType::f32, nullptr, threads, head_rows);
      CHECK(other.loss == one.loss);
      CHECK(other.logits == one.logits);
      double worst = 0;
      for (size_t i = 0; i < one.grads.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(one.grads[i]) - static_cast<double>(other.grads[i])));
      CHECK(worst <= 1e-6);  // the head's weight gradient is summed in other pieces
      CHECK(other.order == std::vector<int64_t>{4, 3, 2, 1, 0});  // final norm, blocks, embedding with the tied head
    }
}
