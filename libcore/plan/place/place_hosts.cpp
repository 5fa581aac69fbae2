#include "libcore/plan/place/place_hosts.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/toml_table.h"
#include "libcore/plan/place/place_names.h"

namespace rw {
namespace {

// Devices of each node in the cluster's order.
std::vector<int64_t> node_devices(const ClusterSpec& cluster) {
  std::vector<int64_t> devices;
  for (const NodeType& n : cluster.nodes) devices.insert(devices.end(), static_cast<size_t>(n.count), n.devices);
  return devices;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(const std::string& text, const std::string& where) {
  std::vector<HostSlots> hosts;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    HostSlots host;
    if (!(words >> host.host)) continue;
    if (!is_host_name(host.host))
      fail(ErrorKind::input, "{}:{}: expected a host's name of letters, digits and .-_:, found {}", where, number,
           toml_quoted(host.host));
    int64_t most = std::numeric_limits<int64_t>::max();
    for (std::string word; words >> word;) {
      const std::string key = word.substr(0, word.find('='));
      if (key.size() == word.size())
        fail(ErrorKind::input, "{}:{}: expected \"{} slots=N\", found {}", where, number, host.host, toml_quoted(word));
      const bool is_most = key == "max_slots" || key == "max-slots";
      if (key != "slots" && !is_most) continue;
      const std::string value = word.substr(key.size() + 1);
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), is_most ? most : host.slots);
      if (error != std::errc() || end != value.data() + value.size() || host.slots < -1 || most < 0 || value[0] == '-')
        fail(ErrorKind::input, "{}:{}: {}: expected a whole number, found {}", where, number, key, toml_quoted(value));
    }
    if (most < std::max<int64_t>(1, host.slots))
      fail(ErrorKind::input, "{}:{}: host {}: max_slots = {} is less than its slots, {}", where, number, host.host,
           most, std::max<int64_t>(1, host.slots));
    const auto same = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& h) { return h.host == host.host; });
    if (same == hosts.end()) hosts.push_back(host);
    else same->slots = std::max<int64_t>(1, same->slots) + std::max<int64_t>(1, host.slots);
  }
  return hosts;
}

std::vector<NodeUse> name_nodes(const ClusterSpec& cluster, const std::vector<HostSlots>& hosts,
                                const std::string& where) {
  const std::vector<int64_t> devices = node_devices(cluster);
  if (hosts.size() != devices.size())
    fail(ErrorKind::usage, "{} names {} hosts, but cluster {} has {} nodes; expected as many (--nodes {})", where,
         hosts.size(), cluster.name, devices.size(), hosts.size());
  std::vector<NodeUse> nodes;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].slots >= 0 && hosts[i].slots < devices[i])
      fail(ErrorKind::usage,
           "{}: host {} has {} slots, but node {} of cluster {} has {} devices; give it as many slots, or name what is "
           "taken with --occupied",
           where, hosts[i].host, hosts[i].slots, i, cluster.name, devices[i]);
    nodes.push_back({.host = hosts[i].host});
  }
  return nodes;
}

void occupy(std::vector<NodeUse>& nodes, const ClusterSpec& cluster, const std::vector<HostSlots>& taken,
            const std::string& where) {
  const std::vector<int64_t> devices = node_devices(cluster);
  std::vector<std::string> names;
  for (const NodeUse& n : nodes) names.push_back(n.host);
  for (const HostSlots& t : taken) {
    const auto i = static_cast<size_t>(std::find(names.begin(), names.end(), t.host) - names.begin());
    if (i == names.size()) {
      const std::string near = nearest(t.host, names);
      fail(ErrorKind::usage, "{}: host {} is not among the {} of --hosts{}", where, t.host, names.size(),
           near.empty() ? "" : "; did you mean " + near + "?");
    }
    const int64_t slots = t.slots < 0 ? devices[i] : t.slots;
    if (slots > devices[i])
      fail(ErrorKind::usage, "{}: {} slots of host {} are taken, but it has {} devices", where, slots, t.host,
           devices[i]);
    nodes[i].occupied = slots;
  }
}

}  // namespace rw
