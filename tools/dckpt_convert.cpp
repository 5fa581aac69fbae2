#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/reshard.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/formats/hf_directory.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/formats/hf_optimizer.h"
#include "libcore/spec/layout.h"
#include "libcore/spec/param_table.h"
#include "libcore/tensor/elements.h"
#include "libcore/train/layout_pieces.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_step.h"
#include "tools/output_run.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFooter =
    "A run or checkpoint becomes a Hugging Face directory (config.json, safetensors, tokenizer, rankwright.json), "
    "which "
    "transformers and dserve load; a Hugging Face directory becomes a run directory with one checkpoint, for "
    "`dtrain --init-from` or, when both conversions were given --optimizer, `dtrain --resume`.\n"
    "\n"
    "Examples:\n"
    "  dckpt convert runs/kjv -o kjv-hf\n"
    "  dckpt convert runs/kjv/checkpoints/step-00000400 --dtype bf16 --max-shard-size 2G\n"
    "  dckpt convert kjv-hf -o runs/kjv-again\n"
    "  dckpt convert old-hf --to huggingface --dtype bf16 -o new-hf";

struct ConvertRequest {
  std::string path, step, to = "auto";
  HfExportSpec spec;
  bool json = false;
};

struct Outcome {
  fs::path output;
  std::string kind;
  int64_t step = -1, tensor_bytes = 0;
  bool tokenizer = false;
  ModelSpec model;
};

Outcome to_huggingface(const ConvertRequest& r) {
  const ModelSource model = open_model_source(path_with_step(r.path, r.step));
  std::optional<ByteProgress> bar;
  int64_t before = 0;
  const HfExport done = export_hf(model, r.spec, [&](int64_t now, int64_t total) {
    if (!bar) bar.emplace("writing", total);
    bar->add(now - before);
    before = now;
  });
  return {.output = done.dir,
          .kind = "huggingface",
          .step = model.step,
          .tensor_bytes = done.bytes,
          .tokenizer = !model.tokenizer_json.empty(),
          .model = model.spec};
}

// One file, in the order of a checkpoint of one rank. Weights are stored as `dtype`; moments as they are.
NewCheckpoint one_file(const HfImport& import, const fs::path& checkpoints, const RowSource& rows) {
  Layout alone;
  alone.stage_layers = {import.model.spec.layers};
  NewCheckpoint target{.checkpoints_dir = checkpoints,
                       .step = import.step,
                       .files = {},
                       .identity = import.identity,
                       .state = import.state};
  std::vector<TensorPiece> file;
  for (TensorPiece& piece : layout_pieces({.model = import.model.spec, .layout = alone})) {
    const TensorInfo* there = find_tensor(rows.tensors(), piece.name);
    if (there == nullptr) continue;  // weights alone
    piece.dtype = there->dtype;
    file.push_back(std::move(piece));
  }
  target.files.push_back(std::move(file));
  return target;
}

Outcome to_rankwright(const ConvertRequest& r) {
  path_with_step(r.path, r.step);  // refuses a step
  if (path_kind(r.path) != PathKind::huggingface)
    fail(ErrorKind::usage, "{}: is a checkpoint already; `dckpt reshard` writes it in another layout", r.path);
  const HfImport import = import_hf(r.path, r.spec.optimizer ? HfImportPart::all : HfImportPart::weights);
  if (!r.spec.optimizer && holds_optimizer(r.path))
    log_warning("{}: the optimizer's moments and the run's state there are left out; --optimizer takes them too",
                r.path);
  DType dtype = DType::f32;
  dtype_from_name(r.spec.dtype.c_str(), dtype);
  const fs::path output = r.spec.output.empty() ? artifact_name(import.model, r.spec.dtype) + "-run" : r.spec.output;
  OutputRun out(output, json_string(Json::parse(import.identity), "run_id", r.path, ""), r.spec.force);
  const auto rows = converted_rows(*import.tensors, dtype);
  int64_t total = 0;
  for (const TensorInfo& t : rows->tensors()) total += n_elements(t.shape) * dtype_bytes(t.dtype);
  const auto self = make_self_comm();
  ReshardReport done;
  {
    ByteProgress bar("writing", total);
    done = reshard(*rows, one_file(import, out.checkpoints(), *rows),
                   {.memory_bytes = r.spec.memory, .progress = [&](int64_t bytes) { bar.add(bytes); }}, *self);
  }
  out.finish(Json::parse(import.identity));
  return {.output = output,
          .kind = "rankwright",
          .step = import.step,
          .tensor_bytes = done.bytes,
          .tokenizer = !import.model.tokenizer_json.empty(),
          .model = import.model.spec};
}

}  // namespace

int dckpt_convert(int argc, const char* const* argv) {
  ConvertRequest r;
  FieldList list = fields(r.spec);
  list.insert(list.begin(), {.name = "path", .value = &r.path, .help = "run, checkpoint or Hugging Face directory"});
  list.push_back(step_field(r.step));
  list.push_back({.name = "to",
                  .value = &r.to,
                  .help = "what to make of it; auto: the other kind",
                  .choices = {"auto", "huggingface", "rankwright"}});
  list.push_back({.name = "json", .value = &r.json, .help = "print the result as one JSON object on standard output"});
  const CommandLine line{.name = "dckpt convert",
                         .description = "Between Rankwright checkpoints and Hugging Face directories.",
                         .fields = list,
                         .positional = {"path"},
                         .required = {"path"},
                         .takes_config = false,
                         .footer = kFooter};
  std::vector<const char*> args(argv, argv + argc);
  for (const char*& arg : args) {
    if (std::string_view(arg) == "-o") arg = "--output";
  }
  if (const auto code = parse_command_line(line, argc, args.data())) return *code;

  const double start_s = now_s();
  const bool is_huggingface = path_kind(r.path) == PathKind::huggingface;
  const bool back = r.to == "rankwright" || (r.to == "auto" && is_huggingface);
  const Outcome done = back ? to_rankwright(r) : to_huggingface(r);
  const double seconds = now_s() - start_s;
  const int64_t bytes = directory_bytes(back ? done.output / "checkpoints" / step_name(done.step) : done.output);
  const int64_t params = n_params(done.model);
  fmt::print(stderr, "{}: {} parameters, {} in {}{}\n", done.output.string(), format_count(static_cast<double>(params)),
             format_bytes(static_cast<double>(bytes)), format_seconds(seconds),
             done.tokenizer ? "" : "; no tokenizer is known");
  if (r.json) {
    fmt::print("{}\n", Json{{"output", done.output.string()},
                            {"kind", done.kind},
                            {"step", done.step},
                            {"params", params},
                            {"dtype", r.spec.dtype},
                            {"optimizer", r.spec.optimizer},
                            {"bytes", bytes},
                            {"tensor_bytes", done.tensor_bytes},
                            {"tokenizer", done.tokenizer},
                            {"seconds", seconds}}
                           .dump());
  }
  return 0;
}

}  // namespace rw
