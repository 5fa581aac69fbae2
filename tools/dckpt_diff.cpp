#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/formats/diff.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_step.h"
#include "tools/dckpt_text.h"

namespace rw {

namespace {

constexpr size_t kShownTensors = 20, kShownText = 60;

const char* kind_name(TensorDifference::Kind kind) {
  switch (kind) {
    case TensorDifference::Kind::only_in_a: return "only_in_a";
    case TensorDifference::Kind::only_in_b: return "only_in_b";
    case TensorDifference::Kind::shape: return "shape";
    case TensorDifference::Kind::dtype: return "dtype";
    case TensorDifference::Kind::values: return "values";
  }
  return "?";
}

Json keys_json(const std::vector<KeyDifference>& list) {
  Json j = Json::array();
  const auto value = [](const std::string& text) { return text.empty() ? Json() : parse_json(text, "value"); };
  for (const KeyDifference& d : list) {
    Json item = {{"key", d.key}};
    if (!d.a.empty()) item["a"] = value(d.a);
    if (!d.b.empty()) item["b"] = value(d.b);
    j.push_back(std::move(item));
  }
  return j;
}

Json tensor_json(const TensorDifference& d) {
  Json j = {{"name", d.name}, {"difference", kind_name(d.kind)}};
  const auto info = [](const TensorInfo& t) { return Json{{"dtype", dtype_name(t.dtype)}, {"shape", t.shape}}; };
  if (d.a) j["a"] = info(*d.a);
  if (d.b) j["b"] = info(*d.b);
  if (d.kind == TensorDifference::Kind::values) {
    const TensorComparison& c = d.comparison;
    j.update({{"elements", c.n},
              {"different", c.n_different},
              {"non_finite", c.n_unlike},
              {"max_abs", c.max_abs},
              {"relative", c.relative()},
              {"at", c.at}});
  }
  if (!d.damage.empty()) j["damage"] = d.damage;
  return j;
}

Json side_json(const DiffSide& side) {
  return {{"path", side.dir.string()}, {"step", side.step >= 0 ? Json(side.step) : Json()}};
}

Json diff_json(const CheckpointDiff& diff, double tolerance) {
  Json tensors = Json::array();
  for (const TensorDifference& d : diff.tensors) tensors.push_back(tensor_json(d));
  return {{"equal", diff.tensors.empty()},
          {"tolerance", tolerance},
          {"a", side_json(diff.a)},
          {"b", side_json(diff.b)},
          {"identity", keys_json(diff.identity)},
          {"layout", keys_json(diff.layout)},
          {"hyper_parameters", keys_json(diff.hyper_parameters)},
          {"state", keys_json(diff.state)},
          {"tensors_equal", diff.n_equal},
          {"tensors_within_tolerance", diff.n_within},
          {"tensors_left_out", diff.n_left_out},
          {"tensors", tensors}};
}

void print_keys(const char* heading, const std::vector<KeyDifference>& list) {
  if (list.empty()) return;
  fmt::print("{}\n", heading);
  const auto brief = [](const std::string& text) {
    if (text.empty()) return std::string("(none)");
    if (text.size() > kShownText && text.front() == '[')
      return fmt::format("[{} values]", parse_json(text, "value").size());
    return printable_line(text.size() > kShownText ? text.substr(0, kShownText) + "..." : text);
  };
  size_t width = 0;
  for (const KeyDifference& d : list) width = std::max(width, d.key.size());
  for (const KeyDifference& d : list)
    fmt::print("  {:<{}}  {} -> {}\n", printable_line(d.key), width, brief(d.a), brief(d.b));
}

std::string comparison_text(const TensorComparison& c) {
  std::string text = fmt::format("{} of {} elements", c.n_different, c.n);
  if (c.n_unlike > 0) text += fmt::format(", {} NaN or infinite on one side", c.n_unlike);
  if (c.max_abs > 0) text += fmt::format(", max |a - b| {:.6g} ({:.3g} of the largest)", c.max_abs, c.relative());
  if (!c.at.empty()) text += " at " + shape_text(c.at);
  return text;
}

void print_tensor(const TensorDifference& d) {
  const auto info = [](const TensorInfo& t) { return fmt::format("{} {}", dtype_name(t.dtype), shape_text(t.shape)); };
  std::string what;
  switch (d.kind) {
    case TensorDifference::Kind::only_in_a: what = "only in A: " + info(*d.a); break;
    case TensorDifference::Kind::only_in_b: what = "only in B: " + info(*d.b); break;
    case TensorDifference::Kind::shape: what = info(*d.a) + " -> " + info(*d.b); break;
    case TensorDifference::Kind::dtype: what = info(*d.a) + " -> " + info(*d.b) + ", the same numbers"; break;
    case TensorDifference::Kind::values:
      what = d.a->dtype == d.b->dtype ? info(*d.a) : info(*d.a) + " -> " + info(*d.b);
      what += ": " + comparison_text(d.comparison);
      break;
  }
  fmt::print("  {}  {}\n", printable_line(d.name), what);
  for (const std::string& line : d.damage) fmt::print("    damaged: {}\n", printable_line(line));
}

// Weights before optimizer state, the largest difference first: what has no number (missing, another shape), then by
// relative difference.
std::vector<const TensorDifference*> by_size(const std::vector<TensorDifference>& list) {
  std::vector<const TensorDifference*> order;
  for (const TensorDifference& d : list) order.push_back(&d);
  const auto size = [](const TensorDifference* d) {
    if (d->kind == TensorDifference::Kind::dtype) return 0.0;
    if (d->kind != TensorDifference::Kind::values || d->comparison.n_unlike > 0) return 1e300;
    return d->comparison.relative();
  };
  const auto key = [&](const TensorDifference* d) {
    return std::pair(d->name.find('/') != std::string::npos, -size(d));
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return key(a) < key(b); });
  return order;
}

void print_text(const CheckpointDiff& diff) {
  const auto side = [](const char* name, const DiffSide& s) {
    fmt::print("{}  {}{}\n", name, printable_line(s.dir.string()),
               s.step >= 0 ? fmt::format("  (step {})", s.step) : "");
  };
  side("A", diff.a), side("B", diff.b);
  print_keys("identity", diff.identity);
  print_keys("layout", diff.layout);
  print_keys("hyper-parameters", diff.hyper_parameters);
  print_keys("state", diff.state);
  fmt::print("tensors: {} equal, {} different", diff.n_equal, diff.tensors.size());
  if (diff.n_within > 0) fmt::print(", {} within the tolerance", diff.n_within);
  if (diff.n_left_out > 0)
    fmt::print(", {} of the optimizer not compared: a Hugging Face directory has none", diff.n_left_out);
  fmt::print("\n");
  const auto order = by_size(diff.tensors);
  for (size_t i = 0; i < std::min(order.size(), kShownTensors); ++i) print_tensor(*order[i]);
  if (order.size() > kShownTensors) fmt::print("  ... and {} more; --json lists all\n", order.size() - kShownTensors);
}

bool is_single(const std::string& path) {
  const PathKind kind = path_kind(path);
  return kind == PathKind::checkpoint || kind == PathKind::huggingface;
}

}  // namespace

int dckpt_diff(int argc, const char* const* argv) {
  std::string a, b, step;
  DiffOptions options;
  bool json = false;
  const CommandLine line{
      .name = "dckpt diff",
      .description =
          "What differs between two checkpoints: identity, layout, hyper-parameters, state, and every tensor.",
      .fields = {{.name = "a", .value = &a, .help = "checkpoint, run (its newest) or Hugging Face directory"},
                 {.name = "b", .value = &b, .help = "the same"},
                 step_field(step, "(A, B or both)"),
                 {.name = "tolerance",
                  .value = &options.tolerance,
                  .help =
                      "accepted largest |a - b| of a tensor as a share of its largest |a| or |b|; above 0 dtypes may "
                      "differ",
                  .min = 0},
                 {.name = "json", .value = &json, .help = "print one JSON object"}},
      .positional = {"a", "b"},
      .required = {"a", "b"},
      .takes_config = false,
      .footer =
          "Exit code: 0 when the tensors are equal, or within the tolerance, whatever else differs; 3 when they "
          "are not."};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;

  // Of a run and a checkpoint the step is the run's; of two checkpoints it is refused.
  if (!step.empty()) {
    const bool one = is_single(a), other = is_single(b);
    if (!one || other) a = path_with_step(a, step).string();
    if (!other) b = path_with_step(b, step).string();
  }
  CheckpointDiff diff;
  {
    ProgressBar bar;
    options.progress = [&](int64_t done, int64_t total) {
      bar.show("comparing", static_cast<double>(done) / static_cast<double>(total),
               bytes_text(done) + " of " + bytes_text(total));
    };
    diff = diff_checkpoints(a, b, options);
  }
  if (json) fmt::print("{}\n", json_line(diff_json(diff, options.tolerance)));
  else print_text(diff);
  return diff.tensors.empty() ? 0 : exit_code(ErrorKind::verdict);
}

}  // namespace rw
