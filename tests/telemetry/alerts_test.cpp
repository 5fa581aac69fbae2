#include "libcore/telemetry/alerts.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

using namespace rw;

namespace {

// '+' raised, '-' cleared, '.' nothing, for values one second apart.
std::string story(Alerts& alerts, const std::vector<double>& values, double begin = 0) {
  std::string events;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto event = alerts.feed(begin + static_cast<double>(i), "kv", values[i]);
    events += !event ? '.' : event->raised ? '+' : '-';
  }
  return events;
}

}  // namespace

TEST_CASE("raised once after its time, cleared once after its time") {
  Alerts a({{.name = "kv", .above = 0.9, .for_s = 3}});
  CHECK(story(a, {0.9, 0.95, 0.95, 0.95, 0.99, 1, 1, 0.5, 0.5, 0.5, 0.9, 0.1}) == "....+.....-.");
}

TEST_CASE("a short peak, and a short lull, are nothing") {
  Alerts a({{.name = "kv", .above = 10, .for_s = 2}});
  CHECK(story(a, {11, 11, 10, 11, 11, 1, 11, 11, 11}) == "........+");
  CHECK(story(a, {1, 1, 11, 1, 1, 1, 11}, 9) == ".....-.");
}

TEST_CASE("at once when no time is given") {
  Alerts a({{.name = "kv", .above = 0, .for_s = 0}});
  CHECK(story(a, {0, 1, 1, 0, 1}) == ".+.-+");
}

TEST_CASE("a gap in the values counts as what was said last") {
  Alerts a({{.name = "kv", .above = 1, .for_s = 30}});
  CHECK_FALSE(a.feed(0, "kv", 2));
  CHECK(a.feed(100, "kv", 2));
}

TEST_CASE("what an event says") {
  Alerts a({{.name = "itl_ms", .above = 50, .for_s = 1}, {.name = "kv", .above = 0.9, .for_s = 1}});
  CHECK_FALSE(a.feed(10, "itl_ms", 80));
  CHECK_FALSE(a.feed(10, "kv", 0.1));
  CHECK_FALSE(a.feed(10.5, "itl_ms", std::nan("")));
  CHECK_FALSE(a.feed(10.5, "unknown", 1e9));
  const auto raised = a.feed(11, "itl_ms", 60);
  REQUIRE(raised);
  CHECK(raised->since_s == 10);
  CHECK(alert_json(*raised).dump() ==
        R"({"event":"alert","name":"itl_ms","state":"raised","value":60.0,"worst":80.0,"above":50.0,"for_s":1.0})");
  CHECK(a.raised() == std::vector<std::string>{"itl_ms"});
  CHECK_FALSE(a.feed(12, "itl_ms", 90));
  CHECK_FALSE(a.feed(13, "itl_ms", 5));
  const auto cleared = a.feed(14, "itl_ms", 4);
  REQUIRE(cleared);
  CHECK(cleared->worst == 90);
  CHECK(cleared->value == 4);
  CHECK(cleared->since_s == 13);
  CHECK(alert_json(*cleared)["state"] == "cleared");
  CHECK(a.raised().empty());
  // The next time starts anew.
  CHECK_FALSE(a.feed(20, "itl_ms", 51));
  CHECK(a.feed(21, "itl_ms", 52)->worst == 52);
}

TEST_CASE("one name, one rule") {
  CHECK_THROWS_AS(Alerts({{.name = "a", .above = 1}, {.name = "a", .above = 2}}), CheckFailed);
}
