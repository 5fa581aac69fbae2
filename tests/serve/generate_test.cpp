#include "libcore/serve/generate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"
#include "tests/support/golden_model.h"

using namespace rw;

namespace {

std::vector<int32_t> row_ids(const golden::GoldenModel& g, int64_t row) {
  const auto from = g.ids.begin() + row * g.seq_len;
  return {from, from + g.seq_len};
}

Generator generator(const golden::GoldenModel& g, DType t, int64_t chunk, int threads = 1, int64_t page_tokens = 16) {
  return Generator({.model = g.spec,
                    .precision = t,
                    .threads = threads,
                    .max_tokens = g.spec.max_position,
                    .prefill_chunk = chunk,
                    .page_tokens = page_tokens},
                   *g.weights);
}

}  // namespace

TEST_CASE("cached logits agree with transformers' full forward at every length") {
  for (const std::string& name : golden::golden_names()) {
    CAPTURE(name);
    const golden::GoldenModel g = golden::load_golden(name);
    Generator gen = generator(g, DType::f32, 5);
    for (int64_t b = 0; b < g.batch; ++b) {
      const std::vector<int32_t> ids = row_ids(g, b);
      double worst = 0;
      for (int64_t n = 1; n <= g.seq_len; ++n) {
        const std::vector<int32_t> prefix(ids.begin(), ids.begin() + n);
        const std::vector<float>& logits = gen.feed(prefix, true);
        for (int64_t v = 0; v < g.spec.vocab_size; ++v)
          worst = std::max(
              worst, std::abs(static_cast<double>(logits[static_cast<size_t>(v)]) -
                              g.logits_f64[static_cast<size_t>((b * g.seq_len + n - 1) * g.spec.vocab_size + v)]));
      }
      CHECK(worst <= 8 * g.logits_f32_error);
    }
  }
}

TEST_CASE("chunked prefill, token by token and any page size give the same bits as one shot") {
  for (const DType t : {DType::f32, DType::bf16})
    for (const char* name : {"gpt2", "llama", "qwen2"}) {
      CAPTURE(name);
      const golden::GoldenModel g = golden::load_golden(name);
      const std::vector<int32_t> ids = row_ids(g, 1);
      Generator whole = generator(g, t, 64);
      const std::vector<float> expected = whole.feed(ids, true);
      for (const int64_t chunk : {1, 2, 7, 16}) {
        CAPTURE(chunk);
        CHECK(generator(g, t, chunk).feed(ids, true) == expected);
      }
      CHECK(generator(g, t, 64, 2).feed(ids, true) == expected);
      CHECK(generator(g, t, 64, 1, 3).feed(ids, true) == expected);
      Generator stepwise = generator(g, t, 64);
      for (size_t i = 0; i < ids.size(); ++i) stepwise.feed({ids[i]}, i == 0);
      CHECK(stepwise.feed({ids[0]}, false) == whole.feed({ids[0]}, false));
    }
}

TEST_CASE("generation is reproducible, stops at the end of text and at the longest sequence") {
  const golden::GoldenModel g = golden::load_golden("llama");
  Generator gen = generator(g, DType::f32, 16);
  const auto run = [&](GenerateRequest request) {
    std::vector<int32_t> out;
    const GenerateReport report = gen.generate(request, [&](int32_t id) {
      out.push_back(id);
      return true;
    });
    CHECK(report.new_tokens == static_cast<int64_t>(out.size()));
    return std::pair(out, report);
  };
  GenerateRequest request{
      .prompt = {3, 4, 5}, .max_new_tokens = 20, .sampling = {.temperature = 1.0, .seed = 9}, .stop_at_end = false};
  const auto [a, report_a] = run(request);
  CHECK(a.size() == 20);
  CHECK(run(request).first == a);
  request.sampling.seed = 10;
  CHECK(run(request).first != a);
  request.sampling.seed = 9;
  request.stop_at_end = true;
  request.stop_id = a[7];
  const auto [stopped, report] = run(request);
  CHECK(report.stopped);
  CHECK(stopped.size() <= 7);
  CHECK(std::equal(stopped.begin(), stopped.end(), a.begin()));
  request = {.prompt = {3, 4, 5}, .max_new_tokens = 100000, .sampling = {.temperature = 0}, .stop_at_end = false};
  CHECK(run(request).second.new_tokens == g.spec.max_position - 3 + 1);
  CHECK_THROWS_AS(gen.feed(std::vector<int32_t>(static_cast<size_t>(g.spec.max_position + 1), 1), true), Error);
}
