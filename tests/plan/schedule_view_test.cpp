#include "libcore/plan/draw/schedule_view.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

using namespace rw;

namespace {

ScheduleView even(ScheduleKind kind, int p, int v, int m, double message = 0) {
  return even_schedule({.shape = {.kind = kind, .stages = p, .chunks = v, .micro_batches = m},
                        .forward_s = 1,
                        .backward_s = 2,
                        .message_s = message});
}

}  // namespace

TEST_CASE("GPipe of two stages, drawn by hand") {
  // forward 1 s, backward 2 s, 3 micro-batches: 3 forwards, a gap of 3 s on stage 0, 3 backwards: 12 s, 3 of 12 idle.
  const ScheduleView view = even(ScheduleKind::gpipe, 2, 1, 3);
  CHECK(view.timeline.seconds == doctest::Approx(12));
  CHECK(ascii_timeline(view, 100) ==
        "stage 0  0F1F2F......0B--1B--2B--\n"
        "stage 1  ..0F1F2F0B--1B--2B--....\n");
  CHECK(ascii_timeline(view, 32) == "");
  CHECK(busy_seconds(view, 1) == doctest::Approx(9));
  CHECK(peak_memory(view, 0) == 3);
  const std::vector<MemoryStep> steps = memory_over_time(view, 1);
  REQUIRE(steps.size() == 7);
  const double wanted[][2] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {6, 2}, {8, 1}, {10, 0}};
  for (size_t i = 0; i < steps.size(); ++i) {
    CHECK(steps[i].at == doctest::Approx(wanted[i][0]));
    CHECK(steps[i].amount == doctest::Approx(wanted[i][1]));
  }
}

TEST_CASE("the simulated bubble is the formula's where one is known") {
  const ScheduleView cases[] = {even(ScheduleKind::gpipe, 5, 1, 7),       even(ScheduleKind::gpipe, 3, 4, 5),
                                even(ScheduleKind::one_f_one_b, 4, 1, 8), even(ScheduleKind::one_f_one_b, 16, 1, 64),
                                even(ScheduleKind::one_f_one_b, 3, 1, 3), even(ScheduleKind::interleaved, 4, 2, 8),
                                even(ScheduleKind::interleaved, 3, 5, 9), even(ScheduleKind::zb_h1, 4, 1, 8),
                                even(ScheduleKind::zb_h1, 5, 1, 11),      even(ScheduleKind::one_f_one_b, 1, 1, 6)};
  for (const ScheduleView& view : cases) {
    CAPTURE(schedule_name(view.shape.kind));
    CAPTURE(view.shape.stages);
    const auto known = known_bubble(view);
    REQUIRE(known.has_value());
    CHECK(view.timeline.bubble == doctest::Approx(*known));
  }
  CHECK(*known_bubble(even(ScheduleKind::one_f_one_b, 4, 1, 8)) == doctest::Approx(3.0 / 11));
  CHECK(*known_bubble(even(ScheduleKind::interleaved, 4, 2, 8)) == doctest::Approx(3.0 / 19));
}

TEST_CASE("no formula where none holds") {
  CHECK_FALSE(known_bubble(even(ScheduleKind::one_f_one_b, 4, 1, 3)).has_value());
  CHECK_FALSE(known_bubble(even(ScheduleKind::interleaved, 4, 2, 9)).has_value());
  CHECK_FALSE(known_bubble(even(ScheduleKind::zb_h1, 2, 2, 8)).has_value());
  ScheduleView uneven = even(ScheduleKind::one_f_one_b, 2, 1, 4);
  uneven.times.forward[1][0] = 1.5;
  CHECK_FALSE(known_bubble(uneven).has_value());
  uneven.times = {};
  CHECK_FALSE(known_bubble(uneven).has_value());
}

TEST_CASE("memory: what 1F1B and interleaving keep") {
  // 1F1B: stage i holds p - i micro-batches (Narayanan et al. 2019), however many there are.
  const ScheduleView flat = even(ScheduleKind::one_f_one_b, 5, 1, 13, 0.1);
  for (int s = 0; s < 5; ++s) CHECK(peak_memory(flat, s) == 5 - s);
  // Interleaved: 1 + (p - 1) / (p v) times 1F1B's on stage 0 (Korthikanti et al. 2022).
  CHECK(peak_memory(even(ScheduleKind::interleaved, 4, 2, 8), 0) == doctest::Approx(4 * (1 + 3.0 / 8)));
  // ZB-H1 never more than 1F1B's first stage.
  for (int s = 0; s < 5; ++s) CHECK(peak_memory(even(ScheduleKind::zb_h1, 5, 1, 13), s) <= 5);
  ScheduleView bytes = flat;
  bytes.in_bytes = true;
  bytes.base.assign(5, 100);
  CHECK(peak_memory(bytes, 2) == 103);
  CHECK(memory_over_time(bytes, 2).front().amount == 100);
  CHECK(memory_over_time(bytes, 2).back().amount == 100);
}

TEST_CASE("text and JSON say what the timeline says") {
  const ScheduleView view = even(ScheduleKind::one_f_one_b, 4, 1, 8, 0.25);
  const std::string text = schedule_text(view, 150);
  CHECK(text.find("27.27 % by formula: (p-1) / (v m + p-1), with messages that take no time") != std::string::npos);
  CHECK(text.find("stage 3  ") != std::string::npos);
  CHECK(schedule_text(view, 20).find("stage 3  ") == std::string::npos);
  const Json json = schedule_json(view);
  CHECK(json["schedule"] == "1f1b");
  CHECK(json["stages"].size() == 4);
  CHECK(json["stages"][2]["actions"].size() == 16);
  CHECK(json["stages"][2]["most_micro_batches"] == 2);
  CHECK(json["bubble_formula"].get<double>() == doctest::Approx(3.0 / 11));
  CHECK(json["pipeline_s"].get<double>() == view.timeline.seconds);
  ScheduleView unknown = view;
  unknown.times = {};
  CHECK(schedule_json(unknown)["bubble_formula"].is_null());
  // Halves and chunks have letters of their own.
  const std::string halves = ascii_timeline(even(ScheduleKind::zb_h1, 2, 1, 2), 90);
  CHECK(halves.find('I') != std::string::npos);
  CHECK(halves.find('W') != std::string::npos);
  CHECK(ascii_timeline(even(ScheduleKind::interleaved, 2, 2, 2), 90).find("1f") != std::string::npos);
}
