#include "tools/dckpt_show.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/base/workers.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/formats/hf_optimizer.h"
#include "libcore/formats/safetensors.h"
#include "libcore/spec/param_table.h"
#include "libcore/tensor/tensor_stats.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_step.h"
#include "tools/dckpt_text.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

struct ShowSpec {
  std::string path, step;
  std::vector<std::string> tensors;  // patterns; none: all
  bool stats = false, summary = false, json = false;
};

// Files within the identity (a tokenizer of megabytes) are shown as what they are.
Json brief_identity(Json identity) {
  for (auto& [key, value] : identity.items()) {
    if (value.is_string() && value.get_ref<const std::string&>().size() > 1000) {
      const std::string text = value.get<std::string>();
      value = fmt::format("<{} bytes, digest {}>", text.size(), hex64(hash64(text)));
    }
  }
  return identity;
}

Json model_json(const ModelSpec& spec) {
  return {{"family", family_name(spec.family)},
          {"params", n_params(spec)},
          {"layers", spec.layers},
          {"width", spec.width},
          {"heads", spec.heads},
          {"kv_heads", spec.kv_heads},
          {"ffn", spec.ffn},
          {"vocab_size", spec.vocab_size},
          {"tied_head", spec.tied_head},
          {"identity", model_identity(spec)}};
}

// A tensor whose name has a prefix before a slash ("adam.m/...") belongs to the optimizer.
Json bytes_json(const TensorSource& source) {
  int64_t weights = 0, optimizer = 0;
  for (const TensorInfo& t : source.tensors()) {
    (t.name.find('/') == std::string::npos ? weights : optimizer) += n_elements(t.shape) * dtype_bytes(t.dtype);
  }
  return {{"weights", weights}, {"optimizer", optimizer}};
}

bool matches(const std::string& name, const std::vector<std::string>& patterns) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           return name == pattern || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
         });
}

std::vector<TensorInfo> wanted_tensors(const TensorSource& source, const std::vector<std::string>& patterns) {
  std::vector<TensorInfo> wanted;
  std::vector<std::string> names;
  for (const TensorInfo& t : source.tensors()) {
    names.push_back(t.name);
    if (matches(t.name, patterns)) wanted.push_back(t);
  }
  for (const std::string& pattern : patterns) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(name, {pattern}); }))
      continue;
    const std::string near = nearest(pattern, names);
    fail(ErrorKind::input, "--tensor {}: {} has no tensor of this name{}", pattern, source.where(),
         near.empty() ? "" : "; did you mean " + near + "?");
  }
  return wanted;
}

Json stats_json(const TensorStats& s) {
  Json j = {{"elements", s.n}, {"nan", s.n_nan}, {"inf", s.n_inf}, {"zero", s.n_zero}};
  const bool any = s.n_finite() > 0;
  j["min"] = any ? Json(s.min) : Json();
  j["max"] = any ? Json(s.max) : Json();
  j["mean"] = any ? Json(s.mean) : Json();
  j["std"] = any ? Json(s.std) : Json();
  return j;
}

void add_stats(Json& tensors, const TensorSource& source, const std::vector<TensorInfo>& infos) {
  int64_t total = 0;
  for (const TensorInfo& t : infos) total += n_elements(t.shape) * dtype_bytes(t.dtype);
  ByteProgress progress("reading", total);
  run_jobs(infos.size(), reading_threads(), [&](size_t i) {
    progress.now_at(printable_line(infos[i].name));
    try {
      tensors[i]["stats"] = stats_json(tensor_stats(source, infos[i], [&](int64_t bytes) { progress.add(bytes); }));
    } catch (const Error& e) {  // a dtype that is no number (BOOL)
      tensors[i]["stats"] = {{"error", e.what()}};
    }
  });
}

Json tensors_json(const TensorSource& source, const Checkpoint* checkpoint, const ShowSpec& spec) {
  const std::vector<TensorInfo> infos = wanted_tensors(source, spec.tensors);
  Json list = Json::array();
  for (const TensorInfo& t : infos) {
    Json tensor = {{"name", t.name}, {"dtype", dtype_name(t.dtype)}, {"shape", t.shape}};
    if (checkpoint != nullptr) {
      tensor["pieces"] = Json::array();
      for (const StoredPiece& p : checkpoint->pieces(t.name)) {
        tensor["pieces"].push_back(
            {{"offset", p.box.offset}, {"extent", p.box.extent}, {"file", p.file}, {"at", p.at}});
      }
    }
    list.push_back(std::move(tensor));
  }
  if (spec.stats) add_stats(list, source, infos);
  return list;
}

Json checkpoint_json(const fs::path& dir, const ShowSpec& spec) {
  const ListedStep listed = list_step(dir);
  const Checkpoint checkpoint(dir,
                              listed.state == StepState::part ? Checkpoint::Files::those_here : Checkpoint::Files::all);
  Json j = {{"kind", "checkpoint"}, {"path", dir.string()}, {"step", checkpoint.step()}};
  j["created"] = listed.created;
  const auto config = checkpoint.identity().find("model_config");
  if (config != checkpoint.identity().end())
    j["model"] = model_json(parse_model_spec(*config, dir.string() + ": model_config"));
  j["bytes"] = bytes_json(checkpoint);
  j["files"] = checkpoint.n_files();
  j["identity"] = brief_identity(checkpoint.identity());
  j["state"] = checkpoint.state();
  if (!spec.summary) j["tensors"] = tensors_json(checkpoint, &checkpoint, spec);
  return j;
}

// The newest committed checkpoint of a run or a checkpoints directory.
Json newest_json(const ShowSpec& spec, PathKind kind) {
  const fs::path folder = steps_folder(spec.path);
  Json steps = Json::array(), ignored = Json::array();
  fs::path newest;
  for (const ListedStep& s : list_steps(folder)) {
    if (s.state == StepState::committed || s.state == StepState::part) {
      newest = s.dir;
      steps.push_back(s.step);
    } else {
      ignored.push_back(s.reason);
    }
  }
  if (newest.empty()) fail(ErrorKind::input, "{}: expected a committed checkpoint, found none", folder.string());
  Json j = checkpoint_json(newest, spec);
  j["kind"] = kind == PathKind::run ? "run" : "checkpoints";
  j["steps"] = steps;
  j["ignored"] = ignored;
  std::error_code error;
  const fs::path run = fs::path(spec.path) / "run.json";
  if (kind == PathKind::run && fs::exists(run, error)) j["run"] = brief_identity(read_json(run));
  return j;
}

Json huggingface_json(const ShowSpec& spec) {
  const fs::path dir = spec.path;
  Json j = {{"kind", "huggingface"}, {"path", dir.string()}, {"model", model_json(load_model_spec(dir))}};
  std::error_code error;
  if (fs::exists(dir / "rankwright.json", error)) j["identity"] = brief_identity(read_json(dir / "rankwright.json"));
  const auto source = open_safetensors(dir);
  j["bytes"] = bytes_json(*source);
  if (holds_optimizer(dir)) j["bytes"]["optimizer"] = bytes_json(*open_optimizer(dir))["optimizer"];
  if (!spec.summary) j["tensors"] = tensors_json(*source, nullptr, spec);
  return j;
}

}  // namespace

int dckpt_show(int argc, const char* const* argv) {
  ShowSpec spec;
  const CommandLine line{
      .name = "dckpt show",
      .description = "What a run, a checkpoint or a Hugging Face directory holds: model, step, identity, tensors.",
      .fields = {{.name = "path",
                  .value = &spec.path,
                  .help = "run, checkpoints directory, checkpoint or Hugging Face directory"},
                 step_field(spec.step),
                 {.name = "tensor",
                  .value = &spec.tensors,
                  .help = "only tensors of this name or pattern ('blocks.3.*'), and where each box of them lies; may "
                          "repeat"},
                 {.name = "stats",
                  .value = &spec.stats,
                  .help = "read the tensors: min, max, mean and std of the finite elements, zeros, NaNs, infinities"},
                 {.name = "summary", .value = &spec.summary, .help = "no tensors"},
                 {.name = "json", .value = &spec.json, .help = "print one JSON object"}},
      .positional = {"path"},
      .required = {"path"},
      .takes_config = false,
      .footer = "Of a run the newest committed checkpoint is shown."};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  if (spec.summary && (spec.stats || !spec.tensors.empty()))
    fail(ErrorKind::usage, "--summary shows no tensors: it cannot go with --tensor or --stats");

  spec.path = path_with_step(spec.path, spec.step).string();
  Json found;
  switch (const PathKind kind = path_kind(spec.path)) {
    case PathKind::checkpoint: found = checkpoint_json(spec.path, spec); break;
    case PathKind::huggingface: found = huggingface_json(spec); break;
    case PathKind::run:
    case PathKind::checkpoints:
    case PathKind::runs: found = newest_json(spec, kind); break;
  }
  if (spec.json) fmt::print("{}\n", json_line(found));
  else print_show_text(found, spec.tensors.empty() ? ShowPieces::count : ShowPieces::list);
  return 0;
}

}  // namespace rw
