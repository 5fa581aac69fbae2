#include <fmt/format.h>

#include <cstdio>
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
    "cpu/wall below 0.95 means that others were on the machine: then there is no verdict (\"not quiet\").";

}  // namespace

int dbench_kernels(int argc, const char* const* argv) {
  KernelBenchSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back(
      {.name = "json", .value = &json, .help = "print JSON lines on standard output: peaks, then one an op"});
  const CommandLine line{.name = "dbench kernels",
                         .description = "Times every op at a model's shapes, against peaks measured in the same run.",
                         .fields = list,
                         .required = {"model"},
                         .takes_config = false,
                         .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  ProgressBar bar;
  bar.show("measuring the machine's peaks", -1, "");
  const auto print = [&](const std::string& text) {
    bar.clear();
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  const KernelBenchJob job{.spec = spec,
                           .begin =
                               [&](const MachinePeaks& p, const std::string& backend, int threads) {
                                 print(json ? machine_peaks_json(p, backend, threads).dump() + "\n"
                                            : kernel_table_head(p, backend, threads));
                               },
                           .report =
                               [&](const KernelTiming& k, const MachinePeaks& p) {
                                 print(json ? kernel_timing_json(k, p).dump() + "\n" : kernel_table_line(k, p));
                                 bar.show("measuring", -1, "after " + k.op);
                               }};
  if (!run_kernel_bench(job))
    fmt::print(stderr,
               "dbench kernels: the machine was not quiet: threads waited for a core; run again when it is idle\n");
  return 0;
}

}  // namespace rw
