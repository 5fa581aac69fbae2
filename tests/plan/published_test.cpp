// Predictions against published training runs (tests/golden/published), with the calibration that is shipped.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "libcore/base/error.h"
#include "libcore/model/model_flops.h"
#include "libcore/plan/published/published_memory.h"
#include "libcore/plan/published/published_score.h"

using namespace rw;

namespace {

std::string table() { return std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/tests/golden/published/training.csv"; }

const std::vector<PublishedRow>& rows() {
  static const std::vector<PublishedRow> all = published_rows(table());
  return all;
}

const std::vector<PublishedError>& errors() {
  static const std::vector<PublishedError> all = [] {
    const PublishedPricer pricer(rows());
    return published_errors(pricer, used_rows(rows()), shipped_numbers(rows()));
  }();
  return all;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

const PublishedRow& row_at(int64_t line) {
  for (const PublishedRow& r : rows())
    if (r.line == line) return r;
  FAIL("no row at line ", line);
  return rows().front();
}

}  // namespace

TEST_CASE("published: most rows are used, and every other says why not") {
  CHECK(rows().size() > 600);
  CHECK(used_rows(rows()).size() >= 300);
  std::set<std::string> generations;
  for (const PublishedRow& r : rows()) {
    CAPTURE(r.line);
    if (!r.excluded.empty()) continue;
    CHECK(r.step_s > 0);
    CHECK(!r.how.empty());
    CHECK(r.layout.ranks() <= r.cluster.device_count());
    int64_t layers = 0;
    for (const int64_t n : r.layout.stage_layers) layers += n;
    CHECK(layers == r.model.layers);
    generations.insert(device_generation(r));
  }
  CHECK(generations.size() == 2);
}

TEST_CASE("published: step times within 6 % at the median, 8 % on average, 18 % at the 90th percentile") {
  std::vector<double> all;
  for (const PublishedError& e : errors()) all.push_back(e.error());
  const ErrorSummary s = summarise(all);
  INFO(s.n, " rows: median ", 100 * s.median, " %, mean ", 100 * s.mean, " %, p90 ", 100 * s.p90, " %");
  CHECK(s.median <= 0.06);
  CHECK(s.mean <= 0.08);
  CHECK(s.p90 <= 0.18);
  CHECK(std::fabs(s.bias) <= 0.03);
}

TEST_CASE("published: layouts of one model, cluster and batch come in the measured order") {
  const auto taus = order_by_group(errors());
  double sum = 0;
  for (const auto& [group, tau] : taus) sum += tau;
  CHECK(taus.size() >= 10);
  INFO("mean Kendall tau of ", taus.size(), " groups: ", sum / static_cast<double>(taus.size()));
  CHECK(sum / static_cast<double>(taus.size()) >= 0.7);
}

TEST_CASE("published: at most five numbers for a generation of devices and two for a trainer") {
  const PublishedNumbers numbers = shipped_numbers(rows());
  std::map<std::string, DeviceType> seen;
  for (const PublishedRow* r : used_rows(rows())) {
    CAPTURE(r->line);
    const PublishedNumbers::Trainer& t = numbers.trainers.at(r->numbers);
    CHECK(t.compute_factor == r->traits.compute_factor);
    CHECK(t.communication_factor == r->traits.communication_factor);
    const DeviceType& d = r->cluster.devices.front();
    const PublishedNumbers::Device& n = numbers.devices.at(device_generation(*r));
    CHECK(d.gemm_fraction == n.gemm_fraction);
    CHECK(d.attention_fraction == n.attention_fraction);
    CHECK(d.memory_fraction == n.memory_fraction);
    CHECK(d.overlap == n.overlap);
  }
}

TEST_CASE("published: the calibration is where the fit ends") {
  const PublishedPricer pricer(rows());
  const PublishedFit fit = fit_published(pricer, used_rows(rows()), shipped_numbers(rows()));
  // Numbers are shipped with three digits.
  CHECK(fit.cost > 0.98 * fit.cost_before);
}

TEST_CASE("published: memory within 8 % on average, and runs that died of it are above the device's") {
  std::vector<double> all;
  int64_t died = 0;
  for (const PublishedMemory& m : published_memory(table())) {
    CAPTURE(m.line);
    if (!m.excluded.empty()) continue;
    CHECK(m.predicted > m.states);
    if (m.out_of_memory()) {
      ++died;
      CHECK(m.predicted > 80);
    } else {
      all.push_back(m.predicted / m.reported - 1);
    }
  }
  CHECK(died == 4);
  CHECK(all.size() > 120);
  INFO("memory of ", all.size(), " rows: mean ", 100 * summarise(all).mean, " %");
  CHECK(summarise(all).mean <= 0.08);
}

// Korthikanti et al. 2022, figure 1, GiB by its own arithmetic: states and activations.
TEST_CASE("published: the paper's states and activations to the last digit") {
  const auto all = published_memory(table());
  std::map<std::string, std::vector<double>> by_model;
  for (const PublishedMemory& m : all)
    if (m.trainer == "megatron-2022") {
      CHECK(m.predicted == doctest::Approx(m.reported).epsilon(0.001));
      by_model[m.model_name] = {m.states};
    }
  CHECK(by_model.size() == 4);
  CHECK(by_model.at("megatron-22b")[0] == doctest::Approx(45.56).epsilon(0.001));
}

// The same run's FLOP/s differ by up to two between conventions: each source's own must follow from its step time.
TEST_CASE("published: TFLOP/s recomputed from step times agree in each source's convention") {
  struct Convention {
    const char* trainer;
    enum { full, hardware } kind;
    double tolerance;
  };
  for (const Convention& c :
       {Convention{"llm-foundry-a100", Convention::full, 0.02}, Convention{"llm-foundry-h100", Convention::full, 0.02},
        Convention{"maxtext", Convention::full, 0.02}, Convention{"torchtitan-a100", Convention::full, 0.02},
        Convention{"megatron-2022", Convention::full, 0.02}, Convention{"mt-nlg", Convention::hardware, 0.02}}) {
    std::vector<double> ratios;
    for (const PublishedRow* r : used_rows(rows())) {
      if (r->trainer != c.trainer || !r->how.starts_with("published") || (r->tflops == 0 && r->mfu == 0)) continue;
      const double peak = r->cluster.devices.front().peak_bf16 / 1e12;
      const double said = r->tflops > 0 ? r->tflops : r->mfu * peak;
      const double full = training_flops_per_token(r->model, r->layout.seq_len).full;
      // A forward of all layers again, where they are recomputed.
      const double head = 6.0 * static_cast<double>(r->model.vocab_size * r->model.width);
      const bool again = c.kind == Convention::hardware && r->layout.recompute == Recompute::full;
      const double flops = again ? full + (full - head) / 3 : full;
      const double tokens = static_cast<double>(r->layout.global_batch * r->layout.seq_len);
      ratios.push_back(flops * tokens / r->step_s / static_cast<double>(r->layout.ranks()) / 1e12 / said);
    }
    CAPTURE(c.trainer);
    REQUIRE(ratios.size() >= 3);
    CHECK(median(ratios) == doctest::Approx(1).epsilon(c.tolerance));
  }
}

TEST_CASE("published: causal attention counts half") {
  // Llama-3 8B, full over causal: 1.035 at 2k, 1.125 at 8k, 1.364 at 32k, 1.696 at 128k tokens.
  const ModelSpec m = load_model_spec("llama-3-8b");
  const std::map<int64_t, double> known = {{2048, 1.035}, {8192, 1.125}, {32768, 1.364}, {131072, 1.696}};
  for (const auto& [seq, ratio] : known) {
    const ModelFlops f = training_flops_per_token(m, seq);
    CHECK(f.full / f.causal == doctest::Approx(ratio).epsilon(0.003));
  }
}

TEST_CASE("published: layers are dealt as the sources dealt them") {
  // Megatron 530B: 105 layers over 35 x 3.
  CHECK(row_at(10).layout.stage_layers == std::vector<int64_t>(105, 1));
  // BLOOM: 70 layers over 12 stages, the ends a layer less.
  const std::vector<int64_t>& bloom = row_at(592).layout.stage_layers;
  CHECK(bloom == std::vector<int64_t>{5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5});
}

TEST_CASE("published: order and spread of errors by hand") {
  CHECK(kendall_tau({{1, 1}, {2, 2}, {3, 3}}) == doctest::Approx(1));
  CHECK(kendall_tau({{1, 3}, {2, 2}, {3, 1}}) == doctest::Approx(-1));
  CHECK(kendall_tau({{1, 1}, {2, 3}, {3, 2}}) == doctest::Approx(1.0 / 3));
  CHECK(kendall_tau({{1, 1}, {2, 1}, {3, 2}}) == doctest::Approx(2 / std::sqrt(6.0)));
  CHECK(kendall_tau({{1, 5}, {2, 5}}) == 0);
  const ErrorSummary s = summarise({0.1, -0.3, 0.2, 0.0, -0.4});
  CHECK(s.median == doctest::Approx(0.2));
  CHECK(s.mean == doctest::Approx(0.2));
  CHECK(s.p90 == doctest::Approx(0.36));
  CHECK(s.worst == doctest::Approx(0.4));
  CHECK(s.bias == doctest::Approx(-0.08));
  CHECK(summarise({}).n == 0);
}

TEST_CASE("published: cells in quotes hold commas; what is no number or no table is refused by line") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "published_table_test.csv";
  std::ofstream(file) << "name,seq,notes\nx,2048,\"a, b\"\ny,,\nz,7k,\n";
  const std::vector<PublishedCells> cells = read_published_table(file);
  REQUIRE(cells.size() == 3);
  CHECK(cells[0].line() == 2);
  CHECK(cells[0].text("notes") == "a, b");
  CHECK(cells[0].whole("seq", 1) == 2048);
  CHECK(cells[0].mentions("notes", ", b"));
  CHECK(!cells[1].has("seq"));
  CHECK(cells[1].whole("seq", 3) == 3);
  CHECK_THROWS_WITH_AS(cells[2].number("seq", 0), doctest::Contains("line 4"), Error);
  CHECK_THROWS_WITH_AS(cells[0].text("gpu"), doctest::Contains("gpu"), Error);
  std::ofstream(file) << "name,seq\nx\n";
  CHECK_THROWS_WITH_AS(read_published_table(file), doctest::Contains(":2"), Error);
  std::filesystem::remove(file);
  CHECK_THROWS_AS(read_published_table(file), Error);
}
