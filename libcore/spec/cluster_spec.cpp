#include "libcore/spec/cluster_spec.h"

#include <algorithm>
#include <system_error>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/spec/config_find.h"

namespace rw {
namespace {

constexpr ConfigKind kClusters{.folder = "clusters", .suffix = ".toml"};

}  // namespace

const char* provenance_name(Provenance p) {
  switch (p) {
    case Provenance::measured: return "measured";
    case Provenance::table: return "table";
    case Provenance::roofline: return "roofline";
    case Provenance::guess: return "guess";
  }
  return "?";
}

// measured: what runs differ by after a calibration to others of the same machine. table: what two-segment fits miss
// NCCL's 8-GPU tables by, on average 3 to 8 %. roofline: an operator model with one fixed fraction of the data sheet's
// peak misses measured products by several tens of per cent (NVIDIA's aiconfigurator names 64 to 341 %, 7 to 15 % once
// the fraction follows the shape, as ours does). guess: right within a factor of two.
double provenance_error(Provenance p) {
  switch (p) {
    case Provenance::measured: return 0.05;
    case Provenance::table: return 0.08;
    case Provenance::roofline: return 0.2;
    case Provenance::guess: return 0.5;
  }
  return 1;
}

int64_t ClusterSpec::node_count() const {
  int64_t n = 0;
  for (const NodeType& node : nodes) n += node.count;
  return n;
}

int64_t ClusterSpec::device_count() const {
  int64_t n = 0;
  for (const NodeType& node : nodes) n += node.count * node.devices;
  return n;
}

const DeviceType& ClusterSpec::device_of(const NodeType& node) const {
  const auto it =
      std::find_if(devices.begin(), devices.end(), [&](const DeviceType& d) { return d.name == node.device; });
  CHECK(it != devices.end(), "cluster %s: node %s has no device %s", where.c_str(), node.name.c_str(),
        node.device.c_str());
  return *it;
}

ClusterSpec load_cluster_spec(const std::filesystem::path& path) {
  std::error_code none;
  if (std::filesystem::is_regular_file(path, none)) return parse_cluster_spec(read_file(path), path.string());
  if (const auto file = find_config(kClusters, path)) return parse_cluster_spec(read_file(*file), file->string());
  fail(ErrorKind::input, "cluster {}: expected a .toml file or a name under configs/clusters, found none; {}",
       path.string(), config_advice(kClusters, path.string()));
}

std::vector<std::string> cluster_names() { return config_names(kClusters); }

void set_node_count(ClusterSpec& cluster, int64_t nodes) {
  const int64_t before = cluster.node_count();
  CHECK(before > 0, "cluster %s has no node", cluster.where.c_str());
  if (nodes < 1)
    fail(ErrorKind::usage, "{}: expected at least 1 node, found {}; give --nodes 1 or more", cluster.where, nodes);
  if (nodes > kMostNodes)
    fail(ErrorKind::usage, "{}: expected at most {} nodes, found {}", cluster.where, kMostNodes, nodes);
  std::string shares;
  for (const NodeType& node : cluster.nodes) {
    if (nodes > 1 && !(node.nic_bandwidth > 0))
      fail(ErrorKind::usage,
           "{}: node {}: {} nodes need a network, and it has no nic-bandwidth; write nic-bandwidth = 25e9 (bytes/s of "
           "a NIC) in its table",
           cluster.where, node.name, nodes);
    shares += (shares.empty() ? "" : ", ") + std::to_string(node.count) + " of " + node.name;
  }
  for (const NodeType& node : cluster.nodes)
    if (nodes * node.count % before != 0)
      fail(ErrorKind::usage,
           "{}: {} nodes cannot be dealt as its {} are ({}): {} of them would not be whole; give a multiple that keeps "
           "the proportion, or change the counts in the file",
           cluster.where, nodes, before, shares, node.name);
  for (NodeType& node : cluster.nodes) node.count = nodes * node.count / before;
}

}  // namespace rw
