// Cluster files: TOML to ClusterSpec and back, and what a file must say.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "libcore/base/error.h"
#include "libcore/base/toml_table.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {
namespace {

constexpr size_t kMostSegments = 3;

std::string join(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += out.empty() ? item : ", " + item;
  return out;
}

// A number that a plan cannot do without.
struct Needed {
  const char* key;
  double value;
  const char* what;   // "of the device memory"
  const char* write;  // "memory-bandwidth = 3.35e12"
};
void require(const TomlTable& table, const Needed& n) {
  if (n.value > 0) return;
  fail(ErrorKind::usage, "{}: expected {}, found {}; write for example {}", table.place(n.key), n.what,
       table.has(n.key) ? "0" : "none", n.write);
}

void check_device(const TomlTable& table, const DeviceType& d) {
  require(table, {"memory", static_cast<double>(d.memory), "the bytes of a device's memory", "memory = \"80Gi\""});
  require(table, {"memory-bandwidth", d.memory_bandwidth, "the bytes/s of its memory", "memory-bandwidth = 3.35e12"});
  require(table, {"peak-bf16", d.peak_f32 + d.peak_bf16 + d.peak_f16,
                  "the FLOP/s of its dense matrix products in at least one of peak-f32, peak-bf16, peak-f16",
                  "peak-bf16 = 989e12"});
  if (d.reserve >= d.memory)
    fail(ErrorKind::usage, "{}: expected less than the memory of {} bytes, found {}", table.place("reserve"), d.memory,
         d.reserve);
}

constexpr double kLeastRate = 1;
// A peak or bandwidth is none (0) or at least 1 a second: with less, times leave what numbers can say.
void refuse_tiny(const TomlTable& table, std::initializer_list<std::pair<const char*, double>> rates) {
  for (const auto& [key, value] : rates)
    if (value > 0 && value < kLeastRate)
      fail(ErrorKind::usage, "{}: expected 0 or at least {} a second, found {}", table.place(key), kLeastRate, value);
}

DeviceType read_device(const std::string& name, const TomlTable& table) {
  if (name.empty() ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != std::string::npos)
    fail(ErrorKind::usage, "{}: expected a device name of letters, digits, - and _, found \"{}\"", table.place(""),
         name);
  DeviceType device;
  device.name = name;
  table.read(fields(device));
  refuse_tiny(table, {{"peak-f32", device.peak_f32},
                      {"peak-bf16", device.peak_bf16},
                      {"peak-f16", device.peak_f16},
                      {"memory-bandwidth", device.memory_bandwidth}});
  check_device(table, device);
  return device;
}

void read_segments(const TomlTable& table, CollectiveFit& fit) {
  const auto refuse = [&](const std::string& found) {
    fail(ErrorKind::usage,
         "{}: expected one to {} rows [from_bytes, alpha, bandwidth] with from_bytes whole, 0 in the first row and "
         "ascending, alpha in seconds from 0 to 1, bandwidth of at least 1 byte/s, found {}; write for example "
         "segments = "
         "[[0, 16e-6, 109e9], [8_000_000, 58e-6, 259e9]]",
         table.place("segments"), kMostSegments, found);
  };
  const auto rows = table.number_rows("segments", 3);
  if (rows.empty()) refuse("none");
  if (rows.size() > kMostSegments) refuse(fmt::format("{} rows", rows.size()));
  for (const std::vector<double>& row : rows) {
    const std::string text = fmt::format("[{}, {}, {}]", row[0], row[1], row[2]);
    const bool is_whole = row[0] >= 0 && row[0] < 9e15 && row[0] == static_cast<double>(static_cast<int64_t>(row[0]));
    if (!is_whole || !(row[1] >= 0 && row[1] <= 1) || !(row[2] >= kLeastRate)) refuse(text);
    const auto from = static_cast<int64_t>(row[0]);
    if (fit.segments.empty() ? from != 0 : from <= fit.segments.back().from_bytes) refuse(text);
    fit.segments.push_back({.from_bytes = from, .alpha = row[1], .bandwidth = row[2]});
  }
}

// `most`: ranks that there can be; 0: any.
std::vector<CollectiveFit> read_collectives(const TomlTable& owner, int64_t most) {
  std::vector<CollectiveFit> fits;
  std::set<std::pair<std::string, int64_t>> seen;
  for (const TomlTable& table : owner.tables("collective")) {
    CollectiveFit fit;
    table.read(fields(fit), {"segments"});
    if (fit.kind.empty())
      fail(ErrorKind::usage, "{}: expected a collective, found none; write for example kind = \"all_reduce\"",
           table.place("kind"));
    require(table, {"ranks", static_cast<double>(fit.ranks), "the number of ranks that were measured", "ranks = 8"});
    if (most > 0 && fit.ranks > most)
      fail(ErrorKind::usage, "{}: expected at most the node's {} devices, found {}", table.place("ranks"), most,
           fit.ranks);
    read_segments(table, fit);
    if (!seen.emplace(fit.kind, fit.ranks).second)
      fail(ErrorKind::usage, "{}: {} over {} ranks stands twice; keep one", table.place("kind"), fit.kind, fit.ranks);
    fits.push_back(std::move(fit));
  }
  return fits;
}

void check_node(const TomlTable& table, const NodeType& n, const std::vector<DeviceType>& devices) {
  std::vector<std::string> names;
  for (const DeviceType& d : devices) names.push_back(d.name);
  if (std::find(names.begin(), names.end(), n.device) == names.end()) {
    const std::string near = nearest(n.device, names);
    fail(ErrorKind::usage, "{}: expected the NAME of a [device.NAME] ({}), found {}{}", table.place("device"),
         join(names), n.device.empty() ? "none" : "\"" + n.device + "\"",
         near.empty() ? "" : "; did you mean \"" + near + "\"?");
  }
  if (n.devices > 1)
    require(table, {"link-bandwidth", n.link_bandwidth, "the bytes/s from one device to the others of its node",
                    "link-bandwidth = 450e9"});
  if (n.link_domain > 0 && n.devices % n.link_domain != 0)
    fail(ErrorKind::usage, "{}: expected a divisor of the node's {} devices, or 0 for all, found {}",
         table.place("link-domain"), n.devices, n.link_domain);
  if (n.link_domain > 0 && n.link_domain < n.devices)
    require(table, {"pcie-bandwidth", n.pcie_bandwidth, "the bytes/s between devices of different link-domains",
                    "pcie-bandwidth = 64e9"});
}

NodeType read_node(const TomlTable& table, const std::vector<DeviceType>& devices) {
  NodeType node;
  table.read(fields(node), {"collective"});
  refuse_tiny(table, {{"link-bandwidth", node.link_bandwidth},
                      {"pcie-bandwidth", node.pcie_bandwidth},
                      {"nic-bandwidth", node.nic_bandwidth},
                      {"host-bandwidth", node.host_bandwidth},
                      {"storage-bandwidth", node.storage_bandwidth}});
  check_node(table, node, devices);
  if (node.name.empty()) node.name = node.device;
  node.collectives = read_collectives(table, node.devices);
  return node;
}

std::vector<NodeType> read_nodes(const TomlTable& top, const std::vector<DeviceType>& devices) {
  const std::vector<TomlTable> tables = top.tables("node");
  std::vector<NodeType> nodes;
  int64_t n_nodes = 0;
  for (const TomlTable& table : tables) {
    nodes.push_back(read_node(table, devices));
    const NodeType& node = nodes.back();
    n_nodes += node.count;
    for (size_t i = 0; i + 1 < nodes.size(); ++i)
      if (nodes[i].name == node.name)
        fail(ErrorKind::usage,
             "{}: the name \"{}\" stands twice; give each [[node]] its own, for example name = \"{}-b\"",
             table.place("name"), node.name, node.name);
  }
  if (n_nodes > 1)
    for (size_t i = 0; i < nodes.size(); ++i)
      require(tables[i], {"nic-bandwidth", nodes[i].nic_bandwidth, "the bytes/s of a NIC, as there are several nodes",
                          "nic-bandwidth = 50e9"});
  return nodes;
}

std::string segments_toml(const CollectiveFit& fit) {
  std::string rows;
  for (const LinkSegment& s : fit.segments)
    rows += fmt::format("{}[{}, {}, {}]", rows.empty() ? "" : ", ", s.from_bytes, s.alpha, s.bandwidth);
  return fmt::format("segments = [{}]\n", rows);
}

std::string collectives_toml(const char* title, const std::vector<CollectiveFit>& fits) {
  std::string out;
  for (CollectiveFit fit : fits)
    out += fmt::format("\n[[{}]]\n{}{}", title, write_toml(fields(fit)), segments_toml(fit));
  return out;
}

}  // namespace

ClusterSpec parse_cluster_spec(const std::string& toml, const std::string& where) {
  const TomlTable top(toml, where);
  ClusterSpec cluster;
  cluster.where = where;
  top.read(fields(cluster), {"device", "node", "network"});
  if (cluster.name.empty()) cluster.name = std::filesystem::path(where).stem().string();
  for (const auto& [name, table] : top.named_tables("device")) cluster.devices.push_back(read_device(name, table));
  if (cluster.devices.empty())
    fail(ErrorKind::usage,
         "{}: expected at least one device type, found none; write a table [device.NAME] with memory, memory-bandwidth "
         "and peak-bf16",
         where);
  cluster.nodes = read_nodes(top, cluster.devices);
  if (cluster.nodes.empty())
    fail(ErrorKind::usage,
         "{}: expected at least one node type, found none; write a table [[node]] with device = \"{}\", count and "
         "devices",
         where, cluster.devices.front().name);
  const std::vector<TomlTable> networks = top.tables("network");
  if (networks.size() > 1)
    fail(ErrorKind::usage, "{}: expected one table [network], found {}", networks[1].place(""), networks.size());
  for (const TomlTable& table : networks) {
    table.read(fields(cluster.network), {"collective"});
    cluster.network.collectives = read_collectives(table, 0);
  }
  return cluster;
}

std::string cluster_toml(const ClusterSpec& cluster) {
  ClusterSpec c = cluster;
  std::string out = write_toml(fields(c));
  for (DeviceType& device : c.devices) out += fmt::format("\n[device.{}]\n{}", device.name, write_toml(fields(device)));
  for (NodeType& node : c.nodes)
    out += "\n[[node]]\n" + write_toml(fields(node)) + collectives_toml("node.collective", node.collectives);
  return out + "\n[network]\n" + write_toml(fields(c.network)) +
         collectives_toml("network.collective", c.network.collectives);
}

}  // namespace rw
