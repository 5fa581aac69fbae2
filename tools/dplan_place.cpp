// dplan place: which device each rank gets, and the file that makes a launcher do it.
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/plan/place/place_format.h"
#include "libcore/plan/place/place_hosts.h"
#include "libcore/train/setup.h"
#include "tools/dplan.h"
#include "tools/dplan_config.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dplan place --config plan.toml --cluster h100-sxm --hosts hosts --format rankfile -o ranks\n"
    "  mpirun --hostfile hosts --rankfile ranks -n 256 dtrain --config plan.toml ...\n"
    "  dplan place --tp 8 --pp 4 --dp 8 --cluster h100-sxm --nodes 36 --hosts hosts --occupied busy --reserve 8\n"
    "\n"
    "With a model the groups' bytes are those of the dry run; without one they have the proportions of a 70B model's.\n"
    "Occupied devices are a host's first ones.";

struct PlaceFlags {
  PlanFlags plan;
  std::string hosts, occupied, format, output;
  int64_t reserve = 0;
  PlaceNames names;
  bool json = false;
};

FieldList fields(PlaceFlags& f) {
  FieldList list = fields(f.plan, {"top", "tokens", "max-memory"});
  const auto add = [&](Field field, const char* group) {
    field.group = group;
    list.push_back(std::move(field));
  };
  const char* where = "Machines";
  add({.name = "hosts", .value = &f.hosts, .help = "file of the nodes' hosts in the cluster's order: a name a line"},
      where);
  add({.name = "occupied",
       .value = &f.occupied,
       .help = "file of hosts that other jobs use: \"name slots=N\", or all of it"},
      where);
  add({.name = "reserve", .value = &f.reserve, .help = "devices to keep free", .min = 0}, where);
  add({.name = "node-cores",
       .value = &f.names.cores,
       .help = "cores of a node, for binding; 0: a rank gets its socket",
       .min = 0,
       .max = 4096},
      where);
  add({.name = "node-sockets", .value = &f.names.sockets, .help = "sockets of a node", .min = 1, .max = 64}, where);
  const char* out = "Output";
  add({.name = "format",
       .value = &f.format,
       .help = "also write a file for a launcher or library",
       .choices = {kPlaceFormats, kPlaceFormats + std::size(kPlaceFormats)}},
      out);
  add({.name = "output", .value = &f.output, .help = "where --format goes instead of standard output"}, out);
  add({.name = "interface", .value = &f.names.interface, .help = "env: the network interface"}, out);
  add({.name = "nic",
       .value = &f.names.nics,
       .help = "env, nccl-topo: an RDMA device of a node (mlx5_0); repeat for each NIC"},
      out);
  add({.name = "gpu-bus-id",
       .value = &f.names.gpu_bus_ids,
       .help = "nccl-topo: PCI address of a node's GPU; repeat for each"},
      out);
  add({.name = "nic-bus-id",
       .value = &f.names.nic_bus_ids,
       .help = "nccl-topo: PCI address of a node's NIC; repeat for each"},
      out);
  add({.name = "job-name", .value = &f.names.job, .help = "k8s: name of the job"}, out);
  add({.name = "image", .value = &f.names.image, .help = "k8s: container image"}, out);
  add({.name = "leaf-label", .value = &f.names.leaf_label, .help = "k8s: label of nodes that names their leaf switch"},
      out);
  add({.name = "json", .value = &f.json, .help = "one JSON object instead of the table"}, out);
  return list;
}

struct PlaceWork {
  ClusterSpec cluster;
  std::vector<NodeUse> nodes;
  Layout layout;
  StepBytes bytes;
  int64_t layers = 0;  // of the model; 0: none
};

PlaceWork work_of(PlaceFlags& f) {
  PlanSpec& spec = f.plan.spec;
  if (spec.cluster.empty()) fail(ErrorKind::usage, "--cluster is missing: a .toml file or a name in configs/clusters");
  PlaceWork w;
  w.cluster = load_cluster_spec(spec.cluster);
  std::vector<HostSlots> hosts;
  if (!f.hosts.empty()) {
    hosts = parse_hostfile(read_file(f.hosts), f.hosts);
    if (spec.nodes == 0 && w.cluster.nodes.size() == 1) spec.nodes = static_cast<int64_t>(hosts.size());
  }
  if (spec.nodes > 0) set_node_count(w.cluster, spec.nodes);
  constexpr int64_t kMostNodes = 1 << 16;  // each rank has a line, each group is counted by place
  if (w.cluster.node_count() > kMostNodes)
    fail(ErrorKind::usage, "{} nodes: place lays out at most {}; give --nodes for a part of the cluster",
         w.cluster.node_count(), kMostNodes);
  if (!f.hosts.empty()) w.nodes = name_nodes(w.cluster, hosts, f.hosts);
  if (!f.occupied.empty()) {
    if (w.nodes.empty()) fail(ErrorKind::usage, "--occupied names hosts: say with --hosts which ones the cluster has");
    occupy(w.nodes, w.cluster, parse_hostfile(read_file(f.occupied), f.occupied), f.occupied);
  }
  const auto pin = [](int64_t n) { return std::max<int64_t>(1, n); };
  w.layout.tp = pin(spec.tp), w.layout.pp = pin(spec.pp), w.layout.vpp = pin(spec.vpp);
  if (spec.dp == 0) {
    int64_t free = w.cluster.device_count() - f.reserve;
    for (const NodeUse& n : w.nodes) free -= n.occupied;
    spec.dp = pin(free / (w.layout.tp * w.layout.pp));
  }
  w.layout.dp = spec.dp;
  if (spec.model.empty()) {
    check_bare_pins(spec);
    if (spec.zero != "auto") w.layout.zero = spec.zero[0] - '0';
    if (spec.zero_group == "node") w.layout.zero_group = ZeroGroup::node;
    return w;
  }
  const PlanInputs inputs(spec);
  w.layout = pinned_layout(inputs, f.plan.stage_layers);
  w.layers = inputs.model().layers;
  const WorkTerms terms{
      .model = inputs.model(), .layout = w.layout, .t = precision_type(spec.precision), .backend = plain_sizes()};
  w.bytes = step_bytes(terms, w.cluster.nodes.front().devices);
  return w;
}

// Layers by the stages' speed, where it differs and a stage is one chunk.
std::vector<int64_t> dealt_layers(const PlaceWork& w, const RankPlacement& p) {
  if (w.layers == 0 || w.layout.pp == 1 || w.layout.vpp > 1) return {};
  for (const double flops : p.stage_flops)
    if (flops != p.stage_flops.front()) return deal_layers_by_speed(w.layers, p.stage_flops);
  return {};
}

std::string host_of(const PlaceWork& w, int64_t node) {
  return w.nodes.empty() ? fmt::format("node {}", node) : w.nodes[static_cast<size_t>(node)].host;
}

void print_table(std::FILE* to, const PlaceWork& w, const RankPlacement& p, const PlaceFile& file) {
  fmt::print(to, "tp {} x dp {} x pp {} over {} of {} devices; innermost first: {}\n", w.layout.tp, w.layout.dp,
             w.layout.pp, w.layout.ranks(), p.places.size(), p.order);
  constexpr size_t kShown = 16;
  const std::vector<UsedNode> used = used_nodes(file);
  for (size_t i = 0; i < std::min(kShown, used.size()); ++i)
    fmt::print(to, "  {:<20} ranks {}\n", host_of(w, used[i].node), rank_list(used[i]));
  if (used.size() > kShown) fmt::print(to, "  ... and {} nodes more (--json has all)\n", used.size() - kShown);
  fmt::print(to, "{:<26} {:>14} {:>14}\n", "bytes of a step over", "ranks in order", "placed");
  const bool sized = w.layers > 0;
  for (size_t l = 0; l < p.placed.bytes.size(); ++l) {
    const auto text = [&](double bytes) { return sized ? format_bytes(bytes) : fmt::format("{:.1f}", bytes); };
    fmt::print(to, "{:<26} {:>14} {:>14}\n", link_level_name(static_cast<LinkLevel>(l)), text(p.naive.bytes[l]),
               text(p.placed.bytes[l]));
  }
  if (!sized)
    fmt::print(to, "(without --model: in units of what one pipeline sends, in the proportions of a 70B model)\n");
  else
    fmt::print(to, "{:<26} {:>12.4g} s {:>12.4g} s\n", "its slowest groups take", p.naive.slowest_s,
               p.placed.slowest_s);
  const std::vector<int64_t> layers = dealt_layers(w, p);
  std::string text;
  for (const int64_t n : layers) text += (text.empty() ? "" : ",") + std::to_string(n);
  if (!layers.empty()) fmt::print(to, "layers by the stages' speed: --stage-layers {}\n", text);
}

Json levels_json(const PlacementCost& c) {
  Json j = Json::object();
  const char* names[] = {"domain", "node", "leaf", "spine"};
  for (size_t l = 0; l < c.bytes.size(); ++l) j[names[l]] = c.bytes[l];
  return j;
}

Json place_json(const PlaceWork& w, const RankPlacement& p) {
  Json ranks = Json::array();
  for (int64_t r = 0; r < w.layout.ranks(); ++r) {
    const DevicePlace& d = p.place(r);
    Json j = {{"rank", r}, {"node", d.node}, {"device", d.device}, {"leaf", d.leaf}};
    if (!w.nodes.empty()) j["host"] = host_of(w, d.node);
    ranks.push_back(std::move(j));
  }
  Json j = {{"layout", {{"tp", w.layout.tp}, {"dp", w.layout.dp}, {"pp", w.layout.pp}}},
            {"order", p.order},
            {"ranks", std::move(ranks)},
            {"crossing_bytes", {{"naive", levels_json(p.naive)}, {"placed", levels_json(p.placed)}}},
            {"slowest_groups_s", {{"naive", p.naive.slowest_s}, {"placed", p.placed.slowest_s}}},
            {"mixed_groups", p.placed.mixed_groups},
            {"split_tp_groups", p.placed.split_tp},
            {"bytes", w.layers > 0 ? "dry run" : "typical"},
            {"notes", p.notes}};
  const std::vector<int64_t> layers = dealt_layers(w, p);
  if (!layers.empty()) j["stage_layers"] = layers;
  return j;
}

}  // namespace

int dplan_place(int argc, const char* const* argv) {
  PlaceFlags flags;
  const CommandLine line{.name = "dplan place",
                         .description = "Which device each rank gets, so that what groups move stays on fast links.",
                         .fields = fields(flags),
                         .short_flags = {{"-o", "output"}},
                         .takes_config = false,
                         .footer = kFooter};
  if (const auto code = parse_plan_command(line, flags.plan, argc, argv)) return *code;
  if (!flags.output.empty() && flags.format.empty())
    fail(ErrorKind::usage, "--output is where --format goes, which is missing");
  const PlaceWork w = work_of(flags);
  const RankPlacement placement = place_ranks(
      {.layout = w.layout, .cluster = w.cluster, .nodes = w.nodes, .reserve = flags.reserve, .bytes = w.bytes});
  const PlaceFile file{placement, w.layout, w.cluster, w.nodes, w.bytes, flags.names};
  const std::string text = flags.format.empty() ? "" : place_file(file, flags.format);
  const bool to_stdout = !text.empty() && (flags.output.empty() || flags.output == "-");
  if (!text.empty() && !to_stdout) write_file_atomic(flags.output, text);
  if (flags.json) {
    Json j = place_json(w, placement);
    if (to_stdout) j["file"] = text;
    fmt::print("{}\n", j.dump());
    return 0;
  }
  print_table(to_stdout ? stderr : stdout, w, placement, file);
  for (const std::string& note : placement.notes) fmt::print(stderr, "dplan place: {}\n", note);
  if (flags.format == "rankfile" && flags.names.sockets == 1)
    fmt::print(stderr,
               "dplan place: all ranks of a node share its socket 0; --node-sockets N deals them to N sockets\n");
  if (to_stdout) fmt::print("{}", text);
  return 0;
}

}  // namespace rw
