// dplan memory: what every stage's ranks take, by owner, beside what their device has.
#include <fmt/core.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/plan/search/memory_report.h"
#include "tools/cli.h"
#include "tools/dplan.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dplan memory --model llama-3-8b --tp 2 --pp 2 --micro-batch 1 --seq-len 8192\n"
    "  dplan memory --model llama-2-13b --tp 8 --dp 4 --zero 1 --micro-batch 8 --seq-len 4096 --cluster h100-sxm\n"
    "  dplan memory --config plan.toml --cluster h100-sxm --rank 0 --json\n"
    "\n"
    "Exit code 3: a rank does not fit; the last lines say which one change would make it.";

void print_runs(const MemoryReport& r) {
  std::vector<size_t> owners;
  for (size_t o = 0; o < static_cast<size_t>(MemoryOwner::n_owners); ++o)
    for (const DryRun& run : r.runs)
      if (run.bytes[o] > 0) {
        owners.push_back(o);
        break;
      }
  const auto column = [](size_t o) {
    const std::string name = memory_owner_name(static_cast<MemoryOwner>(o));
    return name == "packed_weights" ? std::string("packed") : name;
  };
  fmt::print("{:>6} {:>6}", "rank", "stage");
  for (const size_t o : owners) fmt::print(" {:>12}", column(o));
  fmt::print(" {:>12}{}\n", "total", r.limit > 0 ? fmt::format(" {:>12}", "left") : "");
  for (const DryRun& run : r.runs) {
    fmt::print("{:>6} {:>6}", run.rank, run.rank / (r.layout.tp * r.layout.dp));
    for (const size_t o : owners) fmt::print(" {:>12}", format_bytes(static_cast<double>(run.bytes[o])));
    const auto total = static_cast<double>(run.total_bytes);
    fmt::print(" {:>12}", format_bytes(total));
    if (r.limit > 0)
      fmt::print(" {:>12}", total > r.limit ? "-" + format_bytes(total - r.limit) : format_bytes(r.limit - total));
    fmt::print("\n");
  }
}

void print_report(const MemoryReport& r) {
  fmt::print("{}, {} parameters: {}, micro-batch {}, global batch {}, {} tokens, {}, buffers of {}\n", r.model,
             format_count(static_cast<double>(r.params)), r.layout.text(), r.layout.micro_batch, r.layout.global_batch,
             r.layout.seq_len, r.precision, r.backend);
  print_runs(r);
  if (r.limit > 0)
    fmt::print("A rank may take {}{}.\n", format_bytes(r.limit),
               r.device.empty() ? "" : fmt::format(" ({} less its reserve)", r.device));
}

int refuse(const MemoryReport& r) {
  const DryRun& most = r.most();
  log_error("rank {} (stage {}) does not fit by {}", most.rank, most.rank / (r.layout.tp * r.layout.dp),
            format_bytes(static_cast<double>(most.total_bytes) - r.limit));
  if (r.remedies.empty())
    log_error(
        "no single change of --micro-batch, --zero, --recompute, --tp or --pp makes it fit; change several, or "
        "let dplan train search");
  for (const MemoryRemedy& m : r.remedies)
    log_error("{} makes it fit: stage {} takes most, {}", m.change, m.stage,
              format_bytes(static_cast<double>(m.bytes)));
  return exit_code(ErrorKind::verdict);
}

}  // namespace

int dplan_memory(int argc, const char* const* argv) {
  MemorySpec spec;
  std::vector<std::string> config;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "config",
                  .value = &config,
                  .help = "dtrain's configuration, or a plan as dplan train -o writes it; may repeat; flags win; - is "
                          "standard input",
                  .group = "Model"});
  list.push_back({.name = "json", .value = &json, .help = "one JSON object instead of the table", .group = "Output"});
  const CommandLine line{.name = "dplan memory",
                         .description = "The memory of each stage's ranks by owner, to the byte.",
                         .fields = list,
                         .takes_config = false,
                         .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  if (!config.empty()) {
    for (const std::string& file : std::vector<std::string>(config)) {
      const bool is_stdin = file == "-";
      const std::string text = is_stdin ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(file);
      read_memory_config(spec, text, is_stdin ? "standard input" : file);
    }
    if (const auto code = parse_command_line(line, argc, argv)) return *code;
  }
  const MemoryReport report = memory_report(spec);
  if (json) fmt::print("{}\n", memory_report_json(report).dump());
  else print_report(report);
  return report.fits() ? 0 : refuse(report);
}

}  // namespace rw
