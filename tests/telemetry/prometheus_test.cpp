// The text format against its specification: prometheus.io/docs/instrumenting/exposition_formats.
#include "libcore/telemetry/prometheus.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "libcore/base/error.h"

using namespace rw;

TEST_CASE("the text of each kind of metric") {
  MetricRegistry m(MetricLabels{{"model", "tiny"}});
  m.counter("requests_total", "Requests.", {{"code", "200"}}).add(1027);
  m.counter("requests_total", "Requests.", {{"code", "400"}}).add(3);
  m.gauge("queue", "Waiting requests.").set(-1.5);
  MetricHistogram& h = m.histogram("wait_seconds", "Time in the queue.", {0.05, 0.1, 1});
  for (const double v : {0.0, 0.05, 0.050001, 0.1, 7.0, 0.5}) h.observe(v);
  double pages = 3;
  m.gauge_of("pages", "Free pages.", [&] { return pages; });
  m.counter_of("steps_total", "Steps.", [] { return 2.0; });
  m.counter("requests_total", "Requests.", {{"code", "200"}}).add();
  CHECK(m.text() ==
        R"(# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{model="tiny",code="200"} 1028
requests_total{model="tiny",code="400"} 3
# HELP queue Waiting requests.
# TYPE queue gauge
queue{model="tiny"} -1.5
# HELP wait_seconds Time in the queue.
# TYPE wait_seconds histogram
wait_seconds_bucket{model="tiny",le="0.05"} 2
wait_seconds_bucket{model="tiny",le="0.1"} 4
wait_seconds_bucket{model="tiny",le="1"} 5
wait_seconds_bucket{model="tiny",le="+Inf"} 6
wait_seconds_sum{model="tiny"} 7.700001
wait_seconds_count{model="tiny"} 6
# HELP pages Free pages.
# TYPE pages gauge
pages{model="tiny"} 3
# HELP steps_total Steps.
# TYPE steps_total counter
steps_total{model="tiny"} 2
)");
  pages = 4;
  CHECK(m.text().find("pages{model=\"tiny\"} 4\n") != std::string::npos);
}

TEST_CASE("no labels, and no metrics") {
  MetricRegistry m;
  CHECK(m.text().empty());
  m.histogram("h", "H.", {1}, {}).observe(2);
  CHECK(m.text() ==
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} 1\nh_sum 2\nh_count 1\n");
}

TEST_CASE("escapes: backslash and line feed, in labels also the quote") {
  MetricRegistry m;
  m.gauge("g", "a \\ \"b\"\nc", {{"l", "a \\ \"b\"\nc"}, {"utf8", "\xC3\xBC\xF0\x9F\xA6\x99"}});
  CHECK(m.text() ==
        "# HELP g a \\\\ \"b\"\\nc\n# TYPE g gauge\n"
        "g{l=\"a \\\\ \\\"b\\\"\\nc\",utf8=\"\xC3\xBC\xF0\x9F\xA6\x99\"} 0\n");
}

TEST_CASE("broken UTF-8 in a label becomes U+FFFD") {
  const auto shown = [](const std::string& value) {
    MetricRegistry m;
    m.gauge("g", "G.", {{"l", value}});
    const std::string text = m.text();
    const size_t begin = text.find("l=\"") + 3;
    return text.substr(begin, text.rfind('"') - begin);
  };
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(shown("a\xFF"
              "b") == "a" + bad + "b");
  CHECK(shown("\xC0\x80") == bad + bad);                      // overlong
  CHECK(shown("\xED\xA0\x80") == bad + bad + bad);            // a surrogate
  CHECK(shown("\xF4\x90\x80\x80") == bad + bad + bad + bad);  // above U+10FFFF
  CHECK(shown("\xE2\x82") == bad + bad);                      // cut off
  CHECK(shown("\xE2\x82\xAC") == "\xE2\x82\xAC");
}

TEST_CASE("numbers as Go reads them") {
  MetricRegistry m;
  MetricGauge& g = m.gauge("g", "G.");
  const auto shown = [&](double value) {
    g.set(value);
    const std::string text = m.text();
    const size_t at = text.rfind(' ') + 1;
    return text.substr(at, text.size() - at - 1);
  };
  CHECK(shown(0) == "0");
  CHECK(shown(100000) == "100000");
  CHECK(shown(9007199254740.0) == "9007199254740");
  CHECK(shown(0.1) == "0.1");
  CHECK(shown(1e300) == "1e+300");
  CHECK(shown(std::numeric_limits<double>::infinity()) == "+Inf");
  CHECK(shown(-std::numeric_limits<double>::infinity()) == "-Inf");
  CHECK(shown(std::nan("")) == "NaN");
}

TEST_CASE("values on a bucket's edge, beyond the last, and none") {
  MetricHistogram h({1, 2, 4});
  for (const double v : {1.0, 2.0, 4.0, 4.5, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) h.observe(v);
  CHECK(h.snapshot().counts == std::vector<int64_t>{2, 1, 1, 2});
}

TEST_CASE("threads lose no update") {
  MetricRegistry m;
  MetricCounter& c = m.counter("c_total", "C.");
  MetricHistogram& h = m.histogram("h", "H.", {1, 2});
  MetricGauge& g = m.gauge("g", "G.");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5003; ++i) {
        c.add();
        g.add(t % 2 == 0 ? 1 : -1);
        h.observe(i % 3);
        if (i % 1000 == 0) m.counter("c_total", "C.", {{"i", std::to_string(i)}}).add();
        if (i % 1000 == 0) CHECK_FALSE(m.text().empty());
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(c.value() == 4 * 5003);
  CHECK(g.value() == 0);
  const auto counts = h.snapshot().counts;
  CHECK(counts[0] + counts[1] + counts[2] == 4 * 5003);
  CHECK(counts[1] == 4 * 1667);
  CHECK(m.counter("c_total", "C.", {{"i", "5000"}}).value() == 4);
}

TEST_CASE("names that are none") {
  MetricRegistry m(MetricLabels{{"model", "x"}});
  CHECK_THROWS_AS(m.gauge("1g", "G."), CheckFailed);
  CHECK_THROWS_AS(m.gauge("g-g", "G."), CheckFailed);
  CHECK_THROWS_AS(m.gauge("", "G."), CheckFailed);
  CHECK_THROWS_AS(m.gauge("g", ""), CheckFailed);
  CHECK_THROWS_AS(m.gauge("g_total", "G."), CheckFailed);
  CHECK_THROWS_AS(m.counter("c", "C."), CheckFailed);
  CHECK_THROWS_AS(m.gauge("g", "G.", {{"a:b", "x"}}), CheckFailed);
  CHECK_THROWS_AS(m.gauge("g", "G.", {{"__a", "x"}}), CheckFailed);
  CHECK_THROWS_AS(m.gauge("g", "G.", {{"model", "x"}}), CheckFailed);
  CHECK_THROWS_AS(m.histogram("h", "H.", {1}, {{"le", "1"}}), CheckFailed);
  CHECK_THROWS_AS(m.histogram("h_sum", "H.", {1}), CheckFailed);
  CHECK_THROWS_AS(m.histogram("h", "H.", {}), CheckFailed);
  CHECK_THROWS_AS(m.histogram("h", "H.", {2, 1}), CheckFailed);
  CHECK_NOTHROW(m.gauge("vllm:num_requests_running", "R."));
  m.gauge("g", "G.");
  CHECK_THROWS_AS(m.gauge("g", "Another help."), CheckFailed);
  CHECK_THROWS_AS(m.histogram("g", "G.", {1}), CheckFailed);
  CHECK_THROWS_AS(m.gauge_of("g", "G.", [] { return 0.0; }), CheckFailed);
  MetricCounter& c = m.counter("c_total", "C.");
  CHECK_THROWS_AS(c.add(-1), CheckFailed);
}
