#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "libcore/bench/kernels/kernel_bench.h"
#include "tools/cli.h"
#include "tools/dbench.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench kernels --model gpt2-124m --rows 2048\n"
    "  dbench kernels --model llama-3.2-1b --dtype bf16 --op gemm --op attention --json\n"
    "\n"
    "Ops are those of the model: gelu and gemm_gelu come with models that have GELU (gpt2-124m), swiglu with the "
    "others.\n"
    "\n"
    "cpu/wall below 0.95 means that others were on the machine: then there is no verdict (\"not quiet\").";

}  // namespace

int dbench_kernels(int argc, const char* const* argv) {
  KernelBenchSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "json", .value = &json, .help = "print the record as JSON on standard output"});
  const CommandLine line{.name = "dbench kernels",
                         .description = "Times every op at a model's shapes, against peaks measured in the same run.",
                         .fields = list,
                         .required = {"model"},
                         .takes_config = false,
                         .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  KernelBenchResult result;
  {
    ProgressBar bar;
    result = run_kernel_bench(
        {.spec = spec, .progress = [&](double share, const std::string& op) { bar.show("measuring", share, op); }});
  }
  if (json) fmt::print("{}\n", record_json(kernel_record(spec, result)).dump());
  else fmt::print("{}", kernel_table(result));
  if (!result.is_quiet)
    fmt::print(stderr,
               "dbench kernels: the machine was not quiet: threads waited for a core; run again when it is idle\n");
  return 0;
}

}  // namespace rw
