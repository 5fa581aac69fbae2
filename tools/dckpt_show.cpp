#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/model_source.h"
#include "libcore/ckpt/safetensors.h"
#include "libcore/spec/param_table.h"
#include "tools/cli.h"
#include "tools/dckpt.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

std::string dump(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

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

Json tensor_json(const TensorInfo& t) { return {{"name", t.name}, {"dtype", dtype_name(t.dtype)}, {"shape", t.shape}}; }

Json checkpoint_json(const fs::path& dir) {
  const Checkpoint checkpoint(dir);
  Json j = {{"kind", "checkpoint"}, {"path", dir.string()}, {"step", checkpoint.step()}};
  const auto config = checkpoint.identity().find("model_config");
  if (config != checkpoint.identity().end())
    j["model"] = model_json(parse_model_spec(*config, dir.string() + ": model_config"));
  j["bytes"] = bytes_json(checkpoint);
  j["files"] = checkpoint.n_files();
  j["identity"] = brief_identity(checkpoint.identity());
  j["state"] = checkpoint.state();
  j["tensors"] = Json::array();
  for (const TensorInfo& t : checkpoint.tensors()) {
    Json tensor = tensor_json(t);
    tensor["pieces"] = Json::array();
    for (const StoredPiece& p : checkpoint.pieces(t.name)) {
      tensor["pieces"].push_back({{"offset", p.box.offset}, {"extent", p.box.extent}, {"file", p.file}, {"at", p.at}});
    }
    j["tensors"].push_back(std::move(tensor));
  }
  return j;
}

Json run_json(const fs::path& run) {
  std::vector<std::string> ignored;
  const std::vector<CheckpointEntry> list = list_checkpoints(run / "checkpoints", &ignored);
  if (list.empty())
    fail(ErrorKind::input, "{}: expected a committed checkpoint, found none", (run / "checkpoints").string());
  Json j = checkpoint_json(list.back().dir);
  j["kind"] = "run";
  Json steps = Json::array();
  for (const CheckpointEntry& entry : list) steps.push_back(entry.step);
  j["steps"] = steps;
  j["ignored"] = ignored;
  std::error_code error;
  if (fs::exists(run / "run.json", error)) j["run"] = brief_identity(read_json(run / "run.json"));
  return j;
}

Json huggingface_json(const fs::path& dir) {
  const ModelSpec spec = load_model_spec(dir);
  Json j = {{"kind", "huggingface"}, {"path", dir.string()}, {"model", model_json(spec)}};
  const auto source = open_safetensors(dir);
  j["bytes"] = bytes_json(*source);
  j["tensors"] = Json::array();
  for (const TensorInfo& t : source->tensors()) j["tensors"].push_back(tensor_json(t));
  return j;
}

std::string bytes_text(const Json& j) { return format_bytes(static_cast<double>(j.get<int64_t>())); }

void print_text(const Json& j) {
  fmt::print("{}  {}\n", j["kind"].get<std::string>(), j["path"].get<std::string>());
  if (j.contains("steps")) fmt::print("steps      {}\n", dump(j["steps"]));
  if (j.contains("step")) fmt::print("step       {}\n", j["step"].get<int64_t>());
  if (j.contains("model")) {
    const Json& m = j["model"];
    fmt::print("model      {}, {} parameters, {} layers of width {}, {} heads ({} kv), ffn {}, vocabulary {}\n",
               m["family"].get<std::string>(), format_count(m["params"].get<double>()), m["layers"].get<int64_t>(),
               m["width"].get<int64_t>(), m["heads"].get<int64_t>(), m["kv_heads"].get<int64_t>(),
               m["ffn"].get<int64_t>(), m["vocab_size"].get<int64_t>());
  }
  fmt::print("bytes      weights {}, optimizer {}\n", bytes_text(j["bytes"]["weights"]),
             bytes_text(j["bytes"]["optimizer"]));
  if (j.contains("files")) fmt::print("files      {} (one a rank)\n", j["files"].get<int64_t>());
  if (j.contains("identity")) fmt::print("identity   {}\n", dump(j["identity"]));
  if (j.contains("state")) fmt::print("state      {}\n", dump(j["state"]));
  if (j.contains("ignored")) {
    for (const Json& line : j["ignored"]) fmt::print("ignored    {}\n", line.get<std::string>());
  }
  fmt::print("tensors    {}\n", j["tensors"].size());
  for (const Json& t : j["tensors"]) {
    fmt::print("  {:<44} {:<5} {}\n", t["name"].get<std::string>(), t["dtype"].get<std::string>(),
               shape_text(t["shape"].get<Shape>()));
    if (!t.contains("pieces")) continue;
    for (const Json& p : t["pieces"]) {
      fmt::print("    {:<42} {} at {}\n", box_text({p["offset"].get<Shape>(), p["extent"].get<Shape>()}),
                 p["file"].get<std::string>(), p["at"].get<int64_t>());
    }
  }
}

}  // namespace

int dckpt_show(int argc, const char* const* argv) {
  std::string path;
  bool json = false;
  const CommandLine line{
      .name = "dckpt show",
      .description =
          "What a run, a checkpoint or a Hugging Face directory holds: model, step, tensors and where each box lies.",
      .fields = {{.name = "path", .value = &path, .help = "run, checkpoint or Hugging Face directory"},
                 {.name = "json", .value = &json, .help = "print one JSON object"}},
      .positional = {"path"},
      .required = {"path"},
      .takes_config = false,
      .footer = "Of a run the newest committed checkpoint is shown."};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;

  Json found;
  switch (model_place(path)) {
    case ModelPlace::run: found = run_json(path); break;
    case ModelPlace::checkpoint: found = checkpoint_json(path); break;
    case ModelPlace::huggingface: found = huggingface_json(path); break;
  }
  if (json) fmt::print("{}\n", dump(found));
  else print_text(found);
  return 0;
}

}  // namespace rw
