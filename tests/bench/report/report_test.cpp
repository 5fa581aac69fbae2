// The report's parts: decimation, ticks, escaping, and pages of runs that are whole, empty or hostile.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/bench/report/envelope.h"
#include "libcore/bench/report/html.h"
#include "libcore/bench/report/report.h"
#include "libcore/bench/report/svg_chart.h"

using namespace rw;

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

StepRecord step_at(int64_t step) {
  StepRecord s;
  s.step = step;
  s.loss = 8.0 / std::sqrt(static_cast<double>(step));
  s.lr = 1e-3, s.grad_norm = 1 + 0.01 * static_cast<double>(step % 7);
  s.step_s = 0.25, s.tokens_per_s = 1024 / 0.25;
  s.tokens = 1024.0 * static_cast<double>(step), s.samples = 4.0 * static_cast<double>(step);
  s.mfu_full = 0.41, s.mfu_causal = 0.39, s.mfu_hardware = 0.4, s.loss_scale = kNone;
  s.seconds = {0.2, 0.03, 0.01, 0.01, 0};
  s.exposed_s = 0.03, s.communication_s = 0.05;
  s.calls["replica.all_reduce"] = 8, s.bytes["replica.all_reduce"] = 1e6;
  s.memory_bytes = {{"weights", 1e8}, {"optimizer", 2e8}, {"planned", 3e8}, {"outside_arena", 1e7}};
  return s;
}

ReportRun run_of(int64_t steps) {
  ReportRun run;
  run.label = "run";
  run.records.identity =
      R"({"run_id":"ab","config":{"model":"<script>alert(1)</script>","seq_len":256,"recompute":"none"},)"
      R"("layout":{"text":"tp 1 x pp 2 x dp 1","pp":2,"vpp":1,"micro_batches":4,"schedule":"1f1b","zero":0,"micro_batch":1},)"
      R"("hosts":["a","a","b"],"predicted":{"step-time-s":0.2,"compute-s":0.18,"memory-bytes":310000000}})";
  for (int64_t i = 1; i <= steps; ++i) run.records.steps.push_back(step_at(i));
  return run;
}

int64_t count(const std::string& text, const std::string& what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

std::string page_of(std::vector<ReportRun> runs) {
  ReportInputs in;
  in.runs = std::move(runs);
  in.made = "2026-01-31T12:34:56Z";
  return report_html(in);
}

}  // namespace

TEST_CASE("an envelope keeps every column's lowest and highest point, the ends, and gaps") {
  std::vector<Point> points;
  for (int i = 0; i < 10007; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.001)});
  points[6173].y = 50, points[1234].y = -70, points[9001].y = kNone;
  const std::vector<Point> out = envelope(points, 101);
  CHECK(out.size() <= 5 * 101);
  CHECK(out.size() > 2 * 101);
  CHECK(out.front().x == 0);
  CHECK(out.back().x == 10006);
  bool high = false, low = false, gap = false;
  for (size_t i = 0; i < out.size(); ++i) {
    high = high || (out[i].x == 6173 && out[i].y == 50);
    low = low || (out[i].x == 1234 && out[i].y == -70);
    gap = gap || std::isnan(out[i].y);
    if (i > 0) CHECK(out[i].x > out[i - 1].x);
  }
  CHECK(high);
  CHECK(low);
  CHECK(gap);
  CHECK(envelope(std::vector<Point>(points.begin(), points.begin() + 404), 101).size() == 404);
  CHECK(envelope({}, 7).empty());
}

TEST_CASE("column means") {
  const Means m = column_means({1, 2, 3, 4, 5, 6, 7}, {{1, 3, 5, 7, kNone, kNone, 9}}, 4);
  CHECK(m.per_column == 2);
  CHECK(m.x == std::vector<double>{1, 3, 5, 7});
  CHECK(m.rows[0][0] == 2);
  CHECK(m.rows[0][1] == 6);
  CHECK(std::isnan(m.rows[0][2]));
  CHECK(m.rows[0][3] == 9);
}

TEST_CASE("ticks lie inside their axis at round numbers") {
  CHECK(axis_ticks(0, 10, false, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(axis_ticks(1, 1000, true, 5) == std::vector<double>{1, 10, 100, 1000});
  for (const double low : {-3.7, 0.0, 1e-9, 123456.0})
    for (const double span : {1e-6, 0.3, 7.0, 1e9}) {
      const std::vector<double> ticks = axis_ticks(low, low + span, false, 5);
      CHECK(ticks.size() >= 2);
      CHECK(ticks.size() <= 8);
      CHECK(ticks.front() >= low - 1e-6 * span);
      CHECK(ticks.back() <= low + span * (1 + 1e-6));
    }
  CHECK(axis_ticks(0, 0, true, 5).empty());
  CHECK(tick_text(0) == "0");
  CHECK(tick_text(12000) == "12k");
  CHECK(tick_text(2500) == "2500");
  CHECK(tick_text(3.5e6) == "3.5M");
  CHECK(tick_text(0.004) == "0.004");
  CHECK(tick_text(1e-7) == "1e-07");
}

TEST_CASE("a distribution of four values steps at each by a quarter") {
  const Series s = cdf_series("", "s0", {3, 1, kNone, 2, 2});
  REQUIRE(s.points.size() == 8);
  CHECK(s.points[0].x == 1);
  CHECK(s.points[0].y == 0);
  CHECK(s.points[1].y == 0.25);
  CHECK(s.points[5].x == 2);
  CHECK(s.points[5].y == 0.75);
  CHECK(s.points[7].x == 3);
  CHECK(s.points[7].y == 1);
}

TEST_CASE("text is shown as it is, whatever it holds") {
  CHECK(escape_html("<b a=\"1\">'&") == "&lt;b a=&quot;1&quot;&gt;&#39;&amp;");
  CHECK(escape_html("gr\xC3\xBC\xC3\x9F"
                    "e") ==
        "gr\xC3\xBC\xC3\x9F"
        "e");
  CHECK(escape_html(std::string("\xC3(\x01\xED\xA0\x80", 6)) ==
        "\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(shortened("abcdefghij", 7) == "ab...ij");
  CHECK(shortened("abc", 7) == "abc");
  CHECK(number_text(1234567) == "1,234,567");
  CHECK(number_text(-12345.4) == "-12,345");
  CHECK(number_text(kNone) == "-");
}

TEST_CASE("a page of a run: sections, no script, no request, hostile names written out") {
  const std::string page = page_of({run_of(37)});
  CHECK(count(page, "<script") == 0);
  CHECK(count(page, "&lt;script&gt;alert(1)") >= 2);
  for (const char* id :
       {"short", "identity", "learning", "speed", "predicted", "pipeline", "memory", "hosts", "events"})
    CHECK_MESSAGE(count(page, fmt::format("<section id=\"{}\">", id)) == 1, id);
  CHECK(count(page, "src=") == 0);
  CHECK(count(page, "@import") == 0);
  CHECK(count(page, "url(") == 0);
  // The one address is SVG's name space.
  CHECK(count(page, "http") == count(page, "http://www.w3.org/2000/svg"));
  CHECK(count(page, "<svg") == count(page, "</svg>"));
  CHECK(count(page, "<section") == count(page, "</section>"));
  CHECK(count(page, "<div") == count(page, "</div>"));
  CHECK(count(page, "nan") == count(page, "nanosecond"));
  // 0.25 s a step: 25 % over the plan's 0.2 s.
  CHECK(page.find("+25.0 %") != std::string::npos);
}

TEST_CASE("a long run stays small, and its spike is drawn") {
  ReportRun run = run_of(100003);
  run.records.steps[54321].step_s = 91;
  const std::string page = page_of({run});
  CHECK(page.size() < 2'000'000);
  CHECK(page.find("longest 1:31") != std::string::npos);
}

TEST_CASE("an empty run says what is missing") {
  ReportRun run;
  run.label = "nothing";
  const std::string page = page_of({run});
  CHECK(page.find("run.json is missing") != std::string::npos);
  CHECK(page.find("No step is recorded") != std::string::npos);
  CHECK(page.find("No resources.jsonl") != std::string::npos);
  run.records.identity = "[1,2";
  run.records.events.push_back({"validation", "not a time", -1, "{\"val_loss\":\"x\"}"});
  run.records.resources.push_back({"", "h", kNone, -1, "torn"});
  run.diagnosis =
      R"({"findings":[{"id":"cpu.hog","severity":"warning","evidence":{"cpu.share":{"value":0.5,"text":"host b"}}}]})";
  CHECK(findings_section("findings", run.diagnosis).find("cpu.share 0.5 (host b)") != std::string::npos);
  run.diagnosis = "{\"findings\":7}";
  CHECK(page_of({run}).find("holds no list of findings") != std::string::npos);
}

TEST_CASE("numbers that are not known are no points") {
  ReportRun run = run_of(5);
  for (StepRecord& s : run.records.steps)
    s.loss = kNone, s.step_s = kNone, s.seconds.fill(kNone), s.memory_bytes.clear();
  const std::string page = page_of({run});
  CHECK(page.find("no data") != std::string::npos);
  CHECK(page.find("No step says what memory it held") != std::string::npos);
}

TEST_CASE("two runs: overlaid curves, and only what differs in the table") {
  ReportRun a = run_of(11), b = run_of(13);
  a.label = "a", b.label = "b";
  Json identity = Json::parse(b.records.identity);
  identity["config"]["lr"] = 0.5;
  identity["layout"]["zero"] = 2;
  b.records.identity = identity.dump();
  const std::string page = page_of({a, b});
  CHECK(count(page, "<section id=\"compare\">") == 1);
  CHECK(count(page, "<section id=\"run2-learning\">") == 1);
  CHECK(page.find("<td>config.lr</td><td>-</td><td>0.5</td>") != std::string::npos);
  CHECK(page.find("<td>layout.zero</td><td>0</td><td>2</td>") != std::string::npos);
  CHECK(page.find("<td>layout.pp</td>") == std::string::npos);
}

TEST_CASE("labels take as much of the paths as tells them apart") {
  CHECK(run_labels({"/x/a/run", "/x/b/run"}) == std::vector<std::string>{"a/run", "b/run"});
  CHECK(run_labels({"/x/a/", "/x/b"}) == std::vector<std::string>{"a", "b"});
  CHECK(run_labels({"/x/a", "/x/a"}) == std::vector<std::string>{"x/a (1)", "x/a (2)"});
}

TEST_CASE("a served load: distributions of single values from the intended time, percentiles otherwise") {
  BenchRecord kept;
  kept.bench = "serve", kept.name = "kept <i>";
  kept.details = R"({"completed":2,"ttfts":[0.1,null,0.3],"latencies":[0.5,0,0.9],"start_times":[1,2,3],)"
                 R"("due_times":[0.9,2,3],"output_lens":[5,0,4],"itls":[[0.1,0.1],[],[0.2]]})";
  BenchRecord summary;
  summary.bench = "serve", summary.name = "summary";
  summary.details = R"({"repeats":[{"median_ttft_ms":12.5,"p99_ttft_ms":80,"p99_e2el_from_due_ms":2000}]})";
  ReportInputs in;
  in.serve = {kept, summary};
  const std::string page = report_html(in);
  CHECK(page.find("kept &lt;i&gt;") != std::string::npos);
  CHECK(page.find("12.5 ms") != std::string::npos);
  CHECK(page.find("80 ms") != std::string::npos);
  CHECK(page.find("Drawn through the percentiles") != std::string::npos);
}

TEST_CASE("other records: a share of the limit, for times and for rates") {
  BenchRecord r;
  r.bench = "kernels", r.name = "case";
  BenchMetric t;
  t.name = "step_s", t.unit = "s", t.samples = {4, 2, 3}, t.limit = 1.5;
  r.metrics.push_back(t);
  t.name = "rate", t.better = Better::higher, t.limit = 12;
  r.metrics.push_back(t);
  ReportInputs in;
  in.bench = {r};
  const std::string page = report_html(in);
  CHECK(page.find("50.0 %") != std::string::npos);
  CHECK(page.find("25.0 %") != std::string::npos);
}
