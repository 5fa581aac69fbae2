#include "libcore/serve/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "libcore/base/error.h"
#include "libcore/base/rng.h"
#include "tests/serve/sampler_reference.h"
#include "tests/serve/serving_device.h"
#include "tests/support/team.h"

using namespace rw;

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Row {
  std::vector<float> z;
  SamplingParams params{};
  TokenCounts counts{};
  int64_t position = 0, n_output = 0;
};

// cuts (ranks + 1): the columns of each rank. All must give the same.
std::vector<Sampled> sample(const std::vector<Row>& rows, const std::vector<int64_t>& cuts, int threads = 1) {
  std::vector<std::vector<Sampled>> of_rank(cuts.size() - 1);
  run_thread_ranks(static_cast<int>(of_rank.size()), [&](Comm& comm) {
    comm.set_timeout(30);
    const size_t r = static_cast<size_t>(comm.rank());
    const VocabRange mine{.begin = cuts[r], .end = cuts[r + 1]};
    std::vector<std::vector<float>> parts;
    std::vector<SampleRow> in;
    for (const Row& row : rows) parts.emplace_back(row.z.begin() + mine.begin, row.z.begin() + mine.end);
    test::RankSampler sampler(cuts.back(), mine, comm, threads, parts);
    for (size_t i = 0; i < rows.size(); ++i)
      in.push_back({.logits = sampler.row(i),
                    .params = &rows[i].params,
                    .counts = &rows[i].counts,
                    .position = rows[i].position,
                    .n_output = rows[i].n_output});
    of_rank[r].resize(rows.size());
    (*sampler).sample(in, of_rank[r].data());
  });
  for (const auto& other : of_rank) REQUIRE(other == of_rank[0]);
  return of_rank[0];
}

std::vector<Sampled> sample(const std::vector<Row>& rows) {
  return sample(rows, {0, static_cast<int64_t>(rows[0].z.size())});
}

std::vector<float> noise(int64_t n, float std, uint64_t seed) {
  std::vector<float> z(static_cast<size_t>(n));
  fill_normal(z.data(), n, std, rng_key(seed, "logits"), 0);
  return z;
}

std::vector<std::vector<int64_t>> layouts(int64_t v) {
  return {{0, v}, even_cuts(v, 2), even_cuts(v, 3), even_cuts(v, 4), {0, 0, v / 3, v / 3, v}};
}

// Each row's draw against the reference, in all layouts.
void check_against_reference(const std::vector<Row>& rows) {
  for (const auto& cuts : layouts(static_cast<int64_t>(rows[0].z.size()))) {
    const std::vector<Sampled> got = sample(rows, cuts);
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      const auto p = ref::distribution(ref::after_rules(row.z, row.params, row.counts, row.n_output), row.params);
      const double u = random_uniform(rng_key(row.params.seed, "sample"), static_cast<uint64_t>(row.position));
      CAPTURE(i);
      CAPTURE(cuts.size());
      CAPTURE(got[i].id);
      CHECK(ref::draws_near(p, u, 2e-6).contains(got[i].id));
    }
  }
}

#if defined(RW_TEST_CUDA)  // a simulated device takes its time
const std::vector<int64_t> kWidths = {7, 1000};
const std::vector<float> kSpreads = {1.0f};
constexpr int64_t kPositions = 1, kTiePositions = 10;
#else
const std::vector<int64_t> kWidths = {7, 257, 1000, 5003};
const std::vector<float> kSpreads = {0.01f, 1.0f, 6.0f};
constexpr int64_t kPositions = 3, kTiePositions = 60;
#endif

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, -40.0f, 3.0f, 0.5f};
}  // namespace

TEST_CASE("greedy takes the lowest id among the largest, on any number of ranks") {
  for (const auto& cuts : layouts(6)) CHECK(sample({{.z = kLogits, .params = {.temperature = 0}}}, cuts)[0].id == 1);
  for (const int64_t v : {1, 7, 31, 32, 33, 257, 1000})
    for (const auto& cuts : layouts(v)) {
      std::vector<float> z = noise(v, 2, 5);
      const size_t first = static_cast<size_t>(v / 3), last = static_cast<size_t>(v - 1);
      z[first] = z[last] = 20;
      CHECK(sample({{.z = z, .params = {.temperature = 0}}}, cuts)[0].id == v / 3);
      z[last] = 21;
      CHECK(sample({{.z = z, .params = {.temperature = 0}}}, cuts)[0].id == v - 1);
    }
}

TEST_CASE("draws of every kind are the reference's, on any number of ranks") {
  const std::vector<SamplingParams> kinds = {
      {},
      {.temperature = 0.3},
      {.temperature = 3},
      {.temperature = 1e-6},
      {.temperature = 1e6},
      {.top_k = 1},
      {.top_k = 5},
      {.top_k = 100},
      {.top_k = 400},
      {.top_k = 1000000},
      {.top_p = 1e-9},
      {.top_p = 0.1},
      {.top_p = 0.5},
      {.top_p = 0.9},
      {.top_p = 0.999},
      {.min_p = 1},
      {.min_p = 0.2},
      {.min_p = 0.001},
      {.temperature = 2, .top_k = 40, .top_p = 0.8},
      {.temperature = 2, .top_k = 600, .top_p = 0.8},
      {.temperature = 2, .top_p = 0.7, .min_p = 0.05},
      {.temperature = 5, .top_k = 300, .top_p = 0.95, .min_p = 0.3},
  };
  for (const int64_t v : kWidths)
    for (const float std : kSpreads) {
      std::vector<Row> rows;
      for (size_t k = 0; k < kinds.size(); ++k)
        for (int64_t position = 0; position < kPositions; ++position) {
          rows.push_back({.z = noise(v, std, k), .params = kinds[k], .position = position});
          rows.back().params.seed = k;
        }
      check_against_reference(rows);
    }
}

TEST_CASE("a nucleus of thousands of tokens is the reference's") {
  std::vector<Row> rows;
  for (const float std : {0.3f, 1.5f, 3.0f})
    for (const SamplingParams& p : {SamplingParams{.top_p = 0.5}, SamplingParams{.top_p = 0.95},
                                    SamplingParams{.temperature = 3, .top_p = 0.9999},
                                    SamplingParams{.top_k = 5000, .top_p = 0.9}, SamplingParams{.min_p = 0.01}})
      rows.push_back({.z = noise(31999, std, 6), .params = p, .position = 1});
  check_against_reference(rows);
}

TEST_CASE("ties are cut by id wherever they lie") {
  std::vector<Row> rows;
  for (const SamplingParams& p : {SamplingParams{.top_k = 3}, SamplingParams{.top_p = 0.5},
                                  SamplingParams{.top_k = 333}, SamplingParams{.top_k = 500, .top_p = 0.31},
                                  SamplingParams{.min_p = 0.5}, SamplingParams{.top_p = 1e-9}, SamplingParams{}})
    for (int64_t position = 0; position < 5; ++position) {
      rows.push_back({.z = std::vector<float>(1000, 0.25f), .params = p, .position = position});
      std::vector<float> steps(1000);
      for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<float>(i % 3);
      rows.push_back({.z = steps, .params = p, .position = position});
    }
  // A few equal ones at the end of a large set, of which some are in.
  for (const SamplingParams& p : {SamplingParams{.top_k = 301}, SamplingParams{.temperature = 9, .top_p = 0.413}})
    for (int64_t position = 0; position < kTiePositions; ++position) {
      std::vector<float> rounded = noise(1000, 3, 12);
      for (float& z : rounded) z = std::round(z * 4) / 4;
      rows.push_back({.z = rounded, .params = p, .position = position});
    }
  check_against_reference(rows);
}

TEST_CASE("extreme logits are drawn from like others") {
  std::vector<float> one(300, -kInf), huge = noise(300, 1e30f, 3), tiny = noise(300, 1e-42f, 4), far(300, -3e38f);
  one[211] = -7;
  far[17] = 3e38f;
  std::vector<Row> rows;
  for (const std::vector<float>& z : {one, huge, tiny, far})
    for (const SamplingParams& p : {SamplingParams{}, SamplingParams{.temperature = 0}, SamplingParams{.top_p = 0.9},
                                    SamplingParams{.top_k = 200}, SamplingParams{.min_p = 0.1},
                                    SamplingParams{.temperature = 100, .top_k = 299, .top_p = 0.5}})
      rows.push_back({.z = z, .params = p, .position = 3});
  check_against_reference(rows);
  for (const Sampled& s : sample(std::vector<Row>(rows.begin(), rows.begin() + 6))) CHECK(s.id == 211);

  // Sets too large for a rank's best: their end is searched for among logits that differ by next to nothing, on both
  // sides of zero, or by more than a float's exponent tells.
  rows.clear();
  for (const float std : {1e-42f, 1e-20f, 1e-3f, 1e30f}) {
    std::vector<float> z = noise(3001, std, 8);
    for (size_t i = 0; i < z.size(); i += 3) z[i] = 0;
    for (size_t i = 1; i < z.size(); i += 30) z[i] = -kInf;
    for (const SamplingParams& p :
         {SamplingParams{.top_p = 0.5}, SamplingParams{.top_p = 0.97}, SamplingParams{.top_k = 700},
          SamplingParams{.top_k = 1999}, SamplingParams{.top_k = 1500, .top_p = 0.6}, SamplingParams{.min_p = 1e-4}})
      rows.push_back({.z = z, .params = p, .position = 5});
  }
  check_against_reference(rows);
}

TEST_CASE("bias, forbidden ends and penalties act on the logits as documented") {
  std::vector<Row> rows;
  const TokenCounts counts{.prompt = {{0, 2}, {3, 1}, {90, 4}}, .output = {{3, 2}, {50, 1}, {99, 7}}};
  const std::vector<SamplingParams> kinds = {
      {.logit_bias = {{5, 4.5f}, {99, -100.0f}, {0, 100.0f}}},
      {.logit_bias = {{3, 9.0f}}, .min_tokens = 3, .ends = {3, 40, 3}},
      {.repetition_penalty = 1.7},
      {.repetition_penalty = 0.5},
      {.presence_penalty = 1.5},
      {.frequency_penalty = -0.4},
      {.top_k = 9,
       .top_p = 0.9,
       .repetition_penalty = 1.3,
       .presence_penalty = 0.3,
       .frequency_penalty = 0.2,
       .logit_bias = {{50, 3.0f}},
       .min_tokens = 3,
       .ends = {7, 99}},
  };
  for (const SamplingParams& kind : kinds)
    for (const double temperature : {0.0, 0.7})
      for (int64_t n_output : {0, 2, 3})
        for (int64_t position = 0; position < 6; ++position) {
          rows.push_back({.z = noise(101, 2, static_cast<uint64_t>(position)),
                          .params = kind,
                          .counts = counts,
                          .position = position,
                          .n_output = n_output});
          rows.back().params.temperature = temperature;
        }
  check_against_reference(rows);
}

TEST_CASE("draws follow the distribution (chi-square)") {
  for (const SamplingParams& kind :
       {SamplingParams{}, SamplingParams{.temperature = 0.5}, SamplingParams{.temperature = 2, .top_k = 20},
        SamplingParams{.top_p = 0.8}, SamplingParams{.temperature = 1.5, .min_p = 0.05}}) {
    constexpr int64_t n = 20000, v = 41;
    const std::vector<float> z = noise(v, 1, 9);
    std::vector<Row> rows(n, {.z = z, .params = kind});
    for (int64_t i = 0; i < n; ++i) rows[static_cast<size_t>(i)].position = i;
    std::vector<double> seen(v);
    for (const Sampled& s : sample(rows)) ++seen[static_cast<size_t>(s.id)];
    const auto p = ref::distribution(z, kind);
    double chi = 0, freedom = -1;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0) CHECK(seen[i] == 0);
      if (p[i] == 0) continue;
      chi += (seen[i] - n * p[i]) * (seen[i] - n * p[i]) / (n * p[i]);
      ++freedom;
    }
    CAPTURE(chi);
    CHECK(chi < freedom + 5 * std::sqrt(2 * freedom));  // mean and five standard deviations
  }
}

TEST_CASE("log-probabilities are of the model's own distribution") {
  for (const int64_t v : {7, 257, 1000})
    for (const auto& cuts : layouts(v)) {
      std::vector<Row> rows;
      const TokenCounts counts{.prompt = {{0, 1}}, .output = {{1, 3}, {5, 1}}};
      for (const int64_t top : {-1, 0, 1, 5, 20}) {
        for (const double temperature : {0.0, 1.7})
          rows.push_back({.z = noise(v, 3, 1),
                          .params = {.temperature = temperature,
                                     .top_k = 3,
                                     .repetition_penalty = 1.4,
                                     .logit_bias = {{2, 8.0f}, {3, 30.0f}},
                                     .min_tokens = 1,
                                     .ends = {4},
                                     .top_logprobs = top},
                          .counts = counts,
                          .position = top});
        rows.back().z[6] = -kInf;
      }
      const std::vector<Sampled> got = sample(rows, cuts);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto expected = ref::log_softmax(rows[i].z);
        const int64_t top = rows[i].params.top_logprobs;
        CHECK(got[i].id == 3);
        REQUIRE(static_cast<int64_t>(got[i].top.size()) == std::clamp<int64_t>(top, 0, v));
        // Sums of V terms, each off by some ulp; the result is of the size of the logits.
        const auto near = [](float a, double b) {
          return std::abs(static_cast<double>(a) - b) <= 2e-6 * (1 + std::abs(b));
        };
        if (top >= 0) CHECK(near(got[i].logprob, expected[3]));
        std::vector<size_t> order(rows[i].z.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return expected[a] > expected[b]; });
        for (size_t k = 0; k < got[i].top.size(); ++k) {
          CHECK(got[i].top[k].id == static_cast<int32_t>(order[k]));
          if (std::isinf(expected[order[k]])) CHECK(got[i].top[k].logprob == -kInf);
          else CHECK(near(got[i].top[k].logprob, expected[order[k]]));
        }
      }
    }
}

TEST_CASE("score tells the log-probability of given tokens") {
  constexpr int64_t v = 257;
  const std::vector<int32_t> target = {0, 256, 100, 3};
  for (const auto& cuts : layouts(v)) {
    const int ranks = static_cast<int>(cuts.size()) - 1;
    std::vector<std::vector<Sampled>> got(static_cast<size_t>(ranks), std::vector<Sampled>(target.size()));
    run_thread_ranks(ranks, [&](Comm& comm) {
      const size_t r = static_cast<size_t>(comm.rank());
      std::vector<std::vector<float>> parts;
      for (size_t i = 0; i < target.size(); ++i) {
        const std::vector<float> z = noise(v, 4, i);
        parts.emplace_back(z.begin() + cuts[r], z.begin() + cuts[r + 1]);
      }
      test::RankSampler sampler(v, {.begin = cuts[r], .end = cuts[r + 1]}, comm, 1, parts);
      (*sampler).score(sampler.row(0), target, 3, got[r].data());
    });
    for (const auto& other : got) CHECK(other == got[0]);
    for (size_t i = 0; i < target.size(); ++i) {
      const auto expected = ref::log_softmax(noise(v, 4, i));
      CHECK(got[0][i].id == target[i]);
      CHECK(static_cast<double>(got[0][i].logprob) ==
            doctest::Approx(expected[static_cast<size_t>(target[i])]).epsilon(2e-6));
      REQUIRE(got[0][i].top.size() == 3);
      const double best = *std::max_element(expected.begin(), expected.end());
      CHECK(static_cast<double>(got[0][i].top[0].logprob) == doctest::Approx(best).epsilon(2e-6));
      CHECK(got[0][i].top[0].logprob >= got[0][i].top[1].logprob);
      CHECK(got[0][i].top[1].logprob >= got[0][i].top[2].logprob);
    }
  }
}

TEST_CASE("logits that are not finite, or all masked, are an error on all ranks, not a token") {
  for (const auto& cuts : layouts(100))
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 0}, SamplingParams{}, SamplingParams{.top_p = 0.5}, SamplingParams{.top_k = 3},
          SamplingParams{.temperature = 0, .top_logprobs = 2}, SamplingParams{.min_tokens = 5, .ends = {70}}}) {
      for (const float bad : {kNan, kInf, -kInf}) {
        Row good{.z = noise(100, 1, 2), .params = params, .position = 11}, row = good;
        if (bad == -kInf) row.z.assign(100, bad);
        else row.z[70] = bad;
        row.position = 4711;
        std::mutex mutex;
        std::vector<std::string> errors;
        run_thread_ranks(static_cast<int>(cuts.size()) - 1, [&](Comm& comm) {
          const size_t r = static_cast<size_t>(comm.rank());
          std::vector<SampleRow> in;
          std::vector<std::vector<float>> parts;
          for (const Row* from : {&good, &row})
            parts.emplace_back(from->z.begin() + cuts[r], from->z.begin() + cuts[r + 1]);
          test::RankSampler sampler(100, {.begin = cuts[r], .end = cuts[r + 1]}, comm, 1, parts);
          for (size_t i = 0; i < 2; ++i)
            in.push_back({.logits = sampler.row(i),
                          .params = &params,
                          .counts = nullptr,
                          .position = i == 0 ? good.position : row.position,
                          .n_output = 0});
          std::vector<Sampled> out(2);
          std::string what;
          try {
            (*sampler).sample(in, out.data());
          } catch (const Error& e) {
            CHECK(e.kind() == ErrorKind::runtime);
            what = e.what();
          }
          // Afterwards it works again.
          (*sampler).sample({in.data(), 1}, out.data());
          const std::lock_guard lock(mutex);
          errors.push_back(what);
        });
        for (const std::string& e : errors) {
          CHECK(e == errors[0]);
          CHECK(e.find("4711") != std::string::npos);
        }
      }
    }
}

TEST_CASE("a draw depends on its row alone") {
  std::vector<Row> rows;
  for (int64_t i = 0; i < 40; ++i) {
    rows.push_back({.z = noise(1003, 2, static_cast<uint64_t>(i)), .position = i});
    SamplingParams& p = rows.back().params;
    p.seed = static_cast<uint64_t>(i % 3);
    if (i % 4 == 1) p.temperature = 0;
    if (i % 4 == 2) p.top_p = 0.9;
    if (i % 4 == 3) p.top_k = 300;
    if (i % 5 == 0) p.top_logprobs = 3;
  }
  for (const auto& cuts : layouts(1003)) {
    const std::vector<Sampled> together = sample(rows, cuts);
    CHECK(sample(rows, cuts, team(3)) == together);
    std::vector<Row> reversed(rows.rbegin(), rows.rend());
    std::vector<Sampled> back = sample(reversed, cuts, team(2));
    std::reverse(back.begin(), back.end());
    CHECK(back == together);
    for (const size_t i : {0u, 1u, 2u, 3u, 37u}) CHECK(sample({rows[i]}, cuts)[0] == together[i]);
  }
}

TEST_CASE("seed and position vary a draw") {
  std::vector<Row> rows;
  for (const uint64_t seed : {0u, 11u})
    for (int64_t position = 0; position < 50; ++position)
      rows.push_back({.z = kLogits, .params = {.temperature = 2, .seed = seed}, .position = position});
  const std::vector<Sampled> got = sample(rows);
  int varies_by_position = 0, varies_by_seed = 0;
  for (size_t i = 0; i < 50; ++i) {
    varies_by_position += got[i].id != got[(i + 1) % 50].id;
    varies_by_seed += got[i].id != got[i + 50].id;
  }
  CHECK(varies_by_position > 10);
  CHECK(varies_by_seed > 10);
}

TEST_CASE("no rows are no work") {
  const auto comm = make_self_comm();
  Sampler sampler(5, {.begin = 0, .end = 5}, *comm, 2);
  sampler.sample({}, nullptr);
}
