#include "libcore/serve/generate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"
#include "tests/support/golden_model.h"

using namespace rw;

namespace {

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
  request.prompt.assign(static_cast<size_t>(g.spec.max_position + 1), 1);
  CHECK_THROWS_AS(run(request), Error);
}
