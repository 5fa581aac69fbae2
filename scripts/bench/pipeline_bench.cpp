// The measured bubble of each schedule beside the one that its own action list gives, timed as an event simulation:
// with the mean times of the stages' work ("simulated", what a planner can know), and with each action's own time,
// which a shared machine makes vary ("own_times"); messages cost what was measured. One JSON line a schedule. mpirun -n
// STAGES pipeline_bench MODEL [SEQ_LEN [STEPS]].
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/base/rng.h"
#include "libcore/train/step.h"
#include "libcore/train/train_state.h"

namespace rw {
namespace {

struct Bench {
  ModelSpec model;
  int64_t seq_len, steps;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

uint64_t random_tokens(int64_t first, int64_t n, int64_t seq_len, int64_t vocab, int32_t* ids, int32_t* targets) {
  for (int64_t i = 0; i < n * seq_len; ++i) {
    const uint64_t at = static_cast<uint64_t>(first * seq_len + i);
    ids[i] = static_cast<int32_t>(random_bits(1, at) % static_cast<uint64_t>(vocab));
    targets[i] = static_cast<int32_t>(random_bits(1, at + 1) % static_cast<uint64_t>(vocab));
  }
  return 0;
}

// Mean seconds of each kind of action and chunk in a step, of all stages.
StageTimes gather_times(Comm& world, const std::map<std::pair<ActionKind, int32_t>, std::vector<double>>& seen,
                        int chunks) {
  StageTimes times;
  const auto gather = [&](std::vector<std::vector<double>>& of, std::initializer_list<ActionKind> kinds) {
    std::vector<double> mine(static_cast<size_t>(chunks)), all(mine.size() * static_cast<size_t>(world.size()));
    for (int c = 0; c < chunks; ++c)
      for (const ActionKind kind : kinds)
        if (const auto found = seen.find({kind, c}); found != seen.end())
          mine[static_cast<size_t>(c)] += std::accumulate(found->second.begin(), found->second.end(), 0.0) /
                                          static_cast<double>(found->second.size());
    world.all_gather(mine.data(), all.data(), static_cast<int64_t>(mine.size() * sizeof(double)));
    for (int s = 0; s < world.size(); ++s) of.emplace_back(all.begin() + s * chunks, all.begin() + (s + 1) * chunks);
  };
  gather(times.forward, {ActionKind::forward});
  gather(times.backward_input, {ActionKind::backward, ActionKind::backward_input});
  gather(times.backward_weight, {ActionKind::backward_weight});
  return times;
}

// Every stage's timeline, on every rank.
std::vector<std::vector<TimedAction>> gather_timelines(Comm& world, const std::vector<TimedAction>& mine) {
  const int64_t bytes = static_cast<int64_t>(mine.size() * sizeof(TimedAction));
  std::vector<TimedAction> all(mine.size() * static_cast<size_t>(world.size()));
  world.all_gather(mine.data(), all.data(), bytes);
  std::vector<std::vector<TimedAction>> of_stage;
  for (int s = 0; s < world.size(); ++s) {
    const auto at = all.begin() + s * static_cast<int64_t>(mine.size());
    of_stage.emplace_back(at, at + static_cast<int64_t>(mine.size()));
  }
  return of_stage;
}

void run(const Bench& b, ScheduleKind kind, int64_t vpp, Comm& world) {
  Layout layout;
  layout.pp = world.size();
  layout.vpp = vpp;
  layout.schedule = kind;
  layout.micro_batch = 1;
  layout.global_batch = 4 * world.size();
  layout.seq_len = b.seq_len;
  layout.stage_layers = deal_layers(b.model, layout.pp * vpp, b.seq_len);
  const auto record = std::make_shared<CommRecord>();
  Mesh mesh = make_mesh(world, mesh_shape(layout, b.model, world.size()), record);
  Arena arena;
  TrainStep step({.spec = b.model,
                  .layout = layout,
                  .adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
                  .clip_norm = 1},
                 {.ops = this_cpu_ops(), .stream = {.threads = 1}, .t = DType::bf16}, mesh, record, arena);
  init_weights(step, 1);
  std::vector<double> spans, bubbles, simulated_spans, simulated_bubbles, ratios, messages, own_spans, own_bubbles,
      own_ratios;
  StepClock clock;
  for (int64_t i = 0; i < b.steps + 2; ++i) {
    clock.start();
    step.run(
        {.first_sample = i * layout.global_batch, .lr = 1e-4},
        [&](int64_t first, int64_t n, int32_t* ids, int32_t* targets) {
          return random_tokens(first, n, b.seq_len, b.model.vocab_size, ids, targets);
        },
        clock);
    if (i < 2) continue;  // warm-up
    std::map<std::pair<ActionKind, int32_t>, std::vector<double>> seen;
    double busy = 0;
    for (const TimedAction& a : step.pipeline().timeline()) {
      seen[{a.action.kind, a.action.chunk}].push_back(a.end - a.begin);
      busy += a.end - a.begin;
    }
    // One clock for all ranks of a host.
    const double begin = -world.all_reduce_value(-step.pipeline().timeline().front().begin, ReduceOp::max);
    const double end = world.all_reduce_value(step.pipeline().timeline().back().end, ReduceOp::max);
    const auto measured = gather_timelines(world, step.pipeline().timeline());
    StageTimes times = gather_times(world, seen, static_cast<int>(vpp));
    times.message = message_seconds(layout.pipeline(), measured);
    const Timeline simulated = time_schedule(layout.pipeline(), times);
    const Timeline own = time_again(layout.pipeline(), measured, times.message);
    messages.push_back(times.message);
    own_spans.push_back(own.seconds);
    own_bubbles.push_back(own.bubble);
    spans.push_back(end - begin);
    bubbles.push_back(1 - world.all_reduce_value(busy, ReduceOp::sum) / ((end - begin) * world.size()));
    simulated_spans.push_back(simulated.seconds);
    simulated_bubbles.push_back(simulated.bubble);
    ratios.push_back((end - begin) / simulated.seconds);
    own_ratios.push_back(bubbles.back() / own.bubble);
  }
  if (world.rank() != 0) return;
  fmt::print("{}\n", Json{{"bench", "pipeline"},
                          {"schedule", schedule_name(kind)},
                          {"layout", layout.text()},
                          {"micro_batches", layout.micro_batches()},
                          {"span_s", median(spans)},
                          {"span_simulated_s", median(simulated_spans)},
                          {"bubble", median(bubbles)},
                          {"bubble_simulated", median(simulated_bubbles)},
                          {"span_ratio", median(ratios)},
                          {"message_s", median(messages)},
                          {"span_own_times_s", median(own_spans)},
                          {"bubble_own_times", median(own_bubbles)},
                          {"bubble_ratio_own_times", median(own_ratios)}}
                         .dump());
  std::fflush(stdout);
}

}  // namespace
}  // namespace rw

int main(int argc, char** argv) {
  using namespace rw;
  if (argc < 2) {
    fmt::print(stderr, "usage: mpirun -n STAGES pipeline_bench MODEL [SEQ_LEN [STEPS]]\n");
    return 2;
  }
  const Bench bench{.model = load_model_spec(argv[1]),
                    .seq_len = argc > 2 ? std::atoll(argv[2]) : 256,
                    .steps = argc > 3 ? std::atoll(argv[3]) : 9};
  const auto world = make_world_comm();
  world->set_timeout(120);
  run(bench, ScheduleKind::gpipe, 1, *world);
  run(bench, ScheduleKind::one_f_one_b, 1, *world);
  run(bench, ScheduleKind::interleaved, 2, *world);
  run(bench, ScheduleKind::zb_h1, 1, *world);
  return 0;
}
