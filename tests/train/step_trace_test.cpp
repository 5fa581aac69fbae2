// What of a step is drawn, and where.
#include "libcore/train/step_trace.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"

using namespace rw;

namespace {

CommOp operation(const char* group, double start_s, double end_s) {
  return {.kind = CommKind::all_reduce,
          .group = group,
          .sequence = 3,
          .bytes = 400,
          .peer = -1,
          .state = CommOp::State::done,
          .start_s = start_s,
          .end_s = end_s,
          .phase = "backward",
          .step = 7,
          .micro_batch = 2};
}

Json drawn(const std::vector<std::string>& texts, double zero_s) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("step_trace_{}.json", ::getpid());
  {
    ChromeTrace trace(file, "rank 0 on a");
    CHECK(draw_traces(trace, texts, zero_s));
  }
  Json events = Json::parse(read_file(file));
  std::filesystem::remove(file);
  return events;
}

// Of the events of a kind ("X", "M"), those of a rank.
std::vector<Json> of_rank(const Json& events, int64_t rank, const char* kind) {
  std::vector<Json> found;
  for (const Json& e : events)
    if (e["pid"] == rank + 1 && e["ph"] == kind) found.push_back(e);
  return found;
}

}  // namespace

TEST_CASE("steps to draw: one, a range, none; anything else is refused") {
  CHECK(!parse_trace_steps("").holds(1));
  const TraceSteps one = parse_trace_steps("12"), some = parse_trace_steps("10..12");
  CHECK((!one.holds(11) && one.holds(12) && !one.holds(13)));
  CHECK((!some.holds(9) && some.holds(10) && some.holds(11) && some.holds(12) && !some.holds(13)));
  for (const char* wrong :
       {"0", "-3", "x", "3..", "..3", "3..2", "3...4", "3.5", "99999999999999999999", "1..2..3", " 3"})
    CHECK_THROWS_WITH_AS(parse_trace_steps(wrong), doctest::Contains("--trace-steps: expected a"), Error);
}

TEST_CASE("a rank's rows: phases follow each other, operations under way together lie apart") {
  CommRecord record;
  record.step = 7;
  record.host = "a";
  record.groups["dp"] = {};
  record.groups["tp"] = {};
  std::string text;
  const double now = now_s();
  {
    StepTrace trace(record);
    trace.phase("data");
    trace.phase("pipeline");
    trace.phase("");
    trace.add({{.action = {.kind = ActionKind::backward_weight, .chunk = 1, .micro_batch = 5},
                .begin = now + 1,
                .end = now + 2}});
    REQUIRE(record.on_end);
    // Seen to be done in another order than started.
    record.on_end(operation("tp", now + 4, now + 5));
    record.on_end(operation("tp", now + 1, now + 3));
    record.on_end(operation("tp", now + 2, now + 4));
    record.on_end(operation("dp", now + 2, now + 3));
    text = trace.text();
  }
  CHECK(!record.on_end);
  const std::vector<Json> events = of_rank(drawn({text}, now), 0, "X");
  REQUIRE(events.size() == 7);
  CHECK(events[0]["name"] == "data");
  CHECK(events[1]["name"] == "pipeline");
  CHECK(events[0]["ts"].get<double>() + events[0]["dur"].get<double>() ==
        doctest::Approx(events[1]["ts"].get<double>()));
  CHECK(events[2]["name"] == "backward, weights 5");
  CHECK(events[2]["ts"] == doctest::Approx(1e6));
  CHECK(events[2]["args"] == Json{{"step", 7}, {"micro_batch", 5}, {"chunk", 1}});
  // tp 1..3 and 4..5 on one row, 2..4 on the next; dp has a row of its own.
  CHECK(events[3]["tid"] == events[6]["tid"]);
  CHECK(events[4]["tid"] != events[3]["tid"]);
  CHECK(events[3]["args"] ==
        Json{{"step", 7}, {"bytes", 400}, {"number", 3}, {"phase", "backward"}, {"micro_batch", 2}});
  std::map<int64_t, std::string> names;
  for (const Json& e : of_rank(drawn({text}, now), 0, "M"))
    if (e["name"] == "thread_name") CHECK(names.emplace(e["tid"], e["args"]["name"]).second);
  CHECK(names[0] == "step");
  CHECK(names[1] == "pipeline");
  CHECK(names[events[3]["tid"]] == "tp");
  CHECK(names[events[4]["tid"]] == "tp (2)");
  CHECK(names[events[5]["tid"]] == "dp");
  CHECK(names.size() == 5);
}

TEST_CASE("ranks of a host share its clock, another host's is set by the barrier") {
  const auto text = [](int rank, const char* host, double zero, double begin) {
    return Json{{"rank", rank},
                {"host", host},
                {"zero", zero},
                {"events",
                 {{{"row", 1},
                   {"row_name", "pipeline"},
                   {"name", "forward 0"},
                   {"begin", begin},
                   {"end", begin + 1},
                   {"args", Json::object()}}}}}
        .dump();
  };
  // Rank 1 left the barrier late, on the same clock; b's clock is 1000 s ahead.
  const Json events = drawn(
      {text(0, "a", 100, 101), text(1, "a", 100.5, 101), text(2, "b", 1100, 1101), text(3, "b", 1100.2, 1102)}, 90);
  const auto begin = [&](int64_t rank) { return of_rank(events, rank, "X").at(0)["ts"].get<double>() / 1e6; };
  CHECK(begin(0) == doctest::Approx(11));
  CHECK(begin(1) == doctest::Approx(11));
  CHECK(begin(2) == doctest::Approx(11));
  CHECK(begin(3) == doctest::Approx(12));
  CHECK(of_rank(events, 3, "M").at(0)["args"]["name"] == "rank 3 on b");
}
