// What comes out of the model runner: transformers' tokens and log-probabilities, and the same bits however the work
// was cut, cached, interrupted or shared.
#include "libcore/serve/model_runner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "libcore/base/files.h"
#include "tests/serve/served.h"
#include "tests/support/golden_model.h"
#include "tests/support/team.h"

using namespace rw;
using test::serve_all;
using test::Served;
using test::ServedSpec;
using test::ServedWish;

namespace {

// A simulated device takes its time: fewer models and requests, the same laws.
#if defined(RW_TEST_CUDA)
const std::vector<const char*> kLawModels = {"llama"};
const std::vector<Family> kTpFamilies = {Family::llama};
const std::vector<int> kTpRanks = {2};
constexpr int kWishes = 12, kFewWishes = 5;
constexpr bool kFewTypes = true;
#else
const std::vector<const char*> kLawModels = {"gpt2", "llama", "qwen2"};
const std::vector<Family> kTpFamilies = {Family::gpt2, Family::llama, Family::qwen2};
const std::vector<int> kTpRanks = {2, 4};
constexpr int kWishes = 32, kFewWishes = 12;
constexpr bool kFewTypes = false;
#endif

ServedSpec spec_of(const golden::GoldenModel& g, DType t, SchedulerSpec scheduler = {}) {
  if (scheduler.n_pages == 0) scheduler.n_pages = 400;
  return {.runner = {.model = g.spec, .precision = t, .kv_t = t, .quant = {}, .deterministic = true},
          .scheduler = scheduler};
}

std::vector<ServedWish> some_wishes(const golden::GoldenModel& g, int n, unsigned seed) {
  const auto longest = static_cast<size_t>(g.spec.max_position);
  std::mt19937 rng(seed);
  const auto token = [&] { return static_cast<int32_t>(rng() % static_cast<unsigned>(g.spec.vocab_size)); };
  std::vector<int32_t> head;
  for (int i = 0; i < 19; ++i) head.push_back(token());
  std::vector<ServedWish> wishes;
  for (int i = 0; i < n; ++i) {
    ServedWish w{
        .prompt = {}, .max_tokens = 1 + static_cast<int64_t>(rng() % 12), .arrives = static_cast<int64_t>(rng() % 6)};
    if (i % 3 == 0) w.prompt = head;  // some share a prefix
    for (int64_t k = static_cast<int64_t>(rng() % 14); k >= 0; --k) w.prompt.push_back(token());
    w.prompt.resize(std::min(w.prompt.size(), longest - static_cast<size_t>(w.max_tokens)));
    if (i % 4 == 1) w.sampling = {.temperature = 0.9, .top_p = 0.8, .repetition_penalty = 1.2, .seed = rng()};
    if (i % 4 == 2) w.sampling = {.temperature = 1.3, .top_k = 7, .presence_penalty = 0.3, .seed = rng()};
    w.sampling.top_logprobs = i % 2;
    wishes.push_back(std::move(w));
  }
  return wishes;
}

}  // namespace

TEST_CASE("greedy tokens are those of transformers' generate, and log-probabilities within the bound") {
  for (const std::string& name : golden::golden_names()) {
    CAPTURE(name);
    const golden::GoldenModel g = golden::load_golden(name);
    const Json golden = Json::parse(
        read_file(std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/tests/golden/models/" + name + "/generate.json"));
    std::vector<ServedWish> wishes;
    for (const Json& c : golden.at("cases")) {
      wishes.push_back(
          {.prompt = c.at("prompt"), .max_tokens = static_cast<int64_t>(c.at("ids").size()), .prompt_logprobs = 4});
      wishes.back().sampling.top_logprobs = 4;
    }
    const ServedSpec spec =
        spec_of(g, DType::f32, {.n_pages = 100, .block_tokens = 5, .max_seqs = 4, .max_batch_tokens = 11});
    const Served served = serve_all(spec, *g.weights, wishes);
    for (size_t i = 0; i < wishes.size(); ++i) {
      CAPTURE(i);
      const Json& c = golden.at("cases")[i];
      CHECK(served.ids()[i] == c.at("ids").get<std::vector<int32_t>>());
      // Eight times the reference's own f32 error, as for the golden logits.
      const double bound = 8 * c.at("f32_error").get<double>();
      std::vector<Sampled> all = served.prompt[i];
      all.insert(all.end(), served.drawn[i].begin(), served.drawn[i].end());
      REQUIRE(all.size() == c.at("logprobs").size());
      double worst = 0;
      for (size_t k = 0; k < all.size(); ++k) {
        worst = std::max(worst, std::abs(all[k].logprob - c.at("logprobs")[k].get<double>()));
        REQUIRE(all[k].top.size() == 4);
        for (size_t j = 0; j < 4; ++j) {
          CHECK(all[k].top[j].id == c.at("top_ids")[k][j].get<int32_t>());
          worst = std::max(worst, std::abs(all[k].top[j].logprob - c.at("top_logprobs")[k][j].get<double>()));
        }
      }
      CHECK(worst <= bound);
    }
  }
}

TEST_CASE("alone, batched, shuffled, chunked, cached, preempted: the same tokens and the same bits") {
  for (const char* name : kLawModels)
    for (const DType t : {DType::f32, DType::bf16})
      for (const bool int8_kv : {false, true}) {
        if (kFewTypes && int8_kv != (t == DType::bf16)) continue;
        CAPTURE(name);
        CAPTURE(dtype_name(t));
        CAPTURE(int8_kv);
        const golden::GoldenModel g = golden::load_golden(name);
        const std::vector<ServedWish> wishes = some_wishes(g, kWishes, 5);
        const auto run = [&](const SchedulerSpec& s, int threads = 1) {
          ServedSpec spec = spec_of(g, t, s);
          if (int8_kv) spec.runner.kv_t = DType::i8;
          spec.runner.threads = threads;
          return serve_all(spec, *g.weights, wishes);
        };
        const Served alone = run({.n_pages = 300, .max_seqs = 1, .max_batch_tokens = 64, .prefix_cache = false});
        const Served batched = run({.n_pages = 300, .max_seqs = 32, .max_batch_tokens = 64, .prefix_cache = false});
        CHECK(batched.drawn == alone.drawn);
        CHECK(batched.steps < alone.steps);
        CHECK(run({.n_pages = 300, .max_seqs = 32, .max_batch_tokens = 64, .prefix_cache = false}, team(2)).drawn ==

              alone.drawn);
        const Served chunked =
            run({.n_pages = 300, .block_tokens = 3, .max_seqs = 5, .max_batch_tokens = 5, .prefix_cache = false});
        CHECK(chunked.drawn == alone.drawn);
        const Served cached = run({.n_pages = 300, .block_tokens = 4, .max_seqs = 8, .max_batch_tokens = 16});
        CHECK(cached.drawn == alone.drawn);
        CHECK(cached.stats.prefix_hits > 0);
        const Served preempted =
            run({.n_pages = 14, .block_tokens = 4, .max_seqs = 8, .max_batch_tokens = 16, .prefix_cache = false});
        CHECK(preempted.drawn == alone.drawn);
        CHECK(preempted.stats.preemptions > 0);
        // A cache so small that prefixes are evicted all the time.
        const Served evicting = run({.n_pages = 14, .block_tokens = 4, .max_seqs = 8, .max_batch_tokens = 16});
        CHECK(evicting.drawn == alone.drawn);
        CHECK(evicting.stats.evicted_pages > 0);
      }
}

TEST_CASE("the scores of a prompt are those of drawing it token by token") {
  const golden::GoldenModel g = golden::load_golden("llama");
  ServedWish drawn{.prompt = {3, 4, 5}, .max_tokens = 20};
  drawn.sampling.top_logprobs = 3;
  const Served first = serve_all(spec_of(g, DType::f32), *g.weights, {drawn});
  ServedWish scored{.prompt = {3, 4, 5}, .max_tokens = 0, .prompt_logprobs = 3};
  for (const Sampled& s : first.drawn[0]) scored.prompt.push_back(s.id);
  for (const int64_t rows : {3, 64}) {
    const Served again = serve_all(spec_of(g, DType::f32, {.n_pages = 50, .max_seqs = 3, .max_batch_tokens = rows}),
                                   *g.weights, {scored});
    REQUIRE(again.prompt[0].size() == 22);
    CHECK(std::vector<Sampled>(again.prompt[0].begin() + 2, again.prompt[0].end()) == first.drawn[0]);
  }
}

TEST_CASE("tensor-parallel ranks draw the same greedy tokens, with key/value heads split and shared") {
  for (const Family family : kTpFamilies)
    for (const int64_t kv_heads : {4, 2, 1}) {
      if (family == Family::gpt2 && kv_heads < 4) continue;
      ModelSpec spec{.family = family,
                     .vocab_size = 101,
                     .width = 24,
                     .layers = 2,
                     .heads = 4,
                     .kv_heads = kv_heads,
                     .head_dim = 6,
                     .ffn = 44,
                     .max_position = 64,
                     .qkv_bias = family != Family::llama,
                     .out_bias = family == Family::gpt2,
                     .mlp_bias = family == Family::gpt2,
                     .tied_head = family != Family::llama,
                     .init_std = 0.3};
      CAPTURE(family_name(family));
      CAPTURE(kv_heads);
      golden::GoldenModel g;
      g.spec = spec;
      g.weights = std::make_unique<test::RandomWeights>(spec, 3);
      std::vector<ServedWish> wishes = some_wishes(g, kFewWishes, 6);
      for (ServedWish& w : wishes) w.sampling = {.temperature = 0};
      for (const bool int8_kv : {false, true}) {
        const auto run = [&](int tp) {
          ServedSpec s =
              spec_of(g, DType::f32, {.n_pages = 30, .block_tokens = 4, .max_seqs = 6, .max_batch_tokens = 16});
          s.tp = tp;
          if (int8_kv) s.runner.kv_t = DType::i8;
          return serve_all(s, *g.weights, wishes).ids();
        };
        const auto one = run(1);
        size_t different = 0;
        for (size_t i = 1; i < one.size(); ++i) different += one[i] != one[0];
        CHECK(different > one.size() / 2);
        for (const int ranks : kTpRanks) CHECK(run(ranks) == one);
      }
    }
}
