#include "libcore/telemetry/memory_ring.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

using namespace rw;

namespace {

MemorySnapshot used(int64_t bytes) { return {.values = {{"used_bytes", bytes}, {"free_bytes", 1000 - bytes}}}; }

}  // namespace

TEST_CASE("every second of the last minute, then every tenth, for half an hour") {
  MemoryRing ring;
  for (int i = 0; i <= 7200; ++i) ring.add(i * 0.5, used(i % 7));
  const Json all = ring.json(3600, 1e9);
  std::vector<double> ages;
  for (const Json& s : all["snapshots"]) ages.push_back(s["age_s"].get<double>());
  // The newest is at 3600 s; 3540 s and later are fine: 61 slots of a second; from 1800 s (slot 180) to 3539.5 s
  // (slot 353): 174 slots of ten seconds.
  REQUIRE(ages.size() == 61 + 174);
  CHECK(ring.size() == 61 + 174);
  CHECK(ages.front() == 1800 - 9.5);
  CHECK(ages.back() == 0);
  for (size_t i = 1; i < ages.size(); ++i) {
    const double gap = ages[i - 1] - ages[i];
    if (i < 174) CHECK(gap == 10);
    if (i > 175 && i + 1 < ages.size()) CHECK(gap == 1);
  }
  CHECK(ring.json(3600, 60)["snapshots"].size() == 61);
  CHECK(ring.json(3600, 0)["snapshots"].size() == 1);
  CHECK(ring.json(4000, 10)["snapshots"].empty());
}

TEST_CASE("high-water marks are exact, whatever thins out") {
  MemoryRing ring;
  for (int i = 0; i < 500; ++i) ring.add(i * 0.01, used(i == 333 ? 999 : i == 444 ? 999 : 5));
  for (int i = 1; i < 6000; ++i) ring.add(5 + i, used(7));
  const Json j = ring.json(6000, 1800);
  CHECK(j["high_water"]["used_bytes"]["value"] == 999);
  CHECK(j["high_water"]["used_bytes"]["age_s"] == doctest::Approx(6000 - 3.33));
  CHECK(j["high_water"]["free_bytes"]["value"] == 995);
}

TEST_CASE("a snapshot tells the peaks since the one before") {
  MemoryRing ring;
  ring.add(0.1, used(10));
  ring.add(0.2, used(900));
  ring.add(0.9, used(20));
  ring.add(1.0, used(30));
  Json s = ring.json(1, 100)["snapshots"];
  REQUIRE(s.size() == 2);
  CHECK(s[0]["values"]["used_bytes"] == 20);
  CHECK(s[0]["peaks"]["used_bytes"] == 900);
  CHECK(s[0]["peaks"]["free_bytes"] == 990);
  CHECK(s[1]["peaks"]["used_bytes"] == 30);
  ring.add(100, used(1));  // the others are in one slot of ten seconds now
  s = ring.json(100, 100)["snapshots"];
  REQUIRE(s.size() == 2);
  CHECK(s[0]["values"]["used_bytes"] == 30);
  CHECK(s[0]["peaks"]["used_bytes"] == 900);
}

TEST_CASE("the largest requests and prefixes, and what was left out") {
  MemoryRing ring({.max_items = 3});
  MemorySnapshot snapshot = used(1);
  for (const int64_t bytes : {5, 70, 6, 80, 90, 7}) snapshot.requests.push_back({"r" + std::to_string(bytes), bytes});
  snapshot.prefixes = {{std::string(1000, 'p'), 1}};
  ring.add(1, snapshot);
  const Json s = ring.json(2, 10)["snapshots"][0];
  CHECK(s["requests"].dump() == R"([{"name":"r90","bytes":90},{"name":"r80","bytes":80},{"name":"r70","bytes":70}])");
  CHECK(s["requests_left_out"].dump() == R"({"n":3,"bytes":18})");
  CHECK(s["prefixes"][0]["name"].get<std::string>().size() == 128);
  CHECK(s["prefixes_left_out"]["n"] == 0);
  CHECK(s["age_s"] == 1);
}

TEST_CASE("an empty ring, and a clock that goes back") {
  MemoryRing ring;
  CHECK(ring.json(5, 10).dump() == R"({"window_s":10.0,"high_water":{},"snapshots":[]})");
  ring.add(5, {});
  ring.add(5, {});
  CHECK(ring.size() == 1);
  CHECK_THROWS_AS(ring.add(4.9, {}), CheckFailed);
}
