#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/json.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/hf_directory.h"
#include "libcore/spec/param_table.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/progress.h"

namespace rw {

namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dckpt convert runs/kjv -o kjv-hf\n"
    "  dckpt convert runs/kjv/checkpoints/step-00000400 -o kjv-hf --dtype bf16 --max-shard-size 2G";

}  // namespace

int dckpt_convert(int argc, const char* const* argv) {
  HfExportSpec spec;
  std::string path;
  bool json = false;
  FieldList list = fields(spec);
  list.insert(list.begin(), {.name = "path", .value = &path, .help = "run, checkpoint or Hugging Face directory"});
  list.push_back({.name = "json", .value = &json, .help = "print the result as one JSON object on standard output"});
  const CommandLine line{.name = "dckpt convert",
                         .description = "Writes a Hugging Face directory: config.json, safetensors, tokenizer.",
                         .fields = list,
                         .positional = {"path"},
                         .required = {"path", "output"},
                         .takes_config = false,
                         .footer = kFooter};
  std::vector<const char*> args(argv, argv + argc);
  for (const char*& arg : args) {
    if (std::string_view(arg) == "-o") arg = "--output";
  }
  if (const auto code = parse_command_line(line, argc, args.data())) return *code;

  const double start_s = now_s();
  const ModelSource model = open_model_source(path);
  int64_t bytes = 0;
  {
    ProgressBar bar;
    export_hf(model, spec, [&](int64_t done, int64_t total) {
      bytes = total;
      bar.show(
          "writing", static_cast<double>(done) / static_cast<double>(total),
          fmt::format("{} of {}", format_bytes(static_cast<double>(done)), format_bytes(static_cast<double>(total))));
    });
  }
  const double seconds = now_s() - start_s;
  const int64_t params = n_params(model.spec);
  fmt::print(stderr, "{}: {} parameters, {} in {}{}\n", spec.output, format_count(static_cast<double>(params)),
             format_bytes(static_cast<double>(bytes)), format_seconds(seconds),
             model.tokenizer_json.empty() ? "; no tokenizer is known" : "");
  if (json) {
    fmt::print("{}\n", Json{{"output", spec.output},
                            {"step", model.step},
                            {"params", params},
                            {"dtype", spec.dtype},
                            {"bytes", bytes},
                            {"tokenizer", !model.tokenizer_json.empty()},
                            {"seconds", seconds}}
                           .dump());
  }
  return 0;
}

}  // namespace rw
