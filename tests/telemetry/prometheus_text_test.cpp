// The reader against the examples of the specification (prometheus.io/docs/instrumenting/exposition_formats) and
// quantiles worked out by hand.
#include "libcore/telemetry/prometheus_text.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "libcore/base/error.h"
#include "libcore/telemetry/prometheus.h"

using namespace rw;

TEST_CASE("the specification's kinds of lines") {
  const MetricsText m = MetricsText::parse(
      "# HELP http_requests_total The total number of HTTP requests.\n"
      "# TYPE http_requests_total counter\n"
      "http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n"
      "http_requests_total{method=\"post\",code=\"400\"}    3 1395066363000\n"
      "\n"
      "# Escaping in label values:\n"
      "msdos_file_access_time_seconds{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot find file:\\n\\\"FILE.TXT\\\"\"} "
      "1.458255915e9\n"
      "metric_without_timestamp_and_labels 12.47\n"
      "something_weird{problem=\"division by zero\"} +Inf -3982045\n"
      "rpc_duration_seconds{quantile=\"0.01\"} 3102\r\n"
      "  indented { a = \"1\" , b=\"x\\q\", } NaN\n"
      "minus -Inf\n"
      "exemplar_bucket{le=\"1\"} 2 # {trace_id=\"a b\"} 0.5\n"
      "last 1e-3",
      "here");
  CHECK(m.samples().size() == 10);
  CHECK(m.sum("http_requests_total") == 1030);
  CHECK(m.value("http_requests_total", "code", "400") == 3);
  CHECK(m.value("http_requests_total", "method", "post") == 1030);
  CHECK(std::isnan(m.value("http_requests_total", "code", "500")));
  CHECK(std::isnan(m.value("http_requests_total", "no", "400")));
  CHECK(m.samples()[2].labels.at("path") == "C:\\DIR\\FILE.TXT");
  CHECK(m.samples()[2].labels.at("error") == "Cannot find file:\n\"FILE.TXT\"");
  CHECK(m.samples()[2].value == 1.458255915e9);
  CHECK(m.sum("metric_without_timestamp_and_labels") == 12.47);
  CHECK(m.sum("something_weird") == std::numeric_limits<double>::infinity());
  CHECK(m.sum("rpc_duration_seconds") == 3102);
  CHECK(std::isnan(m.sum("indented")));
  CHECK(m.has("indented"));
  CHECK(m.samples()[5].labels.size() == 1);
  CHECK(m.samples()[6].labels.at("b") == "x\\q");
  CHECK(m.sum("minus") == -std::numeric_limits<double>::infinity());
  CHECK(m.sum("exemplar_bucket") == 2);
  CHECK(m.sum("last") == 0.001);
  CHECK_FALSE(m.has("nowhere"));
  CHECK(std::isnan(m.sum("nowhere")));
  CHECK(MetricsText::parse("", "empty").samples().empty());
}

TEST_CASE("what is no metric names the place, the line and what was expected") {
  const auto message = [](const std::string& text) -> std::string {
    try {
      MetricsText::parse("# a comment\nok 1\n" + text, "http://h:1/metrics");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::input);
      const std::string said = e.what();
      CHECK(said.starts_with("http://h:1/metrics: line 3: expected "));
      return said;
    }
    return "";
  };
  CHECK(message("<html>").find("a metric's name, found \"<html>\"") != std::string::npos);
  CHECK(message("x").find("a number after the name") != std::string::npos);
  CHECK(message("x 1.5s").find("found \"1.5s\"") != std::string::npos);
  CHECK(message("x +-1").find("a number") != std::string::npos);
  CHECK(message("x 1 noon").find("a time") != std::string::npos);
  CHECK(message("x 1 2 3").find("the line's end, found \"3\"") != std::string::npos);
  CHECK(message("x{a=\"1\" b=\"2\"} 1").find("',' or '}'") != std::string::npos);
  CHECK(message("x{a=\"1\",a=\"2\"} 1").find("each label once, found \"a\"") != std::string::npos);
  CHECK(message("x{a=1} 1").find("in quotes") != std::string::npos);
  CHECK(message("x{a=\"1} 1").find("the quote that ends") != std::string::npos);
  CHECK(message("x{a\"1\"} 1").find("'=' after") != std::string::npos);
  CHECK(message("x{").find("a label's name or '}'") != std::string::npos);
  CHECK(message("9x 1").find("a metric's name") != std::string::npos);
}

TEST_CASE("quantiles inside a histogram's buckets") {
  // 10 of 40 up to 1, 30 up to 3, 36 up to 7, 4 beyond.
  const std::string text =
      "t_bucket{le=\"1\"} 10\nt_bucket{le=\"3\"} 30\nt_bucket{le=\"7\"} 36\nt_bucket{le=\"+Inf\"} 40\n";
  const MetricsText m = MetricsText::parse(text, "t");
  CHECK(m.histogram_quantile("t", 0.125) == doctest::Approx(0.5));  // the 5th of 10 in (0, 1]
  CHECK(m.histogram_quantile("t", 0.25) == doctest::Approx(1));     // just the first bucket
  CHECK(m.histogram_quantile("t", 0.5) == doctest::Approx(2));      // the 10th of 20 in (1, 3]
  CHECK(m.histogram_quantile("t", 0.8) == doctest::Approx(3 + 4.0 * 2 / 6));
  CHECK(m.histogram_quantile("t", 0.99) == 7);  // beyond: the last finite bound
  CHECK(m.histogram_quantile("t", 1) == 7);
  CHECK(m.histogram_quantile("t", 0) == 0);
  CHECK(std::isnan(m.histogram_quantile("t_bucket", 0.5)));
  CHECK(std::isnan(m.histogram_quantile("u", 0.5)));

  SUBCASE("all label sets together, in any order") {
    const MetricsText two = MetricsText::parse(
        "t_bucket{r=\"a\",le=\"+Inf\"} 25\nt_bucket{le=\"3.0\",r=\"a\"} 20\nt_bucket{r=\"b\",le=\"1\"} 4\n"
        "t_bucket{r=\"b\",le=\"3\"} 10\nt_bucket{r=\"b\",le=\"7\"} 12\nt_bucket{r=\"b\",le=\"+Inf\"} 15\n"
        "t_bucket{r=\"a\",le=\"1\"} 6\nt_bucket{r=\"a\",le=\"7\"} 24\n",
        "two");
    for (const double share : {0.1, 0.5, 0.8, 0.95})
      CHECK(two.histogram_quantile("t", share) == doctest::Approx(m.histogram_quantile("t", share)));
  }
  SUBCASE("empty, without +Inf, with a first bound below zero, torn") {
    CHECK(std::isnan(
        MetricsText::parse("t_bucket{le=\"1\"} 0\nt_bucket{le=\"+Inf\"} 0\n", "t").histogram_quantile("t", 0.5)));
    CHECK(std::isnan(
        MetricsText::parse("t_bucket{le=\"1\"} 3\nt_bucket{le=\"2\"} 4\n", "t").histogram_quantile("t", 0.5)));
    CHECK(std::isnan(MetricsText::parse("t_bucket{le=\"+Inf\"} 4\n", "t").histogram_quantile("t", 0.5)));
    CHECK(MetricsText::parse("t_bucket{le=\"-1\"} 3\nt_bucket{le=\"+Inf\"} 4\n", "t").histogram_quantile("t", 0.5) ==
          -1);
    CHECK(MetricsText::parse("t_bucket{le=\"1\"} 4\nt_bucket{le=\"2\"} 3\nt_bucket{le=\"+Inf\"} 8\n", "t")
              .histogram_quantile("t", 0.25) == doctest::Approx(0.5));
  }
}

TEST_CASE("reads what our registry writes") {
  MetricRegistry registry(MetricLabels{{"model", "a \"b\"\\\n"}});
  registry.counter("n_total", "N.").add(7);
  MetricHistogram& h = registry.histogram("wait_seconds", "Wait.", {0.1, 1});
  for (const double v : {0.05, 0.5, 0.6, 3.0}) h.observe(v);
  const MetricsText m = MetricsText::parse(registry.text(), "registry");
  CHECK(m.value("n_total", "model", "a \"b\"\\\n") == 7);
  CHECK(m.sum("wait_seconds_count") == 4);
  CHECK(m.histogram_quantile("wait_seconds", 0.5) == doctest::Approx(0.1 + 0.9 * 0.5));
}
