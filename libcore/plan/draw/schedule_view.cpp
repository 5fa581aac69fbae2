#include "libcore/plan/draw/schedule_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

std::string amount_text(const ScheduleView& view, double amount) {
  return view.in_bytes ? format_bytes(amount) : fmt::format("{:.4g}", amount);
}

const char* kind_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return "forward";
    case ActionKind::backward: return "backward";
    case ActionKind::backward_input: return "backward_input";
    case ActionKind::backward_weight: return "backward_weight";
  }
  return "?";
}

// One cell of the timeline in letters: "3F--" for the forward of micro-batch 3.
std::string cell_text(const Action& a, size_t columns) {
  char letter = 'F';
  if (a.kind == ActionKind::backward) letter = 'B';
  if (a.kind == ActionKind::backward_input) letter = 'I';
  if (a.kind == ActionKind::backward_weight) letter = 'W';
  if (a.chunk > 0) letter = static_cast<char>(letter - 'A' + 'a');
  std::string text = std::to_string(a.micro_batch) + letter;
  text.resize(std::max(text.size(), columns), '-');
  return text.substr(0, columns);
}

bool all_alike(const std::vector<std::vector<double>>& seconds) {
  double least = 1e300, most = 0;
  for (const std::vector<double>& stage : seconds)
    for (const double s : stage) least = std::min(least, s), most = std::max(most, s);
  return most > 0 && most - least <= 1e-9 * most;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

}  // namespace

int64_t action_count(const PipelineShape& shape) {
  const int64_t each = shape.kind == ScheduleKind::zb_h1 ? 3 : 2;
  return each * shape.stages * shape.chunks * shape.micro_batches;
}

ScheduleView even_schedule(const EvenStages& in) {
  const auto stages = static_cast<size_t>(in.shape.stages), chunks = static_cast<size_t>(in.shape.chunks);
  const auto each = [&](double v) { return std::vector(stages, std::vector(chunks, v / static_cast<double>(chunks))); };
  ScheduleView view{.shape = in.shape, .timeline = {}, .times = {}, .title = {}, .kept = each(1), .base = {}};
  view.times = {.forward = each(in.forward_s),
                .backward_input = each(in.backward_s / 2),
                .backward_weight = each(in.backward_s / 2),
                .message = in.message_s};
  view.timeline = time_schedule(in.shape, view.times);
  return view;
}

std::vector<MemoryStep> memory_over_time(const ScheduleView& view, int stage) {
  const auto s = static_cast<size_t>(stage);
  std::vector<MemoryStep> changes;  // `amount` is the change
  for (const TimedAction& a : view.timeline.of_stage[s]) {
    const double kept = view.kept[s][static_cast<size_t>(a.action.chunk)];
    if (a.action.kind == ActionKind::forward) changes.push_back({a.begin, kept});
    if (a.action.kind == ActionKind::backward || a.action.kind == ActionKind::backward_weight)
      changes.push_back({a.end, -kept});
  }
  // What ends where something begins makes room for it.
  std::stable_sort(changes.begin(), changes.end(), [](const MemoryStep& a, const MemoryStep& b) {
    return a.at != b.at ? a.at < b.at : a.amount < b.amount;
  });
  std::vector<MemoryStep> steps = {{0, view.base.empty() ? 0 : view.base[s]}};
  for (const MemoryStep& change : changes) {
    const double amount = steps.back().amount + change.amount;
    if (change.at > steps.back().at) steps.push_back({change.at, amount});
    else steps.back().amount = amount;
  }
  return steps;
}

double peak_memory(const ScheduleView& view, int stage) {
  double peak = 0;
  for (const MemoryStep& step : memory_over_time(view, stage)) peak = std::max(peak, step.amount);
  return peak;
}

double busy_seconds(const ScheduleView& view, int stage) {
  double busy = 0;
  for (const TimedAction& a : view.timeline.of_stage[static_cast<size_t>(stage)]) busy += a.end - a.begin;
  return busy;
}

std::optional<double> known_bubble(const ScheduleView& view) {
  const PipelineShape& shape = view.shape;
  const StageTimes& t = view.times;
  if (t.forward.empty() || !all_alike(t.forward) || !all_alike(t.backward_input) || !all_alike(t.backward_weight))
    return {};
  if (shape.micro_batches < shape.stages) return {};
  const double p = shape.stages, m = shape.micro_batches, v = shape.chunks;
  const double f = t.forward[0][0], b = t.backward_input[0][0], w = t.backward_weight[0][0];
  switch (shape.kind) {
    case ScheduleKind::one_f_one_b:
      if (shape.chunks > 1) return {};
      break;
    case ScheduleKind::interleaved:
      if (shape.micro_batches % shape.stages != 0) return {};
      break;
    case ScheduleKind::gpipe: break;
    case ScheduleKind::zb_h1: {
      if (shape.chunks > 1 || f + b < w) return {};
      const double idle = (p - 1) * (f + b - w);
      return idle / (m * (f + b + w) + idle);
    }
  }
  return (p - 1) / (v * m + p - 1);
}

std::string ascii_timeline(const ScheduleView& view, int width) {
  const Timeline& timeline = view.timeline;
  double shortest = timeline.seconds;
  for (const auto& stage : timeline.of_stage)
    for (const TimedAction& a : stage) shortest = std::min(shortest, a.end - a.begin);
  if (shortest <= 0) return "";
  const double digits = static_cast<double>(std::to_string(view.shape.micro_batches - 1).size());
  const double column_s = shortest / (digits + 1);  // the number and a letter fit into the shortest action
  const double columns = std::ceil(timeline.seconds / column_s - 1e-9);
  const size_t label = fmt::format("stage {}  ", view.shape.stages - 1).size();
  if (columns + static_cast<double>(label) > width) return "";
  std::string text;
  for (int s = 0; s < view.shape.stages; ++s) {
    std::string row(static_cast<size_t>(columns), '.');
    for (const TimedAction& a : timeline.of_stage[static_cast<size_t>(s)]) {
      const auto begin = static_cast<size_t>(std::llround(a.begin / column_s)),
                 end = std::min(row.size(), static_cast<size_t>(std::llround(a.end / column_s)));
      if (begin < end) row.replace(begin, end - begin, cell_text(a.action, end - begin));
    }
    text += fmt::format("{:<{}}{}\n", fmt::format("stage {}", s), label, row);
  }
  return text;
}

std::string schedule_text(const ScheduleView& view, int width) {
  const Timeline& timeline = view.timeline;
  std::string text = view.title.empty() ? "" : view.title + "\n";
  text += fmt::format("{}, {} stages, {} chunk{} each, {} micro-batches: the pipeline takes {}\n",
                      schedule_name(view.shape.kind), view.shape.stages, view.shape.chunks,
                      view.shape.chunks == 1 ? "" : "s", view.shape.micro_batches, time_text(timeline.seconds));
  text += fmt::format("bubble {:.2f} % of the stages' time, averaged over stages, unequal stages included",
                      100 * timeline.bubble);
  if (const auto known = known_bubble(view))
    text += fmt::format(
        ", {:.2f} % by formula: {}{}", 100 * *known,
        view.shape.kind == ScheduleKind::zb_h1 ? "(p-1)(F+B-W) / (m(F+B+W) + (p-1)(F+B-W))" : "(p-1) / (v m + p-1)",
        view.times.message > 0 ? ", with messages that take no time" : "");
  text += fmt::format("\n\n{:>5}  {:>12}  {:>8}  {}\n", "stage", "busy", "idle",
                      view.in_bytes ? "most memory" : "most micro-batches kept");
  for (int s = 0; s < view.shape.stages; ++s) {
    const double busy = busy_seconds(view, s);
    text += fmt::format("{:>5}  {:>12}  {:>6.2f} %  {}\n", s, time_text(busy),
                        100 * (1 - busy / std::max(timeline.seconds, 1e-300)), amount_text(view, peak_memory(view, s)));
  }
  if (const std::string drawn = ascii_timeline(view, width); !drawn.empty()) {
    const bool halves = view.shape.kind == ScheduleKind::zb_h1;
    text += fmt::format("\n{}F forward, {}, . bubble; the number is the micro-batch{}\n", drawn,
                        halves ? "I and W the backward's input and weight half" : "B backward",
                        view.shape.chunks > 1 ? "; small letters: a chunk after the first" : "");
  }
  return text;
}

Json schedule_json(const ScheduleView& view) {
  const auto known = known_bubble(view);
  Json stages = Json::array();
  for (int s = 0; s < view.shape.stages; ++s) {
    const double busy = busy_seconds(view, s);
    Json actions = Json::array();
    for (const TimedAction& a : view.timeline.of_stage[static_cast<size_t>(s)])
      actions.push_back({{"kind", kind_name(a.action.kind)},
                         {"chunk", a.action.chunk},
                         {"micro_batch", a.action.micro_batch},
                         {"begin_s", a.begin},
                         {"end_s", a.end}});
    stages.push_back({{"stage", s},
                      {"busy_s", busy},
                      {"idle_s", view.timeline.seconds - busy},
                      {view.in_bytes ? "high_water_bytes" : "most_micro_batches", peak_memory(view, s)},
                      {"actions", actions}});
  }
  return {{"schedule", schedule_name(view.shape.kind)},
          {"pp", view.shape.stages},
          {"vpp", view.shape.chunks},
          {"micro_batches", view.shape.micro_batches},
          {"pipeline_s", view.timeline.seconds},
          {"bubble", view.timeline.bubble},
          {"bubble_formula", known ? Json(*known) : Json()},
          {"stages", stages}};
}

}  // namespace rw
