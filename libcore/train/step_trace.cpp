#include "libcore/train/step_trace.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr int64_t kPhaseRow = 0, kPipelineRow = 1, kGroupRow = 10;  // groups begin ten rows apart

constexpr int kTag = 0;

const char* action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return "forward";
    case ActionKind::backward: return "backward";
    case ActionKind::backward_input: return "backward, inputs";
    case ActionKind::backward_weight: return "backward, weights";
  }
  return "?";
}

Json event(int64_t row, const std::string& row_name, const std::string& name, double begin_s, double end_s, Json args) {
  return {{"row", row}, {"row_name", row_name}, {"name", name}, {"begin", begin_s}, {"end", end_s}, {"args", args}};
}

}  // namespace

TraceSteps parse_trace_steps(const std::string& text) {
  if (text.empty()) return {};
  const auto whole = [&](std::string_view part) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || n < 1)
      fail(ErrorKind::usage, "--trace-steps: expected a step or a range of them, like 10 or 10..12, found \"{}\"",
           text);
    return n;
  };
  const std::string_view all = text;
  const size_t dots = all.find("..");
  const int64_t first = whole(all.substr(0, dots)), last = dots == all.npos ? first : whole(all.substr(dots + 2));
  if (last < first)
    fail(ErrorKind::usage, "--trace-steps: expected a range whose end is not before its begin, found \"{}\"", text);
  return {.first = first, .last = last};
}

StepTrace::StepTrace(CommRecord& record) : record_(record), zero_s_(now_s()) {
  record_.on_end = [this](const CommOp& op) { operations_.push_back(op); };
}
StepTrace::~StepTrace() { record_.on_end = nullptr; }

void StepTrace::phase(const std::string& name) {
  const double now = now_s();
  if (!phases_.empty() && phases_.back().end_s < 0) phases_.back().end_s = now;
  if (!name.empty()) phases_.push_back({.name = name, .begin_s = now, .end_s = -1});
}

void StepTrace::add(const std::vector<TimedAction>& actions) {
  actions_.insert(actions_.end(), actions.begin(), actions.end());
}

std::string StepTrace::text() const {
  Json events = Json::array();
  for (const Phase& p : phases_)
    events.push_back(event(kPhaseRow, "step", p.name, p.begin_s, p.end_s, {{"step", record_.step}}));
  for (const TimedAction& a : actions_)
    events.push_back(event(kPipelineRow, "pipeline",
                           fmt::format("{} {}", action_name(a.action.kind), a.action.micro_batch), a.begin, a.end,
                           {{"step", record_.step}, {"micro_batch", a.action.micro_batch}, {"chunk", a.action.chunk}}));
  std::vector<CommOp> operations = operations_;
  std::stable_sort(operations.begin(), operations.end(),
                   [](const CommOp& a, const CommOp& b) { return a.start_s < b.start_s; });
  std::map<std::string, int64_t> rows;
  for (const auto& [group, who] : record_.groups) rows.emplace(group, kGroupRow * (std::ssize(rows) + 1));
  std::map<std::string, std::vector<double>> lanes;
  for (const CommOp& op : operations) {
    // Operations that are under way at the same time do not nest.
    const int64_t lane = free_row(lanes[op.group], op.start_s, op.end_s);
    Json args{{"step", op.step}, {"bytes", op.bytes}, {"number", op.sequence}, {"phase", op.phase}};
    if (op.peer >= 0) args["peer"] = op.peer;
    if (op.micro_batch >= 0) args["micro_batch"] = op.micro_batch;
    events.push_back(event(rows[op.group] + lane, lane == 0 ? op.group : fmt::format("{} ({})", op.group, lane + 1),
                           comm_kind_name(op.kind), op.start_s, op.end_s, std::move(args)));
  }
  return Json{{"rank", record_.rank}, {"host", record_.host}, {"zero", zero_s_}, {"events", std::move(events)}}.dump();
}

std::vector<std::string> StepTrace::collect(Comm& world) const {
  std::string mine = text();
  auto length = std::ssize(mine);
  if (world.rank() != 0) {
    world.send(&length, sizeof length, 0, kTag);
    world.send(mine.data(), length, 0, kTag);
    return {};
  }
  std::vector<std::string> all{std::move(mine)};
  for (int from = 1; from < world.size(); ++from) {
    world.recv(&length, sizeof length, from, kTag);
    all.emplace_back(static_cast<size_t>(length), '\0');
    world.recv(all.back().data(), length, from, kTag);
  }
  return all;
}

bool draw_traces(ChromeTrace& trace, const std::vector<std::string>& texts, double zero_s) {
  std::map<std::string, double> zero_of_host;
  double first_zero = 0;
  bool written = true;
  for (const std::string& text : texts) {
    const Json rank = Json::parse(text);
    const double zero = rank["zero"];
    if (zero_of_host.empty()) first_zero = zero;
    const double ahead = zero_of_host.emplace(rank["host"], zero).first->second - first_zero;
    const int64_t number = rank["rank"];
    const std::string name = fmt::format("rank {} on {}", number, rank["host"].get<std::string>());
    std::vector<ChromeTrace::Event> events;
    for (const Json& e : rank["events"])
      events.push_back({.name = e["name"],
                        .start_s = e["begin"].get<double>() - ahead - zero_s,
                        .end_s = e["end"].get<double>() - ahead - zero_s,
                        .row = e["row"],
                        .args = &e["args"],
                        .process = number + 1,
                        .process_name = name,
                        .row_name = e["row_name"]});
    written = trace.write(events) && written;
  }
  return written;
}

}  // namespace rw
