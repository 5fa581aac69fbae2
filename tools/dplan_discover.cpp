// dplan discover: a cluster file for the machine it runs on.
#include <fmt/core.h>

#include <cstdio>

#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/plan/measure/discover.h"
#include "tools/cli.h"
#include "tools/dplan.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "GPUs, their memory and NVLinks are what nvidia-smi tells, cards and cores near them what hwloc finds on the PCI "
    "bus\n"
    "(HWLOC_XMLFILE=FILE: on that of the file); the other numbers are those of the shipped profile of the GPU.\n"
    "Without GPUs the cores' peaks and the memory's bandwidth are measured, with the threads of all ranks at once "
    "(--ranks-per-node,\n"
    "--threads, --seconds are of this alone): start it alone and on an idle machine (under mpirun: one rank, --bind-to "
    "none).\n"
    "Links that were measured come from dbench comm.\n"
    "\n"
    "Examples:\n"
    "  dplan discover -o here.toml\n"
    "  mpirun -n 2 dbench comm --json > comm.json\n"
    "  dplan discover --ranks-per-node 2 --comm-json comm.json -o here.toml\n"
    "\n"
    "docs/clusters.md says what the file holds.";

void print_summary(const Discovered& found) {
  const ClusterSpec& cluster = found.cluster;
  for (const NodeType& node : cluster.nodes) {
    const DeviceType& d = cluster.device_of(node);
    fmt::print(stderr, "{} x {} x {}: {} of memory at {:.4g} GB/s, peaks f32 {:.4g}, bf16 {:.4g}, f16 {:.4g} TFLOP/s\n",
               node.count, node.devices, d.name, format_bytes(static_cast<double>(d.memory - d.reserve)),
               d.memory_bandwidth * 1e-9, d.peak_f32 * 1e-12, d.peak_bf16 * 1e-12, d.peak_f16 * 1e-12);
    if (node.devices > 1)
      fmt::print(stderr, "{}: {:.4g} GB/s, {:.3g} us\n", node.link, node.link_bandwidth * 1e-9,
                 node.link_latency * 1e6);
  }
  for (const std::string& note : found.notes) fmt::print(stderr, "  {}\n", note);
  if (!found.unused_gpus_of.empty())
    log_warning("the GPUs of {} do not answer: the cluster is of the CPUs alone (the first notes say why)",
                found.unused_gpus_of);
  if (!found.is_quiet) log_warning("the machine was not quiet; run dplan discover again when it is idle");
}

}  // namespace

int dplan_discover(int argc, const char* const* argv) {
  DiscoverSpec spec;
  std::string output = "-";
  FieldList list = fields(spec);
  list.insert(list.begin(),
              {.name = "output", .value = &output, .help = "the cluster file to write; - is standard output"});
  const CommandLine command{.name = "dplan discover",
                            .description = "Writes a cluster file for this machine.",
                            .fields = list,
                            .short_flags = {{"-o", "output"}},
                            .takes_config = false,
                            .footer = kFooter};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  const Discovered found = discover(spec);
  const std::string toml = discovered_toml(found);
  if (output == "-") fmt::print("{}", toml);
  else write_file_atomic(output, toml);
  print_summary(found);
  return 0;
}

}  // namespace rw
