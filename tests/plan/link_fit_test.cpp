#include "libcore/plan/measure/link_fit.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "libcore/base/error.h"
#include "libcore/plan/price/collective_seconds.h"

namespace rw {
namespace {

// NCCL 2.29, nccl-tests on 8 GPUs of one node, as aiconfigurator publishes them: microseconds at 4 KiB, then the bus
// bandwidth in GB/s at 1, 16, 64, 256 and 512 MiB. Bus bandwidth is bytes / time times 2 (n - 1) / n for all_reduce,
// times (n - 1) / n for the others (nccl-tests, doc/PERFORMANCE.md).
struct Published {
  const char *profile, *kind;
  double us, busbw[5];
};
constexpr Published kPublished[] = {
    {"a100-80", "all_reduce", 21.4, {47, 136, 197, 215, 222}},
    {"a100-80", "all_gather", 14.7, {34, 109, 167, 193, 205}},
    {"a100-80", "reduce_scatter", 14.7, {39, 119, 179, 204, 213}},
    {"a100-40", "all_reduce", 21.4, {47, 136, 197, 215, 222}},
    {"h100-sxm", "all_reduce", 15.9, {72, 240, 362, 430, 445}},
    {"h100-sxm", "all_gather", 10.6, {54, 216, 281, 321, 336}},
    {"h100-sxm", "reduce_scatter", 10.5, {63, 207, 292, 326, 335}},
    {"h200", "all_reduce", 15.8, {66, 243, 366, 445, 461}},
    {"h200", "all_gather", 11.4, {49, 221, 287, 326, 338}},
    {"h200", "reduce_scatter", 11.3, {63, 214, 291, 328, 337}},
    {"b200", "all_reduce", 25.5, {61, 298, 421, 655, 702}},
    {"b200", "all_gather", 17.8, {49, 144, 429, 598, 617}},
    {"b200", "reduce_scatter", 16.1, {50, 153, 424, 594, 613}},
};

std::vector<TimedSize> points_of(const Published& p) {
  const double factor = std::string(p.kind) == "all_reduce" ? 2.0 * 7 / 8 : 7.0 / 8;
  constexpr double kMiB = 1 << 20;
  const double sizes[] = {kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, 512 * kMiB};
  std::vector<TimedSize> points = {{4096, p.us * 1e-6}};
  for (int i = 0; i < 5; ++i) points.push_back({sizes[i], sizes[i] * factor / (p.busbw[i] * 1e9)});
  return points;
}

std::vector<TimedSize> timed(const std::vector<LinkSegment>& lines, const std::vector<double>& sizes) {
  std::vector<TimedSize> points;
  for (const double n : sizes) {
    const LinkSegment* at = &lines.front();
    for (const LinkSegment& l : lines)
      if (n >= static_cast<double>(l.from_bytes)) at = &l;
    points.push_back({n, at->alpha + n / at->bandwidth});
  }
  return points;
}

TEST_CASE("the profiles' two lines are NCCL's published times within 15 %, on average 8 %") {
  for (const Published& p : kPublished) {
    CAPTURE(std::string(p.profile) + " " + p.kind);
    const ClusterSpec c = load_cluster_spec(std::filesystem::path(std::getenv("RANKWRIGHT_SOURCE")) / "configs" /
                                            "clusters" / (std::string(p.profile) + ".toml"));
    const CollectiveFit* fit = nullptr;
    for (const CollectiveFit& f : c.nodes[0].collectives)
      if (f.kind == p.kind) fit = &f;
    REQUIRE(fit != nullptr);
    CHECK(fit->ranks == 8);
    CHECK(fit->provenance == "table");
    double worst = 0, mean = 0;
    const std::vector<TimedSize> points = points_of(p);
    for (const TimedSize& point : points) {  // as plans are priced
      const double s = fitted_seconds(FittedCollective::of(*fit, "test"), {.bytes = point.bytes, .ranks = 8});
      worst = std::max(worst, std::abs(s / point.seconds - 1));
      mean += std::abs(s / point.seconds - 1) / static_cast<double>(points.size());
    }
    CHECK(worst <= 0.15);
    CHECK(mean <= 0.08);
    // What the fit of this folder finds is no worse.
    const FitError again = fit_error(fit_segments(points), points);
    CHECK(again.worst <= 0.15);
    CHECK(again.mean <= mean + 0.005);
  }
}

TEST_CASE("one line fits none of them so well") {
  for (const Published& p : kPublished) {
    const std::vector<TimedSize> points = points_of(p);
    const std::vector<LinkSegment> two = fit_segments(points);
    REQUIRE(two.size() == 2);
    const std::vector<LinkSegment> ends = fit_segments({points.front(), points.back()});
    REQUIRE(ends.size() == 1);
    CHECK(fit_error(ends, points).mean > fit_error(two, points).mean);
  }
}

TEST_CASE("lines are found again") {
  const std::vector<double> sizes = {1000, 3000, 10000, 33333, 100000, 500000, 2000000, 16000000, 67000001};
  for (const std::vector<LinkSegment>& lines :
       {std::vector<LinkSegment>{{0, 7e-6, 12e9}}, {{0, 0, 5e8}}, {{0, 5e-6, 2e9}, {60000, 23.6e-6, 12e9}}}) {
    const std::vector<TimedSize> points = timed(lines, sizes);
    const std::vector<LinkSegment> found = fit_segments(points);
    REQUIRE(found.size() == lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      CHECK(found[i].alpha == doctest::Approx(lines[i].alpha).epsilon(1e-6));
      CHECK(found[i].bandwidth == doctest::Approx(lines[i].bandwidth).epsilon(1e-6));
    }
    CHECK(found[0].from_bytes == 0);
    CHECK(fit_error(found, points).worst < 1e-6);
  }
  // They cross where 5e-6 + n / 2e9 = 23.6e-6 + n / 12e9.
  const auto found = fit_segments(timed({{0, 5e-6, 2e9}, {60000, 23.6e-6, 12e9}}, sizes));
  CHECK(static_cast<double>(found.at(1).from_bytes) == doctest::Approx(18.6e-6 / (1 / 2e9 - 1 / 12e9)).epsilon(1e-3));
}

TEST_CASE("a jump is between the sizes that show it") {
  const auto found = fit_segments(timed({{0, 1e-5, 1e10}, {100000, 9e-5, 9e9}}, {100, 1000, 40000, 160000, 1e6, 1e7}));
  REQUIRE(found.size() == 2);
  CHECK(found[1].from_bytes == 80000);  // sqrt(40000 * 160000)
}

TEST_CASE("noise, few sizes and equal sizes") {
  const auto one = fit_segments({{4096, 2e-6}});
  REQUIRE(one.size() == 1);
  CHECK(one[0].alpha == 0);
  CHECK(one[0].bandwidth == doctest::Approx(4096 / 2e-6));
  const auto same = fit_segments({{64, 9.0}, {64, 1e-6}, {64, 2e-6}, {1064, 12e-6}});  // median 2e-6: 1e8 bytes/s
  REQUIRE(same.size() == 1);
  CHECK(same[0].bandwidth == doctest::Approx(1e8));
  // Times that fall with the size: no line falls, so the best is flat.
  const auto falling = fit_segments({{100, 3e-6}, {200, 2e-6}, {300, 1e-6}});
  REQUIRE(falling.size() == 1);
  CHECK(falling[0].alpha > 1e-6);
  CHECK(falling[0].alpha < 3e-6);
  CHECK(falling[0].bandwidth > 1e15);
  // Times that rise faster than a line: no alpha below 0.
  const auto steep = fit_segments({{100, 1e-6}, {200, 4e-6}, {300, 9e-6}});
  CHECK(steep[0].alpha >= 0);
  // Every time a hundredth up or down: one line stays one line.
  std::vector<TimedSize> noisy;
  double sign = 1;
  for (double n = 1000; n < 1e8; n *= 3.7, sign = -sign) noisy.push_back({n, (1e-5 + n / 1e10) * (1 + 0.01 * sign)});
  const auto smooth = fit_segments(noisy);
  CHECK(smooth[0].alpha == doctest::Approx(1e-5).epsilon(0.03));
  CHECK(smooth.back().bandwidth == doctest::Approx(1e10).epsilon(0.03));
  CHECK(fit_error(smooth, noisy).worst < 0.02);
  CHECK_THROWS_AS(fit_segments({}), Error);
  CHECK_THROWS_AS(fit_segments({{0, 1}}), Error);
  CHECK_THROWS_AS(fit_segments({{1, 0}}), Error);
  CHECK_THROWS_AS(fit_segments({{1, std::nan("")}}), Error);
}

}  // namespace
}  // namespace rw
