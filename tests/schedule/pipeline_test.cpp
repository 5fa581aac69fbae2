// Each schedule's lists, for every shape: complete, free of deadlock, within the memory its paper promises.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "libcore/schedule/pipeline.h"

using namespace rw;

namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                   ScheduleKind::zb_h1};

// The most micro-batches of all chunks at once between a forward and the action `last`.
int most_live(const std::vector<Action>& actions, ActionKind last) {
  int now = 0, most = 0;
  for (const Action& a : actions) {
    if (a.kind == ActionKind::forward) most = std::max(most, ++now);
    if (a.kind == last) --now;
  }
  return most;
}

std::string text(const std::vector<Action>& actions) {
  std::string out;
  for (const Action& a : actions) {
    const char* letter = a.kind == ActionKind::forward          ? "F"
                         : a.kind == ActionKind::backward       ? "B"
                         : a.kind == ActionKind::backward_input ? "I"
                                                                : "W";
    out += (out.empty() ? "" : " ") + (letter + std::to_string(a.micro_batch));
    if (a.chunk > 0) out += std::string(static_cast<size_t>(a.chunk), '\'');
  }
  return out;
}

}  // namespace

TEST_CASE("every schedule is complete, in order and free of deadlock") {
  int n = 0;
  for (const ScheduleKind kind : kKinds)
    for (int stages = 1; stages <= 8; ++stages)
      for (int chunks = 1; chunks <= 4; ++chunks)
        for (int micro_batches = 1; micro_batches <= 32; ++micro_batches, ++n)
          if (const std::string fault = check_schedule({kind, stages, chunks, micro_batches}); !fault.empty())
            FAIL(schedule_name(kind) << " " << stages << " x " << chunks << " x " << micro_batches << ": " << fault);
  CHECK(n == 4096);
}

TEST_CASE("larger pipelines too") {
  for (const ScheduleKind kind : kKinds)
    for (const int stages : {13, 16, 64})
      for (const int chunks : {1, 2, 5})
        for (const int micro_batches : {1, 15, 63, 64, 65, 127, 131}) {
          CAPTURE(schedule_name(kind));
          CAPTURE(stages);
          CAPTURE(chunks);
          CAPTURE(micro_batches);
          CHECK(check_schedule({kind, stages, chunks, micro_batches}) == "");
        }
}

TEST_CASE("the lists as the papers draw them") {
  const auto list = [](ScheduleKind kind, int stages, int chunks, int micro_batches, int stage) {
    return text(pipeline_actions({kind, stages, chunks, micro_batches}, stage));
  };
  CHECK(list(ScheduleKind::gpipe, 2, 1, 3, 0) == "F0 F1 F2 B0 B1 B2");
  CHECK(list(ScheduleKind::one_f_one_b, 1, 1, 3, 0) == "F0 B0 F1 B1 F2 B2");
  // Narayanan et al. 2021, figure 4: 4 stages, 8 micro-batches.
  CHECK(list(ScheduleKind::one_f_one_b, 4, 1, 8, 0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  CHECK(list(ScheduleKind::one_f_one_b, 4, 1, 8, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
  // The same figure's interleaved half: 2 chunks (' is the second), devices 1 and 4.
  CHECK(list(ScheduleKind::interleaved, 4, 2, 8, 0) ==
        "F0 F1 F2 F3 F0' F1' F2' F3' F4 F5 F6 B0' F7 B1' F4' B2' F5' B3' F6' B0 F7' B1 B2 B3 B4' B5' B6' B7' B4 B5 B6 "
        "B7");
  CHECK(list(ScheduleKind::interleaved, 4, 2, 8, 3) ==
        "F0 F1 F2 F3 F0' B0' F1' B1' F2' B2' F3' B3' F4 B0 F5 B1 F6 B2 F7 B3 F4' B4' F5' B5' F6' B6' F7' B7' B4 B5 B6 "
        "B7");
  // Qi et al. 2023, figure 3 (ZB-H1), devices 1 and 4.
  CHECK(list(ScheduleKind::zb_h1, 4, 1, 5, 0) == "F0 F1 F2 F3 I0 W0 F4 I1 W1 I2 W2 I3 W3 I4 W4");
  CHECK(list(ScheduleKind::zb_h1, 4, 1, 5, 3) == "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 W2 W3 W4");
}

TEST_CASE("activations held: all of gpipe's, at most stages - stage of 1f1b's, at most stages of zb-h1's") {
  for (int stages = 1; stages <= 8; ++stages)
    for (int micro_batches = 1; micro_batches <= 19; ++micro_batches)
      for (int stage = 0; stage < stages; ++stage) {
        CAPTURE(stages);
        CAPTURE(micro_batches);
        CAPTURE(stage);
        const auto of = [&](ScheduleKind kind) { return pipeline_actions({kind, stages, 1, micro_batches}, stage); };
        CHECK(live_of(of(ScheduleKind::gpipe), 1)[0].activations == micro_batches);
        CHECK(live_of(of(ScheduleKind::one_f_one_b), 1)[0].activations == std::min(stages - stage, micro_batches));
        CHECK(live_of(of(ScheduleKind::one_f_one_b), 1)[0].weight_gradients == 0);
        const std::vector<Action> zb = of(ScheduleKind::zb_h1);
        CHECK(most_live(zb, ActionKind::backward_input) == std::min(stages - stage, micro_batches));
        CHECK(live_of(zb, 1)[0].activations == std::min(stages, micro_batches));
        CHECK(live_of(zb, 1)[0].weight_gradients == std::min(stage + 1, micro_batches));
      }
}

TEST_CASE("activations held by interleaved 1f1b") {
  // Narayanan et al. 2021, section 2.2: with equal chunks, 1F1B's memory times 1 + (p - 1) / (p v) on the first stage.
  for (int stages = 2; stages <= 8; ++stages)
    for (int chunks = 2; chunks <= 4; ++chunks) {
      const std::vector<Action> first = pipeline_actions({ScheduleKind::interleaved, stages, chunks, 4 * stages}, 0);
      CHECK(most_live(first, ActionKind::backward) == stages * chunks + stages - 1);
      int sum = 0;
      for (const Live& l : live_of(first, chunks)) sum += l.activations;
      CHECK(sum >= most_live(first, ActionKind::backward));
    }
}

TEST_CASE("zb-h1 with several chunks: no stage holds more than the first stage of interleaved 1f1b") {
  for (int stages = 1; stages <= 8; ++stages)
    for (int chunks = 2; chunks <= 4; ++chunks)
      for (const int micro_batches : {1, 3, 8, 11, 16, 32}) {
        const PipelineShape zb{ScheduleKind::zb_h1, stages, chunks, micro_batches};
        const PipelineShape interleaved{ScheduleKind::interleaved, stages, chunks, micro_batches};
        const int bound = most_live(pipeline_actions(interleaved, 0), ActionKind::backward);
        for (int stage = 0; stage < stages; ++stage)
          CHECK(most_live(pipeline_actions(zb, stage), ActionKind::backward_weight) <= bound);
      }
}

TEST_CASE("a stage's gradients are added in the order of the micro-batches in every schedule") {
  for (const ScheduleKind kind : kKinds)
    for (const int chunks : {1, 3}) {
      std::vector<int> last(static_cast<size_t>(chunks), -1);
      for (const Action& a : pipeline_actions({kind, 4, chunks, 11}, 2))
        if (a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight) {
          CHECK(a.micro_batch == last[static_cast<size_t>(a.chunk)] + 1);
          last[static_cast<size_t>(a.chunk)] = a.micro_batch;
        }
    }
}

TEST_CASE("names") {
  CHECK(std::string(schedule_name(ScheduleKind::gpipe)) == "gpipe");
  CHECK(std::string(schedule_name(ScheduleKind::one_f_one_b)) == "1f1b");
  CHECK(std::string(schedule_name(ScheduleKind::interleaved)) == "interleaved");
  CHECK(std::string(schedule_name(ScheduleKind::zb_h1)) == "zb-h1");
}

TEST_CASE("shapes and stages that are none") {
  CHECK_THROWS(pipeline_actions({ScheduleKind::gpipe, 0, 1, 1}, 0));
  CHECK_THROWS(pipeline_actions({ScheduleKind::gpipe, 1, 0, 1}, 0));
  CHECK_THROWS(pipeline_actions({ScheduleKind::gpipe, 1, 1, 0}, 0));
  CHECK_THROWS(pipeline_actions({ScheduleKind::gpipe, 2, 1, 1}, 2));
  CHECK_THROWS(pipeline_actions({ScheduleKind::gpipe, 2, 1, 1}, -1));
}
