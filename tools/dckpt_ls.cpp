#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/run_listing.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_text.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

Json step_json(const ListedStep& s) {
  Json j = {{"step", s.step},   {"path", s.dir.string()}, {"state", state_name(s.state)},
            {"bytes", s.bytes}, {"layout", s.layout},     {"created", s.created},
            {"age_s", s.age_s}, {"run_id", s.run_id}};
  j["loss"] = s.loss ? Json(*s.loss) : Json();
  if (!s.reason.empty()) j["reason"] = s.reason;
  if (s.set_aside) j["set_aside"] = true;
  return j;
}

std::string loss_text(const ListedStep& s) { return s.loss ? fmt::format("{:.4f}", *s.loss) : "-"; }
std::string layout_text(const ListedStep& s) { return s.layout.empty() ? "-" : printable_line(s.layout); }

// Every byte of what looks whole.
void verify_all(std::vector<ListedStep>& steps) {
  int64_t total = 0;
  for (const ListedStep& s : steps)
    total += s.state == StepState::damaged || s.state == StepState::partial ? 0 : s.bytes;
  ByteProgress progress("verifying", total);
  verify_steps(steps, {.begin = [&](const fs::path& dir) { progress.now_at(printable_line(dir.filename().string())); },
                       .progress = [&](int64_t bytes) { progress.add(bytes); }});
}

void print_steps(const std::vector<ListedStep>& steps) {
  constexpr auto kRight = TextTable::Align::right;
  // Local ones also say where they are.
  const bool folders =
      std::any_of(steps.begin(), steps.end(), [](const ListedStep& s) { return s.state == StepState::local; });
  std::vector<TextTable::Column> columns = {{"STEP", kRight}, {"STATE"},        {"SIZE", kRight},
                                            {"AGE", kRight},  {"LOSS", kRight}, {"LAYOUT"}};
  if (folders) columns.push_back({"FOLDER"});
  TextTable table(columns);
  for (const ListedStep& s : steps) {
    std::vector<std::string> cells = {std::to_string(s.step), state_name(s.state), bytes_text(s.bytes),
                                      age_text(s.age_s),      loss_text(s),        layout_text(s)};
    if (folders) cells.push_back(s.state == StepState::local ? printable_line(s.dir.parent_path().string()) : "");
    table.row(std::move(cells));
  }
  table.print();
  for (const ListedStep& s : steps) {
    if (s.state == StepState::damaged) fmt::print("damaged: {}\n", printable_line(s.reason));
  }
}

struct Run {
  fs::path path;
  std::vector<ListedStep> steps;
  int64_t count(StepState state) const {
    int64_t n = 0;
    for (const ListedStep& s : steps) n += s.state == state;
    return n;
  }
  const ListedStep* newest() const {
    const ListedStep* newest = nullptr;
    for (const ListedStep& s : steps)
      newest = s.state == StepState::committed || s.state == StepState::part ? &s : newest;
    return newest;
  }
};

void print_runs(const std::vector<Run>& runs) {
  constexpr auto kRight = TextTable::Align::right;
  TextTable table({{"RUN"},
                   {"STEPS", kRight},
                   {"NEWEST", kRight},
                   {"SIZE", kRight},
                   {"AGE", kRight},
                   {"LOSS", kRight},
                   {"LAYOUT"},
                   {"ALSO"}});
  for (const Run& run : runs) {
    std::string also;
    for (const StepState state : {StepState::part, StepState::damaged, StepState::partial}) {
      if (const int64_t n = run.count(state); n > 0)
        also += fmt::format("{}{} {}", also.empty() ? "" : ", ", n, state_name(state));
    }
    const std::string name = printable_line(run.path.filename().string());
    const std::string n_steps = std::to_string(run.count(StepState::committed));
    if (const ListedStep* s = run.newest()) {
      table.row({name, n_steps, std::to_string(s->step), bytes_text(s->bytes), age_text(s->age_s), loss_text(*s),
                 layout_text(*s), also});
    } else {
      table.row({name, n_steps, "-", "-", "-", "-", "-", also});
    }
  }
  table.print();
}

Json steps_json(const std::vector<ListedStep>& steps) {
  Json list = Json::array();
  for (const ListedStep& s : steps) list.push_back(step_json(s));
  return list;
}

Json runs_json(const std::vector<Run>& runs) {
  Json list = Json::array();
  for (const Run& run : runs) {
    const ListedStep* newest = run.newest();
    list.push_back({{"path", run.path.string()},
                    {"committed", run.count(StepState::committed)},
                    {"part", run.count(StepState::part)},
                    {"damaged", run.count(StepState::damaged)},
                    {"partial", run.count(StepState::partial)},
                    {"newest", newest != nullptr ? step_json(*newest) : Json()}});
  }
  return list;
}

}  // namespace

int dckpt_ls(int argc, const char* const* argv) {
  std::string path = ".";
  bool json = false, verify = false;
  const CommandLine line{
      .name = "dckpt ls",
      .description = "The checkpoints of a run, one line a step; of a directory of runs, the newest of each.",
      .fields = {{.name = "path",
                  .value = &path,
                  .help = "run, checkpoints directory, checkpoint or directory of runs"},
                 {.name = "verify", .value = &verify, .help = "read every byte and compare it with its digest"},
                 {.name = "json", .value = &json, .help = "print one JSON object"}},
      .positional = {"path"},
      .takes_config = false,
      .footer =
          "States: committed (its manifest verifies and its files have the right sizes), partial (a save that is under "
          "way\nor was interrupted), damaged (step-N.damaged: set aside by a trainer), part (a node's own directory: "
          "other nodes "
          "have the\nrest), local (of a run's local tier on this host). The exit code is 0 whatever the states: `dckpt "
          "verify` judges."};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;

  const PathKind kind = path_kind(path);
  if (kind == PathKind::runs) {
    std::vector<Run> runs;
    for (const fs::path& run : runs_in(path)) {
      runs.push_back({run, list_steps(steps_folder(run))});
      if (verify) verify_all(runs.back().steps);
    }
    if (json) fmt::print("{}\n", json_line({{"kind", "runs"}, {"path", path}, {"runs", runs_json(runs)}}));
    else print_runs(runs);
    return 0;
  }
  if (kind == PathKind::huggingface)
    fail(ErrorKind::input, "{}: expected a run or a checkpoint, found a Hugging Face directory; see dckpt show", path);
  std::vector<ListedStep> steps =
      kind == PathKind::checkpoint ? std::vector{list_step(path)} : list_steps(steps_folder(path));
  if (kind == PathKind::run) {
    for (ListedStep& step : list_local_steps(path)) steps.push_back(std::move(step));
  }
  if (verify) verify_all(steps);
  if (json) {
    const char* kind_name = kind == PathKind::checkpoint ? "checkpoint" : kind == PathKind::run ? "run" : "checkpoints";
    fmt::print("{}\n", json_line({{"kind", kind_name}, {"path", path}, {"steps", steps_json(steps)}}));
  } else if (steps.empty()) {
    fmt::print("{}: no checkpoint yet\n", printable_line(path));
  } else {
    print_steps(steps);
  }
  return 0;
}

}  // namespace rw
