#include "libcore/bench/preflight/rank_facts.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

namespace rw {
namespace {

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(); }

std::map<std::string, std::string> texts(const Json& json, const char* key, const std::string& where) {
  std::map<std::string, std::string> out;
  if (const auto it = json.find(key); it != json.end() && it->is_object())
    for (const auto& [name, value] : it->items()) out[name] = json_string(*it, name.c_str(), where);
  return out;
}

const Json& list(const Json& json, const char* key) {
  static const Json none = Json::array();
  const auto it = json.find(key);
  return it != json.end() && it->is_array() ? *it : none;
}

std::vector<int64_t> whole_numbers(const Json& numbers) {
  std::vector<int64_t> out;
  for (const Json& n : numbers)
    if (n.is_number_integer()) out.push_back(n.get<int64_t>());
  return out;
}

std::vector<std::string> strings(const Json& json, const char* key) {
  std::vector<std::string> out;
  for (const Json& s : list(json, key))
    if (s.is_string()) out.push_back(s.get<std::string>());
  return out;
}

// One list of the plain members, for both directions.
template <typename Facts, typename Visit>
void visit_numbers(Facts& f, const Visit& visit) {
  visit("clock_offset_s", f.clock_offset_s);
  visit("round_trip_s", f.round_trip_s);
  visit("disk_mb_per_s", f.disk_mb_per_s);
  visit("quota_cores", f.quota_cores);
  visit("load", f.load);
  visit("steal", f.steal);
  visit("gemm_gflop_per_s", f.gemm_gflop_per_s);
}
template <typename Facts, typename Visit>
void visit_counts(Facts& f, const Visit& visit) {
  visit("memlock_bytes", f.memlock_bytes);
  visit("open_files", f.open_files);
  visit("processes", f.processes);
  visit("memory_available", f.memory_available);
  visit("shm_free", f.shm_free);
  visit("disk_free", f.disk_free);
  visit("host_cores", f.host_cores);
}
template <typename Facts, typename Visit>
void visit_texts(Facts& f, const Visit& visit) {
  visit("binary", f.binary);
  visit("default_interface", f.default_interface);
  visit("disk_dir", f.disk_dir);
  visit("disk_error", f.disk_error);
  visit("bus_file", f.bus_file);
  visit("governor", f.governor);
  visit("huge_pages", f.huge_pages);
}

}  // namespace

Json rank_facts_json(const RankFacts& f) {
  Json json{{"rank", f.rank},
            {"host", f.host},
            {"versions", f.versions},
            {"environment", f.environment},
            {"addresses", f.addresses},
            {"tcp", f.tcp},
            {"link_counters", f.link_counters},
            {"cores", f.cores},
            {"threads", f.threads},
            {"has_rdma", f.has_rdma},
            {"nvidia_smi_late", f.smi_is_late}};
  visit_numbers(f, [&](const char* key, double v) { json[key] = number(v); });
  visit_counts(f, [&](const char* key, int64_t v) { json[key] = v; });
  visit_texts(f, [&](const char* key, const std::string& v) { json[key] = v; });
  json["interfaces"] = Json::array();
  for (const InterfaceFacts& i : f.interfaces)
    json["interfaces"].push_back({{"name", i.name}, {"mtu", i.mtu}, {"up", i.is_up}});
  json["gpus"] = Json::array();
  for (const GpuState& g : f.gpus)
    json["gpus"].push_back({{"name", g.name},
                            {"memory", g.memory},
                            {"clock_mhz", number(g.clock_mhz)},
                            {"ecc_errors", number(g.ecc_errors)},
                            {"temperature", number(g.temperature)},
                            {"bus_id", g.bus_id}});
  json["bus_gpus"] = Json::array();
  for (const BusGpu& g : f.bus_gpus)
    json["bus_gpus"].push_back({{"bus_id", g.bus_id}, {"name", g.name}, {"driver", g.driver}});
  json["gpu_topology"] = {{"nics", f.topology.nics},
                          {"nic_cores", f.topology.nic_cores},
                          {"knows_nvlink", f.topology.knows_nvlink},
                          {"gpus", Json::array()}};
  for (const GpuNeighbours& g : f.topology.gpus)
    json["gpu_topology"]["gpus"].push_back(
        {{"gpus", g.gpus}, {"nics", g.nics}, {"cores", g.cores}, {"numa_node", g.numa_node}});
  return json;
}

RankFacts parse_rank_facts(const Json& json, const std::string& where) {
  RankFacts f;
  f.rank = json_int(json, "rank", where);
  f.host = json_string(json, "host", where);
  f.versions = texts(json, "versions", where);
  f.environment = texts(json, "environment", where);
  f.addresses = texts(json, "addresses", where);
  f.tcp = texts(json, "tcp", where);
  f.threads = json_int(json, "threads", where, f.threads);
  f.has_rdma = json_bool(json, "has_rdma", where, false);
  f.smi_is_late = json_bool(json, "nvidia_smi_late", where, false);
  visit_numbers(f, [&](const char* key, double& v) { v = json_number(json, key, where, kUnknown); });
  visit_counts(f, [&](const char* key, int64_t& v) { v = json_int(json, key, where, -1); });
  visit_texts(f, [&](const char* key, std::string& v) { v = json_string(json, key, where, ""); });
  if (const auto it = json.find("link_counters"); it != json.end() && it->is_object())
    for (const auto& [name, value] : it->items()) f.link_counters[name] = json_int(*it, name.c_str(), where);
  f.cores = whole_numbers(list(json, "cores"));
  for (const Json& i : list(json, "interfaces"))
    f.interfaces.push_back({.name = json_string(i, "name", where),
                            .mtu = json_int(i, "mtu", where, -1),
                            .is_up = json_bool(i, "up", where, false)});
  for (const Json& g : list(json, "gpus"))
    f.gpus.push_back({.name = json_string(g, "name", where),
                      .memory = json_int(g, "memory", where, 0),
                      .clock_mhz = json_number(g, "clock_mhz", where, kUnknown),
                      .ecc_errors = json_number(g, "ecc_errors", where, kUnknown),
                      .temperature = json_number(g, "temperature", where, kUnknown),
                      .bus_id = json_string(g, "bus_id", where, "")});
  for (const Json& g : list(json, "bus_gpus"))
    f.bus_gpus.push_back({.bus_id = json_string(g, "bus_id", where),
                          .name = json_string(g, "name", where, ""),
                          .driver = json_string(g, "driver", where, "")});
  if (const auto it = json.find("gpu_topology"); it != json.end() && it->is_object()) {
    f.topology.nics = strings(*it, "nics");
    f.topology.knows_nvlink = json_bool(*it, "knows_nvlink", where, true);
    for (const Json& cores : list(*it, "nic_cores")) f.topology.nic_cores.push_back(whole_numbers(cores));
    if (!f.topology.nic_cores.empty() && f.topology.nic_cores.size() != f.topology.nics.size())
      fail(ErrorKind::input, "{}: gpu_topology: expected the cores of each of {} NICs, found those of {}", where,
           f.topology.nics.size(), f.topology.nic_cores.size());
    for (const Json& g : list(*it, "gpus"))
      f.topology.gpus.push_back({.gpus = strings(g, "gpus"),
                                 .nics = strings(g, "nics"),
                                 .cores = whole_numbers(list(g, "cores")),
                                 .numa_node = json_int(g, "numa_node", where, -1)});
    // A matrix, or not told.
    for (const GpuNeighbours& g : f.topology.gpus)
      if (g.gpus.size() != f.topology.gpus.size() || g.nics.size() != f.topology.nics.size())
        fail(ErrorKind::input, "{}: gpu_topology: expected a way to each of {} GPUs and {} NICs, found {} and {}",
             where, f.topology.gpus.size(), f.topology.nics.size(), g.gpus.size(), g.nics.size());
  }
  return f;
}

}  // namespace rw
