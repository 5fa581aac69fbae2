// Where devices wait, messages are handed over: a send ends when its receive runs, and streams hold what comes behind.
// Every schedule comes to its end so, with receives posted one action ahead at most.
#include "libcore/schedule/receive_order.h"

#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace rw;

namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                   ScheduleKind::zb_h1};

using Channel = std::tuple<int, int, bool>;  // from, to, whether for gradients

// Half a message: on its channel's stream at one end, behind what the computing stream held when it was put there.
struct Half {
  Channel channel;
  int virtual_stage, micro_batch;  // the boundary below which virtual stage, to compare both ends
  bool is_done = false;
};

// What a stage puts on its streams, in order.
struct Step {
  enum class Kind { start, wait } kind;
  size_t half;
};
struct Stage {
  std::vector<Half> halves;
  std::vector<Step> steps;
  size_t at = 0;                                                 // of the computing stream
  std::map<std::pair<Channel, bool>, std::deque<size_t>> begun;  // by channel and whether sent
};

std::vector<int64_t> slots_of(const PipelineShape& shape, int stage) {
  std::vector<int64_t> slots;
  for (const Live& l : live_of(pipeline_actions(shape, stage), shape.chunks)) slots.push_back(l.activations);
  return slots;
}

// As Pipeline has it (libcore/train/pipeline.cpp).
Stage put(const PipelineShape& shape, int me) {
  Stage stage;
  const int n = shape.stages;
  const auto slots = slots_of(shape, me);
  const auto posted = receives_before(shape, me, slots);
  const auto actions = pipeline_actions(shape, me);
  using Key = std::pair<int, int>;
  std::map<Key, size_t> in, out, in_grad, out_grad;
  const auto start = [&](std::map<Key, size_t>& of, const Action& a, const Channel& channel, int boundary) {
    stage.halves.push_back({channel, boundary, a.micro_batch});
    of[{a.chunk, a.micro_batch}] = stage.halves.size() - 1;
    stage.steps.push_back({Step::Kind::start, stage.halves.size() - 1});
  };
  const auto wait = [&](const std::map<Key, size_t>& of, int chunk, int micro_batch) {
    if (const auto at = of.find({chunk, micro_batch}); at != of.end())
      stage.steps.push_back({Step::Kind::wait, at->second});
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    for (const Action& r : posted[i]) {
      const int v = r.chunk * n + me;
      if (r.kind == ActionKind::forward) {
        start(in, r, {(me + n - 1) % n, me, false}, v);
      } else {
        wait(out, r.chunk, r.micro_batch);
        start(in_grad, r, {(me + 1) % n, me, true}, v + 1);
      }
    }
    const Action& a = actions[i];
    const int v = a.chunk * n + me;
    if (a.kind == ActionKind::forward) {
      wait(in, a.chunk, a.micro_batch);
      if (v + 1 < n * shape.chunks) start(out, a, {me, (me + 1) % n, false}, v + 1);
    } else if (a.kind != ActionKind::backward_weight) {
      wait(out, a.chunk, a.micro_batch);
      wait(in_grad, a.chunk, a.micro_batch);
      wait(out_grad, a.chunk, a.micro_batch - static_cast<int>(slots[static_cast<size_t>(a.chunk)]));
      if (v > 0) start(out_grad, a, {me, (me + n - 1) % n, true}, v);
    }
  }
  for (const auto& [key, half] : out_grad) stage.steps.push_back({Step::Kind::wait, half});
  return stage;
}

// "", or what stops.
std::string run(const PipelineShape& shape) {
  std::vector<Stage> stages;
  for (int s = 0; s < shape.stages; ++s) stages.push_back(put(shape, s));
  bool moved = true;
  while (moved) {
    moved = false;
    for (Stage& s : stages)
      for (; s.at < s.steps.size(); ++s.at, moved = true) {
        const Step& step = s.steps[s.at];
        const Half& half = s.halves[step.half];
        if (step.kind == Step::Kind::wait && !half.is_done) break;
        const bool is_sent = std::get<0>(half.channel) == static_cast<int>(&s - stages.data());
        if (step.kind == Step::Kind::start) s.begun[{half.channel, is_sent}].push_back(step.half);
      }
    for (Stage& s : stages)
      for (auto& [key, sent] : s.begun) {
        const auto& [channel, is_sent] = key;
        Stage& to = stages[static_cast<size_t>(std::get<1>(channel))];
        if (!is_sent) continue;
        std::deque<size_t>& received = to.begun[{channel, false}];
        for (; !sent.empty() && !received.empty(); sent.pop_front(), received.pop_front(), moved = true) {
          Half &a = s.halves[sent.front()], &b = to.halves[received.front()];
          if (a.virtual_stage != b.virtual_stage || a.micro_batch != b.micro_batch) return "messages are mixed up";
          a.is_done = b.is_done = true;
        }
      }
  }
  for (const Stage& s : stages)
    if (s.at < s.steps.size())
      return "stage " + std::to_string(&s - stages.data()) + " stops at step " + std::to_string(s.at);
  return "";
}

void check(const PipelineShape& shape) {
  if (const std::string fault = run(shape); !fault.empty())
    FAIL(schedule_name(shape.kind) << " " << shape.stages << " x " << shape.chunks << " x " << shape.micro_batches
                                   << ": " << fault);
}

}  // namespace

TEST_CASE("every schedule comes to its end where messages are handed over") {
  for (const ScheduleKind kind : kKinds)
    for (int stages = 2; stages <= 8; ++stages)
      for (int chunks = 1; chunks <= 4; ++chunks)
        for (const int micro_batches : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32})
          check({kind, stages, chunks, micro_batches});
}

TEST_CASE("of larger pipelines too") {
  for (const ScheduleKind kind : kKinds)
    for (const int stages : {13, 16})
      for (const int chunks : {1, 2, 5})
        for (const int micro_batches : {1, 15, 32, 65}) check({kind, stages, chunks, micro_batches});
}

TEST_CASE("a receive is posted once, in the list's order, before its action and one ahead at most") {
  int n_ahead = 0;
  for (const ScheduleKind kind : kKinds)
    for (int stages = 2; stages <= 5; ++stages)
      for (int chunks = 1; chunks <= 3; ++chunks)
        for (const int micro_batches : {1, 4, 7, 12})
          for (int stage = 0; stage < stages; ++stage) {
            const PipelineShape shape{kind, stages, chunks, micro_batches};
            const auto actions = pipeline_actions(shape, stage);
            const auto posted = receives_before(shape, stage, slots_of(shape, stage));
            size_t next = 0;
            for (size_t i = 0; i < actions.size(); ++i) {
              for (const Action& r : posted[i]) {
                while (next < actions.size() && !receives(shape, stage, actions[next])) ++next;
                REQUIRE(next < actions.size());
                REQUIRE(actions[next] == r);
                REQUIRE(next <= i + 1);
                n_ahead += next == i + 1;
                ++next;
              }
              REQUIRE((next > i || !receives(shape, stage, actions[i])));
            }
          }
  CHECK(n_ahead > 100);
}
