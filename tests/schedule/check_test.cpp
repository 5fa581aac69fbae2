// The checker says no to what it should: lists with a planted fault.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "libcore/schedule/pipeline.h"

using namespace rw;

namespace {

using Lists = std::vector<std::vector<Action>>;

Lists lists_of(const PipelineShape& shape) {
  Lists lists;
  for (int s = 0; s < shape.stages; ++s) lists.push_back(pipeline_actions(shape, s));
  return lists;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr ActionKind F = ActionKind::forward, B = ActionKind::backward, I = ActionKind::backward_input,
                     W = ActionKind::backward_weight;

const PipelineShape kShapes[] = {{ScheduleKind::gpipe, 3, 1, 5},       {ScheduleKind::one_f_one_b, 3, 1, 5},
                                 {ScheduleKind::interleaved, 3, 2, 6}, {ScheduleKind::zb_h1, 4, 1, 5},
                                 {ScheduleKind::zb_h1, 2, 2, 3},       {ScheduleKind::one_f_one_b, 1, 3, 2}};

}  // namespace

TEST_CASE("any dropped action is missed") {
  for (const PipelineShape& shape : kShapes)
    for (size_t s = 0; s < static_cast<size_t>(shape.stages); ++s)
      for (size_t i = 0; i < lists_of(shape)[s].size(); ++i) {
        Lists lists = lists_of(shape);
        lists[s].erase(lists[s].begin() + static_cast<std::ptrdiff_t>(i));
        CHECK(check_actions(shape, lists) != "");
      }
}

TEST_CASE("any duplicated action is refused") {
  for (const PipelineShape& shape : kShapes)
    for (size_t s = 0; s < static_cast<size_t>(shape.stages); ++s)
      for (size_t i = 0; i < lists_of(shape)[s].size(); ++i) {
        Lists lists = lists_of(shape);
        const Action again = lists[s][i];
        lists[s].push_back(again);
        CHECK(has(check_actions(shape, lists), "is done twice"));
        lists = lists_of(shape);
        lists[s].insert(lists[s].begin() + static_cast<std::ptrdiff_t>(i), again);
        CHECK(has(check_actions(shape, lists), "is done twice"));
      }
}

TEST_CASE("micro-batches of one kind swapped on one stage meet the wrong message") {
  for (const PipelineShape& shape : kShapes) {
    if (shape.stages == 1) continue;
    for (size_t s = 0; s < static_cast<size_t>(shape.stages); ++s)
      for (const ActionKind kind : {F, B, I}) {
        Lists lists = lists_of(shape);
        std::vector<size_t> same;
        for (size_t i = 0; i < lists[s].size(); ++i)
          if (lists[s][i].kind == kind && lists[s][i].chunk == 0) same.push_back(i);
        if (same.size() < 2) continue;
        std::swap(lists[s][same[0]], lists[s][same[1]]);
        CAPTURE(schedule_name(shape.kind));
        CAPTURE(s);
        CHECK(check_actions(shape, lists) != "");
      }
  }
}

TEST_CASE("a backward moved before its forward, a weight half before its input half") {
  CHECK(has(check_actions({ScheduleKind::gpipe, 1, 1, 1}, {{{B, 0, 0}, {F, 0, 0}}}), "comes before its forward"));
  CHECK(has(check_actions({ScheduleKind::zb_h1, 1, 1, 1}, {{{F, 0, 0}, {W, 0, 0}, {I, 0, 0}}}),
            "comes before its input half"));
  CHECK(has(check_actions({ScheduleKind::zb_h1, 1, 1, 1}, {{{F, 0, 0}, {I, 0, 0}}}), "missing its weight half"));
  CHECK(has(check_actions({ScheduleKind::zb_h1, 1, 1, 1}, {{{F, 0, 0}, {B, 0, 0}, {W, 0, 0}}}), "is done twice"));
  CHECK(check_actions({ScheduleKind::zb_h1, 1, 1, 2}, {{{F, 0, 0}, {I, 0, 0}, {F, 0, 1}, {B, 0, 1}, {W, 0, 0}}}) == "");
}

TEST_CASE("chunks and micro-batches that are none") {
  CHECK(has(check_actions({ScheduleKind::gpipe, 1, 1, 1}, {{{F, 1, 0}}}), "there are 1 chunks"));
  CHECK(has(check_actions({ScheduleKind::gpipe, 1, 1, 1}, {{{F, -1, 0}}}), "there are 1 chunks"));
  CHECK(has(check_actions({ScheduleKind::gpipe, 1, 1, 2}, {{{F, 0, 2}}}), "there are 2 micro-batches"));
  CHECK_THROWS(check_actions({ScheduleKind::gpipe, 2, 1, 1}, {{{F, 0, 0}}}));
}

TEST_CASE("two stages that wait for each other are a deadlock, and both are named") {
  // Stage 0 wants its first gradient before it sends the second micro-batch; stage 1 wants both before it sends one.
  const std::string fault =
      check_actions({ScheduleKind::one_f_one_b, 2, 1, 2},
                    {{{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}}, {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}}});
  CHECK(has(fault, "deadlock: stage 0 waits at action 1 (backward of chunk 0, micro-batch 0)"));
  CHECK(has(fault, "stage 1 waits at action 1 (forward of chunk 0, micro-batch 1)"));
}

TEST_CASE("messages taken in another order than sent are named with what came") {
  const std::string fault =
      check_actions({ScheduleKind::gpipe, 2, 1, 2},
                    {{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}}, {{F, 0, 1}, {F, 0, 0}, {B, 0, 0}, {B, 0, 1}}});
  CHECK(has(fault, "stage 1, action 0 (forward of chunk 0, micro-batch 1)"));
  CHECK(has(fault, "the next message from stage 0 is for chunk 0, micro-batch 0"));
}
