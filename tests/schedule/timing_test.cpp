// The event simulation against the papers' bubbles and against timelines worked out by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "libcore/schedule/pipeline.h"

using namespace rw;

namespace {

struct Seconds {
  double f, b, w;
};

StageTimes equal_times(const PipelineShape& shape, const Seconds& t, double message = 0) {
  const auto all = [&](double seconds) {
    return std::vector<std::vector<double>>(static_cast<size_t>(shape.stages),
                                            std::vector<double>(static_cast<size_t>(shape.chunks), seconds));
  };
  return {.forward = all(t.f), .backward_input = all(t.b), .backward_weight = all(t.w), .message = message};
}

double idle_s(const PipelineShape& shape, const Seconds& t) {  // of a stage, beside its work
  return time_schedule(shape, equal_times(shape, t)).seconds - shape.micro_batches * shape.chunks * (t.f + t.b + t.w);
}

}  // namespace

TEST_CASE("gpipe and 1f1b: a share of (p - 1) / (m + p - 1) is bubble") {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b})
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 17; ++m) {
        const PipelineShape shape{kind, p, 1, m};
        const Timeline t = time_schedule(shape, equal_times(shape, {1, 1.25, 0.75}));
        CHECK(t.seconds == doctest::Approx(3.0 * (m + p - 1)));
        CHECK(t.bubble == doctest::Approx((p - 1.0) / (m + p - 1.0)));
      }
}

TEST_CASE("interleaved: v chunks divide the bubble by v") {
  for (int p = 2; p <= 8; ++p)
    for (int v = 1; v <= 4; ++v)
      for (const int groups : {1, 2, 5}) {
        const PipelineShape shape{ScheduleKind::interleaved, p, v, groups * p};
        CHECK(idle_s(shape, {1.0 / v, 1.0 / v, 1.0 / v}) == doctest::Approx(3.0 * (p - 1) / v));
        const Timeline t = time_schedule(shape, equal_times(shape, {1.0 / v, 1.0 / v, 1.0 / v}));
        CHECK(t.bubble == doctest::Approx((p - 1.0) / (v * groups * p + p - 1.0)));
      }
}

TEST_CASE("zb-h1: (p - 1) (F + B - W) instead of 1f1b's (p - 1) (F + B + W)") {
  for (int p = 2; p <= 8; ++p)
    for (int m = p; m <= 3 * p + 1; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      CHECK(idle_s({ScheduleKind::zb_h1, p, 1, m}, {1, 1, 1}) == doctest::Approx(p - 1.0));
      CHECK(idle_s({ScheduleKind::one_f_one_b, p, 1, m}, {1, 1, 1}) == doctest::Approx(3 * (p - 1.0)));
    }
  for (int p = 2; p <= 8; ++p)  // too few micro-batches to fill it, still less than 1f1b
    for (int m = 1; m < p; ++m)
      CHECK(idle_s({ScheduleKind::zb_h1, p, 1, m}, {1, 1, 1}) <
            idle_s({ScheduleKind::one_f_one_b, p, 1, m}, {1, 1, 1}));
}

TEST_CASE("one stage has no bubble") {
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1})
    for (int v = 1; v <= 3; ++v) {
      const PipelineShape shape{kind, 1, v, 5};
      const Timeline t = time_schedule(shape, equal_times(shape, {1, 2, 3}, 100));  // it sends itself no message
      CHECK(t.seconds == doctest::Approx(30.0 * v));
      CHECK(t.bubble == doctest::Approx(0));
    }
}

TEST_CASE("unequal stages and messages, by hand") {
  // Stage 0: F 1 s, B 2 s; stage 1: F 3 s, B 4 s; a message takes 0.5 s.
  //   stage 0: F0 [0,1] F1 [1,2]  B0 [9,11]    B1 [16,18]
  //   stage 1: F0 [1.5,4.5] B0 [4.5,8.5] F1 [8.5,11.5] B1 [11.5,15.5]
  const PipelineShape shape{ScheduleKind::one_f_one_b, 2, 1, 2};
  const Timeline t = time_schedule(
      shape, {.forward = {{1}, {3}}, .backward_input = {{1.5}, {1}}, .backward_weight = {{0.5}, {3}}, .message = 0.5});
  CHECK(t.seconds == doctest::Approx(18));
  CHECK(t.bubble == doctest::Approx(1 - (6.0 + 14.0) / 36.0));
  const double begins[2][4] = {{0, 1, 9, 16}, {1.5, 4.5, 8.5, 11.5}};
  for (size_t s = 0; s < 2; ++s)
    for (size_t i = 0; i < 4; ++i) CHECK(t.of_stage[s][i].begin == doctest::Approx(begins[s][i]));
  CHECK(t.of_stage[1][1].action == Action{ActionKind::backward, 0, 0});
}

TEST_CASE("no stage does two things at once, in any timing") {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::interleaved, ScheduleKind::zb_h1}) {
    const PipelineShape shape{kind, 3, 2, 7};
    StageTimes times = equal_times(shape, {1, 1, 1}, 0.3);
    for (size_t s = 0; s < 3; ++s)
      for (size_t c = 0; c < 2; ++c) {
        times.forward[s][c] = 0.1 + 0.7 * static_cast<double>((s * 5 + c * 3) % 7);
        times.backward_input[s][c] = 0.2 + 0.4 * static_cast<double>((s * 3 + c * 2) % 5);
      }
    const Timeline t = time_schedule(shape, times);
    for (const auto& stage : t.of_stage) {
      CHECK(stage.size() == (kind == ScheduleKind::zb_h1 ? 42u : 28u));
      for (size_t i = 1; i < stage.size(); ++i) CHECK(stage[i].begin >= stage[i - 1].end);
    }
    CHECK(t.bubble > 0);
    CHECK(t.bubble < 1);
  }
}

TEST_CASE("lists that cannot run, and times of another shape, are refused") {
  const PipelineShape shape{ScheduleKind::gpipe, 1, 1, 1};
  CHECK_THROWS(time_actions(shape, {{{ActionKind::backward, 0, 0}}}, equal_times(shape, {1, 1, 1})));
  CHECK_THROWS(time_schedule({ScheduleKind::gpipe, 2, 1, 1}, equal_times(shape, {1, 1, 1})));
}

TEST_CASE("a measured step is timed again as it was, and its messages are found") {
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1})
    for (const int stages : {2, 3, 5}) {
      const PipelineShape shape{.kind = kind,
                                .stages = stages,
                                .chunks = kind == ScheduleKind::interleaved ? 2 : 1,
                                .micro_batches = 2 * stages};
      StageTimes times;
      for (auto* of : {&times.forward, &times.backward_input, &times.backward_weight})
        for (int s = 0; s < stages; ++s)
          of->push_back(
              std::vector<double>(static_cast<size_t>(shape.chunks), of == &times.forward ? 1.0 + 0.01 * s : 1.25));
      times.message = 0.125;
      const Timeline once = time_schedule(shape, times);
      CHECK(message_seconds(shape, once.of_stage) == doctest::Approx(0.125));
      const Timeline again = time_again(shape, once.of_stage, 0.125);
      CHECK(again.seconds == doctest::Approx(once.seconds));
      CHECK(again.bubble == doctest::Approx(once.bubble));
      CHECK(time_again(shape, once.of_stage, 0).seconds < once.seconds);
    }
}
