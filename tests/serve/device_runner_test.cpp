// What only a device has in serving: the CPU's tokens, recorded steps, and a sampler that reads a few numbers of a row.
#include <doctest/doctest.h>

#include <random>
#include <utility>

#include "kernels/simt/cublaslt.cuh"
#include "libcore/base/rng.h"
#include "tests/serve/served.h"
#include "tests/serve/serving_device.h"
#include "tests/support/golden_model.h"

using namespace rw;
using test::serve_all;
using test::Served;
using test::ServedSpec;
using test::ServedWish;

namespace {

// Prompts of a few tokens, of which some share a beginning; some draw, all by their own seeds.
std::vector<ServedWish> wishes_of(const ModelSpec& model, int n, bool draw) {
  std::mt19937 rng(17);
  std::vector<ServedWish> wishes;
  for (int i = 0; i < n; ++i) {
    ServedWish w{.prompt = {5, 4, 3, 2, 1, 6, 7}, .max_tokens = 3 + i % 4, .arrives = i % 3};
    if (i % 2 == 0) w.prompt.clear();
    for (int k = 0; k < 1 + i % 5; ++k)
      w.prompt.push_back(static_cast<int32_t>(rng() % static_cast<unsigned>(model.vocab_size)));
    if (draw && i % 3 == 1) w.sampling = {.temperature = 1.2, .top_p = 0.9, .seed = rng()};
    if (draw && i % 3 == 2) w.sampling = {.temperature = 0.8, .seed = rng(), .top_logprobs = 2};
    wishes.push_back(std::move(w));
  }
  return wishes;
}

ServedSpec spec_of(const ModelSpec& model, DType t) {
  return {.runner = {.model = model, .precision = t, .kv_t = t, .quant = {}, .deterministic = true},
          .scheduler = {.n_pages = 60, .block_tokens = 4, .max_seqs = 6, .max_batch_tokens = 16}};
}

}  // namespace

TEST_CASE("device serving draws the CPU's greedy tokens, with weights of 32, 8 and 4 bits and cached ones of 8") {
  ModelSpec model = golden::load_golden("qwen2").spec;
  model.width = 64;  // whole groups of quantised weights
  model.ffn = 64;
  model.head_dim = 16;
  const test::RandomWeights weights(model, 3);
  const std::vector<ServedWish> wishes = wishes_of(model, 6, false);
  for (const WeightQuant& quant : {WeightQuant{}, WeightQuant{.format = WeightFormat::int8, .group = 64},
                                   WeightQuant{.format = WeightFormat::int4, .group = 32}}) {
    for (const bool int8_kv : {false, true}) {
      CAPTURE(quant.group);
      CAPTURE(int8_kv);
      ServedSpec spec = spec_of(model, DType::f32);
      spec.runner.quant = quant;
      if (int8_kv) spec.runner.kv_t = DType::i8;
      const auto on_device = serve_all(spec, weights, wishes).ids();
      spec.on_cpu = true;
      CHECK(on_device == serve_all(spec, weights, wishes).ids());
      CHECK(on_device[0] != on_device[1]);
    }
  }
}

TEST_CASE("device serving draws the CPU's greedy tokens of gpt2, whose GELU is made in its products") {
  ModelSpec model = golden::load_golden("gpt2").spec;
  model.width = 64;  // whole groups of quantised weights
  model.ffn = 64;
  model.heads = model.kv_heads = 4;
  model.head_dim = 16;
  const test::RandomWeights weights(model, 3);
  const std::vector<ServedWish> wishes = wishes_of(model, 6, false);
  for (const WeightQuant& quant : {WeightQuant{}, WeightQuant{.format = WeightFormat::int8, .group = 64}}) {
    CAPTURE(quant.group);
    ServedSpec spec = spec_of(model, DType::f32);
    spec.runner.quant = quant;
    const int64_t before = simt::cublaslt_counts().fused_gelu;
    const auto on_device = serve_all(spec, weights, wishes).ids();
    const bool fused = simt::cublaslt_counts().fused_gelu > before;
    CHECK(fused == (quant.format == WeightFormat::plain));
    spec.on_cpu = true;
    CHECK(on_device == serve_all(spec, weights, wishes).ids());
    CHECK(on_device[0] != on_device[1]);
  }
}

TEST_CASE("device serving: recorded steps, filled up to their buckets, give the bits of steps run one by one") {
  for (const auto& [name, t] : {std::pair("qwen2", DType::f32), std::pair("llama", DType::bf16)}) {
    CAPTURE(name);
    const golden::GoldenModel g = golden::load_golden(name);
    // Five short prompts at once that end one by one: steps of decodes alone, of 5, 4, 3, 2 and 1.
    std::vector<ServedWish> wishes = wishes_of(g.spec, 6, true);
    for (size_t i = 0; i < wishes.size(); ++i) {
      wishes[i].prompt.resize(1 + i % 2);
      wishes[i].max_tokens = 4 + 3 * static_cast<int64_t>(i);
      wishes[i].arrives = i == 5 ? 9 : 0;
    }
    ServedSpec spec = spec_of(g.spec, t);
    const Served recorded = serve_all(spec, *g.weights, wishes);
    spec.runner.records_steps = false;
    CHECK(recorded.drawn == serve_all(spec, *g.weights, wishes).drawn);
    spec.scheduler.max_seqs = 1;
    CHECK(recorded.drawn == serve_all(spec, *g.weights, wishes).drawn);
  }
}

TEST_CASE("device sampling gives the host's tokens for the same logits") {
  const auto comm = make_self_comm();
  for (const int64_t v : {61, 1009}) {
    std::vector<std::vector<float>> rows;
    std::vector<SamplingParams> params;
    std::vector<SampleRow> on_device, on_host;
    for (int i = 0; i < 120; ++i) {
      rows.emplace_back(static_cast<size_t>(v));
      fill_normal(rows.back().data(), v, 2, rng_key(static_cast<uint64_t>(i), "logits"), 0);
      SamplingParams p{.seed = static_cast<uint64_t>(i)};
      if (i % 6 == 0) p.temperature = 0;
      if (i % 6 == 1) p.top_k = 1 + i % 50;
      if (i % 6 == 2) p.top_p = 0.3 + 0.005 * i;
      if (i % 6 == 3) p.min_p = 0.2;
      if (i % 6 == 4) p.logit_bias = {{3, 5.F}};
      if (i % 4 == 1) p.top_logprobs = i % 5;
      params.push_back(p);
    }
    const VocabRange all{.begin = 0, .end = v};
    test::RankSampler device(v, all, *comm, 1, rows), host(v, all, *comm, 1, rows, true);
    for (size_t i = 0; i < rows.size(); ++i) {
      const SampleRow row{.logits = nullptr, .params = &params[i], .counts = nullptr, .position = 7, .n_output = 0};
      on_device.push_back(row);
      on_device.back().logits = device.row(i);
      on_host.push_back(row);
      on_host.back().logits = host.row(i);
    }
    std::vector<Sampled> got(rows.size()), want(rows.size());
    (*device).sample(on_device, got.data());
    (*host).sample(on_host, want.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i].id == want[i].id);
      CHECK(static_cast<double>(got[i].logprob) == doctest::Approx(static_cast<double>(want[i].logprob)).epsilon(2e-6));
      REQUIRE(got[i].top.size() == want[i].top.size());
      for (size_t k = 0; k < got[i].top.size(); ++k) CHECK(got[i].top[k].id == want[i].top[k].id);
    }
  }
}
