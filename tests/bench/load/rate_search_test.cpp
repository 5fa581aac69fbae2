#include "libcore/bench/load/rate_search.h"

#include <doctest/doctest.h>

#include <cmath>

#include "libcore/base/rng.h"

using namespace rw;

namespace {

RateProbe step_at(double rate, double limit) {
  RateProbe p;
  p.attainment = rate <= limit ? 1 : 0.2;
  p.verdict = rate <= limit ? ProbeVerdict::kept : ProbeVerdict::missed;
  return p;
}

RateSearch search_from(double start) {
  RateSearch s;
  s.start = start;
  return s;
}

}  // namespace

TEST_CASE("rate search: finds a step within the tolerance, from below and above") {
  for (const double limit : {0.037, 1.0, 6.3, 100.0, 4321.0})
    for (const double start : {0.05, 1.0, 50.0}) {
      const RateAnswer a = find_rate(search_from(start), [&](double rate) { return step_at(rate, limit); });
      CHECK(a.rate <= limit);
      CHECK(a.above > limit);
      CHECK(a.above / a.rate <= 1.05 + 1e-12);
      CHECK_FALSE(a.limited_by_client);
      CHECK(a.why.empty());
      CHECK(a.probes.size() < 30);
      CHECK(a.probes.back().rate == a.rate);  // confirmed
    }
}

TEST_CASE("rate search: never and always") {
  const RateAnswer never = find_rate(search_from(1), [](double rate) { return step_at(rate, 0); });
  CHECK(never.rate == 0);
  CHECK(never.above == doctest::Approx(0.01));
  CHECK(never.why.find("not even 0.01") != std::string::npos);
  RateSearch s = search_from(1);
  s.highest = 100;
  const RateAnswer always = find_rate(s, [](double rate) { return step_at(rate, 1e9); });
  CHECK(always.rate == 100);
  CHECK(always.above == 0);
  CHECK(always.why.find("every rate up to 100") != std::string::npos);
}

TEST_CASE("rate search: a void probe bounds the answer and is told") {
  const RateAnswer a = find_rate(search_from(1), [](double rate) {
    RateProbe p = step_at(rate, 1e9);
    if (rate > 20) p.verdict = ProbeVerdict::is_void;
    return p;
  });
  CHECK(a.rate <= 20);
  CHECK(a.rate > 18);
  CHECK(a.limited_by_client);
  CHECK(a.why.find("client") != std::string::npos);
}

TEST_CASE("rate search: a noisy server's answer kept the objective twice") {
  // Attainment falls from 1 around 10 requests/s, with noise of 3 % at each probe.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t draw = 0;
    const RateAnswer a = find_rate(search_from(1), [&](double rate) {
      RateProbe p;
      const double noise = 0.06 * (random_uniform(rng_key(seed, "noise"), draw++) - 0.5);
      p.attainment = 1 / (1 + std::pow(rate / 20, 4)) + noise;
      p.verdict = p.attainment >= 0.9 ? ProbeVerdict::kept : ProbeVerdict::missed;
      return p;
    });
    // Without noise 0.9 is at 20 / 9^(1/4) = 11.55; 0.93 and 0.87 at 10.47 and 12.43.
    CHECK(a.rate > 9);
    CHECK(a.rate < 12.5);
    int kept = 0;
    for (const RateProbe& p : a.probes) kept += p.verdict == ProbeVerdict::kept && p.rate == a.rate;
    CHECK(kept >= 1);
    CHECK(a.probes.back().verdict == ProbeVerdict::kept);
  }
}

TEST_CASE("rate search: stops when it may not probe any more") {
  RateSearch s = search_from(1);
  s.most_probes = 3;
  const RateAnswer a = find_rate(s, [](double rate) { return step_at(rate, 1e9); });
  CHECK(a.probes.size() == 3);
  CHECK(a.rate == 4);
}
