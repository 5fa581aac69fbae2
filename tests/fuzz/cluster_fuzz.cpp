// A cluster file: any bytes either parse to a cluster that is written and read back the same, or give an Error.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/spec/cluster_spec.h"

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  using namespace rw;
  set_log_level(LogLevel::error);
  try {
    ClusterSpec cluster = parse_cluster_spec(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    cluster.where = "written";
    const ClusterSpec again = parse_cluster_spec(cluster_toml(cluster), "written");
    if (!(again == cluster)) std::abort();
    if (cluster.device_count() < 1 || cluster.node_count() < 1) std::abort();
    for (const NodeType& node : cluster.nodes)
      if (!(cluster.device_of(node).memory_bandwidth > 0)) std::abort();
  } catch (const Error&) {
    // The answer to bytes that are no cluster.
  }
}
