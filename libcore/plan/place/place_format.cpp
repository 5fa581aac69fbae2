#include "libcore/plan/place/place_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/plan/place/place_names.h"
#include "libcore/plan/price/collective_seconds.h"

namespace rw {
namespace {

void need_hosts(const PlaceFile& f, const char* format) {
  if (f.nodes.empty())
    fail(ErrorKind::usage, "--format {} names hosts: give --hosts, a file with the hosts of the cluster's {} nodes",
         format, f.cluster.node_count());
}

void need_order(const PlaceFile& f, const char* format, const char* instead) {
  if (!f.placement.ranks_follow_nodes())
    fail(ErrorKind::usage,
         "--format {} fills one host after the other, but in this placement (order {}) ranks do not "
         "follow the hosts; use --format {}",
         format, f.placement.order, instead);
}

std::string hosts_of(const std::vector<UsedNode>& used) {
  std::string text;
  for (const UsedNode& n : used) text += (text.empty() ? "" : ",") + n.host;
  return text;
}

// Open MPI's allreduce for the gradients: its "tuned" component's numbers, 3 recursive doubling, 4 ring.
int open_mpi_allreduce(const PlaceFile& f) {
  const NodeType& n = node_type(f, f.placement.place(0).node);
  const double bandwidth = n.nic_bandwidth > 0 ? n.nic_bandwidth : n.link_bandwidth;
  const double bytes = f.bytes.shard + f.bytes.replica;
  const WireCost wire{n.nic_bandwidth > 0 ? n.nic_latency : n.link_latency, 1 / bandwidth};
  return ring_all_reduce_s(bytes, f.layout.dp, wire) < doubling_all_reduce_s(bytes, f.layout.dp, wire) ? 4 : 3;
}

}  // namespace

const NodeType& node_type(const PlaceFile& f, int64_t node) {
  for (const NodeType& n : f.cluster.nodes) {
    if (node < n.count) return n;
    node -= n.count;
  }
  CHECK(false, "node %lld is beyond the cluster", static_cast<long long>(node));
  return f.cluster.nodes.back();
}

std::vector<UsedNode> used_nodes(const PlaceFile& f) {
  std::map<int64_t, UsedNode> used;
  for (int64_t r = 0; r < f.layout.ranks(); ++r) {
    const int64_t node = f.placement.place(r).node;
    UsedNode& u = used[node];
    u.node = node;
    if (!f.nodes.empty()) u.host = f.nodes[static_cast<size_t>(node)].host;
    u.ranks.push_back(r);
  }
  std::vector<UsedNode> list;
  for (auto& [node, u] : used) list.push_back(std::move(u));
  return list;
}

std::string rank_list(const UsedNode& node) {
  std::string text;
  for (const int64_t r : node.ranks) text += (text.empty() ? "" : " ") + std::to_string(r);
  return text;
}

std::string slot_text(const PlaceFile& f, int64_t rank) {
  const DevicePlace& p = f.placement.place(rank);
  const int64_t devices = node_type(f, p.node).devices, sockets = f.names.sockets, cores = f.names.cores;
  if (sockets < 1 || cores < 0 || cores % sockets != 0)
    fail(ErrorKind::usage, "--node-cores {} do not divide over --node-sockets {}", cores, sockets);
  const int64_t per_socket = cores / sockets;
  const auto range = [](int64_t socket, int64_t a, int64_t b) {
    return a == b ? fmt::format("{}:{}", socket, a) : fmt::format("{}:{}-{}", socket, a, b);
  };
  if (devices < sockets) {
    std::string text;
    for (int64_t s = p.device * sockets / devices; s < (p.device + 1) * sockets / devices; ++s)
      text += (text.empty() ? "" : ";") + (cores == 0 ? fmt::format("{}:*", s) : range(s, 0, per_socket - 1));
    return text;
  }
  const int64_t socket = p.device * sockets / devices;
  if (cores == 0) return fmt::format("{}:*", socket);
  const int64_t first = (socket * devices + sockets - 1) / sockets,
                end = ((socket + 1) * devices + sockets - 1) / sockets;
  const int64_t i = p.device - first, n = end - first, begin = i * per_socket / n;
  return range(socket, begin, std::max(begin, (i + 1) * per_socket / n - 1));
}

std::string rankfile_text(const PlaceFile& f) {
  need_hosts(f, "rankfile");
  std::string text;
  for (int64_t r = 0; r < f.layout.ranks(); ++r)
    text += fmt::format("rank {}={} slot={}\n", r, f.nodes[static_cast<size_t>(f.placement.place(r).node)].host,
                        slot_text(f, r));
  return text;
}

std::string hostfile_text(const PlaceFile& f) {
  need_hosts(f, "hostfile");
  need_order(f, "hostfile", "rankfile");
  std::string text;
  for (const UsedNode& n : used_nodes(f)) text += fmt::format("{} slots={}\n", n.host, n.ranks.size());
  return text;
}

std::string slurm_text(const PlaceFile& f) {
  const std::vector<UsedNode> used = used_nodes(f);
  const bool block = f.placement.ranks_follow_nodes();
  const bool even = std::all_of(used.begin(), used.end(),
                                [&](const UsedNode& n) { return n.ranks.size() == used.front().ranks.size(); });
  if (!block || !even) need_hosts(f, "slurm");
  std::set<int64_t> leaves;
  for (int64_t r = 0; r < f.layout.ranks(); ++r) leaves.insert(f.placement.place(r).leaf);
  std::string text = fmt::format("#SBATCH --nodes={}\n#SBATCH --ntasks={}\n", used.size(), f.layout.ranks());
  if (even) text += fmt::format("#SBATCH --ntasks-per-node={}\n", used.front().ranks.size());
  if (!f.nodes.empty()) text += fmt::format("#SBATCH --nodelist={}\n", hosts_of(used));
  if (f.cluster.network.nodes_per_leaf > 0 && used.size() > 1)
    text += fmt::format("#SBATCH --switches={}\n", leaves.size());
  if (block && even) return text + "#SBATCH --distribution=block:block\n\nsrun --distribution=block:block \"$@\"\n";
  // Slurm takes the tasks' hosts from this file, one a line, task 0 first.
  text += "\nexport SLURM_HOSTFILE=$PWD/rankwright-hosts.$SLURM_JOB_ID\ncat >\"$SLURM_HOSTFILE\" <<'HOSTS'\n";
  for (int64_t r = 0; r < f.layout.ranks(); ++r)
    text += f.nodes[static_cast<size_t>(f.placement.place(r).node)].host + "\n";
  return text + "HOSTS\nsrun --distribution=arbitrary \"$@\"\n";
}

std::string env_text(const PlaceFile& f) {
  const std::vector<UsedNode> used = used_nodes(f);
  const NodeType& type = node_type(f, used.front().node);
  const PlaceNames& names = f.names;
  std::string text = "# NCCL and Open MPI settings that follow from the cluster and this placement.\n";
  const auto add = [&](const char* name, const std::string& value) {
    text += fmt::format("export {}={}\n", name, value);
  };
  if (!names.nics.empty() && static_cast<int64_t>(names.nics.size()) != type.nics)
    fail(ErrorKind::usage, "{} --nic names, but node {} has {} NICs; expected as many", names.nics.size(), type.name,
         type.nics);
  if (!names.interface.empty()) {
    add("NCCL_SOCKET_IFNAME", "=" + names.interface);
    add("OMPI_MCA_btl_tcp_if_include", names.interface);
    add("OMPI_MCA_oob_tcp_if_include", names.interface);
  } else if (used.size() > 1) {
    text += "# --interface NAME adds NCCL_SOCKET_IFNAME and what Open MPI needs for TCP\n";
  }
  if (!names.nics.empty()) {
    std::string devices, ports;
    for (const std::string& n : names.nics) {
      const char* comma = devices.empty() ? "" : ",";
      devices += comma + n;
      ports += comma + n + ":1";
    }
    add("NCCL_IB_HCA", "=" + devices);
    add("OMPI_MCA_pml", "ucx");
    add("UCX_NET_DEVICES", ports);
  } else if (used.size() > 1) {
    text += fmt::format("# --nic NAME, {} times, adds NCCL_IB_HCA and Open MPI's UCX devices\n", type.nics);
  }
  // On rails a ring that changes NICs leaves its rail.
  if (f.cluster.network.rails && used.size() > 1) add("NCCL_CROSS_NIC", "0");
  if (f.layout.dp > 1) {
    text += fmt::format("# gradients over {} ranks: {} is the cheaper of ring (4) and recursive doubling (3)\n",
                        f.layout.dp, open_mpi_allreduce(f));
    add("OMPI_MCA_coll_tuned_use_dynamic_rules", "1");
    add("OMPI_MCA_coll_tuned_allreduce_algorithm", std::to_string(open_mpi_allreduce(f)));
  }
  for (const UsedNode& n : used) {
    const int64_t devices = node_type(f, n.node).devices;
    if (static_cast<int64_t>(n.ranks.size()) == devices) continue;
    std::string list;
    for (const int64_t r : n.ranks) list += fmt::format("{}{}", list.empty() ? "" : ",", f.placement.place(r).device);
    text += fmt::format("# on {}: CUDA_VISIBLE_DEVICES={}\n", n.host.empty() ? fmt::format("node {}", n.node) : n.host,
                        list);
  }
  return text;
}

std::string place_file(const PlaceFile& file, const std::string& format) {
  check_place_names(file.names);
  if (format == "rankfile") return rankfile_text(file);
  if (format == "hostfile") return hostfile_text(file);
  if (format == "slurm") return slurm_text(file);
  if (format == "k8s") return k8s_text(file);
  if (format == "nccl-topo") return nccl_topo_text(file);
  CHECK(format == "env", "format %s", format.c_str());
  return env_text(file);
}

}  // namespace rw
