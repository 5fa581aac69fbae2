#include "libcore/schedule/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>

#include "libcore/base/check.h"

namespace rw {
namespace {

struct Message {
  int virtual_stage, micro_batch;  // that it is for
  double arrival;
};

enum class Outcome { ran, waits, wrong };

class Run {
 public:
  Run(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage, const ReplayTimes* times)
      : shape_(shape), of_stage_(of_stage), times_(times), next_(of_stage.size(), 0), free_at_(of_stage.size(), 0.0) {
    const size_t works = static_cast<size_t>(shape.chunks) * static_cast<size_t>(shape.micro_batches);
    done_.assign(of_stage.size(), std::vector<Done>(works));
    channels_.resize(2 * of_stage.size() * of_stage.size());
    result_.timeline.of_stage.resize(of_stage.size());
  }

  Replay finish() {
    for (bool moved = true; moved && result_.fault.empty();) {
      moved = false;
      for (int s = 0; s < shape_.stages && result_.fault.empty(); ++s)
        while (next(s) < list(s).size() && step(s) == Outcome::ran) moved = true;
    }
    if (result_.fault.empty()) result_.fault = left_over();
    sum_up();
    return std::move(result_);
  }

 private:
  struct Done {
    bool forward = false, input = false, weight = false;
  };

  const std::vector<Action>& list(int stage) const { return of_stage_[static_cast<size_t>(stage)]; }
  size_t& next(int stage) { return next_[static_cast<size_t>(stage)]; }
  int n_virtual() const { return shape_.stages * shape_.chunks; }
  int stage_of(int virtual_stage) const { return virtual_stage % shape_.stages; }
  Done& done(int stage, const Action& a) {
    return done_[static_cast<size_t>(stage)][static_cast<size_t>(a.chunk) * static_cast<size_t>(shape_.micro_batches) +
                                             static_cast<size_t>(a.micro_batch)];
  }
  std::deque<Message>& channel(int from, int to, bool forward) {
    const size_t n = of_stage_.size();
    return channels_[(static_cast<size_t>(from) * n + static_cast<size_t>(to)) * 2 + (forward ? 1 : 0)];
  }

  Outcome wrong(int stage, const std::string& what) {
    result_.fault =
        fmt::format("stage {}, action {} ({}): {}", stage, next(stage), action_text(list(stage)[next(stage)]), what);
    return Outcome::wrong;
  }

  // Why the action may not come here at all; "" when it may.
  std::string misplaced(int stage, const Action& a) {
    if (a.chunk < 0 || a.chunk >= shape_.chunks) return fmt::format("there are {} chunks", shape_.chunks);
    if (a.micro_batch < 0 || a.micro_batch >= shape_.micro_batches)
      return fmt::format("there are {} micro-batches", shape_.micro_batches);
    const Done& d = done(stage, a);
    switch (a.kind) {
      case ActionKind::forward: return d.forward ? "is done twice" : "";
      case ActionKind::backward:
      case ActionKind::backward_input:
        if (!d.forward) return "comes before its forward";
        return d.input ? "is done twice" : "";
      case ActionKind::backward_weight:
        if (!d.input) return "comes before its input half";
        return d.weight ? "is done twice" : "";
    }
    return "is of an unknown kind";
  }

  double duration(int stage) {
    return times_ == nullptr ? 0 : times_->of_stage[static_cast<size_t>(stage)][next(stage)];
  }

  Outcome step(int stage) {
    const Action& a = list(stage)[next(stage)];
    if (const std::string what = misplaced(stage, a); !what.empty()) return wrong(stage, what);
    const int v = a.chunk * shape_.stages + stage;
    const bool forward = a.kind == ActionKind::forward, weight = a.kind == ActionKind::backward_weight;
    double begin = free_at_[static_cast<size_t>(stage)];
    const int from = forward ? v - 1 : v + 1;  // the virtual stage whose message this action needs
    if (!weight && from >= 0 && from < n_virtual()) {
      std::deque<Message>& queue = channel(stage_of(from), stage, forward);
      if (queue.empty()) return Outcome::waits;
      const Message m = queue.front();
      if (m.virtual_stage != v || m.micro_batch != a.micro_batch)
        return wrong(stage, fmt::format("the next message from stage {} is for chunk {}, micro-batch {}",
                                        stage_of(from), m.virtual_stage / shape_.stages, m.micro_batch));
      queue.pop_front();
      begin = std::max(begin, m.arrival);
    }
    const double end = begin + duration(stage);
    const int to = forward ? v + 1 : v - 1;
    if (!weight && to >= 0 && to < n_virtual()) {
      const double message = times_ == nullptr || stage_of(to) == stage ? 0 : times_->message;
      channel(stage, stage_of(to), forward).push_back({to, a.micro_batch, end + message});
    }
    Done& d = done(stage, a);
    if (forward) d.forward = true;
    if (a.kind == ActionKind::backward || a.kind == ActionKind::backward_input) d.input = true;
    if (a.kind == ActionKind::backward || weight) d.weight = true;
    free_at_[static_cast<size_t>(stage)] = end;
    result_.timeline.of_stage[static_cast<size_t>(stage)].push_back({a, begin, end});
    ++next(stage);
    return Outcome::ran;
  }

  // After no stage can go on: who waits for what, or what is missing.
  std::string left_over() {
    std::string text;
    for (int s = 0; s < shape_.stages; ++s)
      if (next(s) < list(s).size())
        text += fmt::format("{}stage {} waits at action {} ({})", text.empty() ? "deadlock: " : "; ", s, next(s),
                            action_text(list(s)[next(s)]));
    if (!text.empty()) return text;
    for (int s = 0; s < shape_.stages; ++s)
      for (int c = 0; c < shape_.chunks; ++c)
        for (int m = 0; m < shape_.micro_batches; ++m) {
          const Done& d = done(s, {ActionKind::forward, c, m});
          if (!d.weight)
            return fmt::format("stage {}: chunk {}, micro-batch {} is missing its {}", s, c, m,
                               !d.forward ? "forward"
                               : !d.input ? "backward"
                                          : "weight half");
        }
    return "";
  }

  void sum_up() {
    Timeline& t = result_.timeline;
    double busy = 0;
    for (const std::vector<TimedAction>& stage : t.of_stage)
      for (const TimedAction& a : stage) {
        busy += a.end - a.begin;
        t.seconds = std::max(t.seconds, a.end);
      }
    if (t.seconds > 0) t.bubble = std::max(0.0, 1 - busy / (t.seconds * shape_.stages));
  }

  const PipelineShape& shape_;
  const std::vector<std::vector<Action>>& of_stage_;
  const ReplayTimes* times_;
  std::vector<size_t> next_;                   // (stages)
  std::vector<double> free_at_;                // (stages)
  std::vector<std::vector<Done>> done_;        // (stages)(chunks * micro_batches)
  std::vector<std::deque<Message>> channels_;  // (stages, stages, 2): from, to, direction
  Replay result_;
};

}  // namespace

std::string action_text(const Action& a) {
  const char* kind = "?";
  switch (a.kind) {
    case ActionKind::forward: kind = "forward"; break;
    case ActionKind::backward: kind = "backward"; break;
    case ActionKind::backward_input: kind = "input half of the backward"; break;
    case ActionKind::backward_weight: kind = "weight half of the backward"; break;
  }
  return fmt::format("{} of chunk {}, micro-batch {}", kind, a.chunk, a.micro_batch);
}

Replay replay(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage, const ReplayTimes* times) {
  CHECK(shape.stages >= 1 && shape.chunks >= 1 && shape.micro_batches >= 1, "%d stages, %d chunks, %d micro-batches",
        shape.stages, shape.chunks, shape.micro_batches);
  CHECK(static_cast<int>(of_stage.size()) == shape.stages, "%zu lists for %d stages", of_stage.size(), shape.stages);
  return Run(shape, of_stage, times).finish();
}

}  // namespace rw
