// The keys of a cluster file, table by table.
#include "libcore/spec/cluster_spec.h"

namespace rw {
namespace {

constexpr double kSome = 1e-6;  // the least fraction: above 0

const std::vector<std::string> kProvenances = {"measured", "table", "roofline", "guess"};

Field fraction(const char* name, double* value, const char* help) {
  return {.name = name, .value = value, .help = help, .min = kSome, .max = 1};
}

Field rate(const char* name, double* value, const char* help) {
  return {.name = name, .value = value, .help = help, .min = 0, .max = 1e18};
}

Field seconds(const char* name, double* value, const char* help) {
  return {.name = name, .value = value, .help = help, .min = 0, .max = 1};
}

Field bytes(const char* name, int64_t* value, const char* help) {
  return {.name = name, .value = value, .help = help, .min = 0, .is_size = true};
}

}  // namespace

FieldList fields(ClusterSpec& c) {
  return {
      {.name = "name", .value = &c.name, .help = "for people; without it the file's"},
      rate("storage-bandwidth", &c.storage_bandwidth,
           "bytes/s that all nodes together write to shared storage; 0: the nodes' sum"),
      {.name = "mtbf-hours",
       .value = &c.mtbf_hours,
       .help = "mean hours between failures that stop a job on the whole cluster; 0: from its devices",
       .min = 0},
  };
}

FieldList fields(DeviceType& d) {
  return {
      bytes("memory", &d.memory, "bytes of device memory; \"80Gi\" works"),
      rate("peak-f32", &d.peak_f32, "FLOP/s of dense f32 matrix products; 0: it has none"),
      rate("peak-bf16", &d.peak_bf16, "FLOP/s of dense bf16 matrix products that sum in f32; 0: it has none"),
      rate("peak-f16", &d.peak_f16, "FLOP/s of dense f16 matrix products that sum in f32; 0: it has none"),
      rate("memory-bandwidth", &d.memory_bandwidth, "bytes/s of device memory"),
      {.name = "compute-units",
       .value = &d.compute_units,
       .help = "multiprocessors of a GPU; 1: products are not cut into tiles over units",
       .min = 1,
       .max = 1e6},
      {.name = "tile-m",
       .value = &d.tile_m,
       .help = "rows of the largest piece of a product that a unit does at a time",
       .min = 1,
       .max = 1e6},
      {.name = "tile-n", .value = &d.tile_n, .help = "columns of the same", .min = 1, .max = 1e6},
      bytes("reserve", &d.reserve, "bytes of the memory that the runtime keeps (context, communication buffers)"),
      {.name = "price", .value = &d.price, .help = "of a device and hour; 0: unknown", .min = 0},
      {.name = "mtbf-hours",
       .value = &d.mtbf_hours,
       .help = "mean hours of one device between failures that stop a job; 0: unknown",
       .min = 0},
      fraction("gemm-fraction", &d.gemm_fraction, "of the peak, that a large matrix product reaches"),
      {.name = "gemm-half-size",
       .value = &d.gemm_half_size,
       .help = "elements: a product whose smallest side is this reaches half of gemm-fraction; 0: sizes do not matter "
               "beyond tiles",
       .min = 0,
       .max = 1e6},
      fraction("attention-fraction", &d.attention_fraction,
               "of the peak, that fused attention reaches at head size 128 and long sequences"),
      fraction("misaligned-fraction", &d.misaligned_fraction,
               "of gemm-fraction, that unfused attention reaches when the head size is no multiple of 8"),
      fraction("memory-fraction", &d.memory_fraction, "of the memory bandwidth, that element-wise ops reach"),
      seconds("launch", &d.launch, "seconds an op takes beyond its work"),
      fraction("link-fraction", &d.link_fraction, "of every link's bandwidth, that large collectives reach"),
      {.name = "overlap",
       .value = &d.overlap,
       .help = "of the communication that can run beside compute, the share that is hidden",
       .min = 0,
       .max = 1},
      {.name = "provenance",
       .value = &d.provenance,
       .help = "where the calibration above comes from",
       .choices = kProvenances},
  };
}

FieldList fields(NodeType& n) {
  return {
      {.name = "name", .value = &n.name, .help = "for people and messages; without it the device's"},
      {.name = "device", .value = &n.device, .help = "the NAME of a [device.NAME]"},
      {.name = "count", .value = &n.count, .help = "nodes of this type", .min = 1, .max = kMostNodes},
      {.name = "devices", .value = &n.devices, .help = "devices of one node", .min = 1, .max = 4096},
      {.name = "link",
       .value = &n.link,
       .help = "what joins a node's devices, for people",
       .choices = {"nvlink", "nvswitch", "pcie", "shared-memory"}},
      rate("link-bandwidth", &n.link_bandwidth, "bytes/s from one device to the others of its node, one direction"),
      seconds("link-latency", &n.link_latency, "seconds of a message over it"),
      {.name = "link-domain",
       .value = &n.link_domain,
       .help = "devices that share the link, the others being reached over pcie; 0: all of the node",
       .min = 0,
       .max = 4096},
      rate("pcie-bandwidth", &n.pcie_bandwidth, "bytes/s of one device's PCIe, one direction"),
      {.name = "nics", .value = &n.nics, .help = "network cards of a node", .min = 1, .max = 1024},
      rate("nic-bandwidth", &n.nic_bandwidth, "bytes/s of one of them, one direction"),
      seconds("nic-latency", &n.nic_latency, "seconds of a message to another node of the same leaf switch"),
      bytes("host-memory", &n.host_memory, "bytes of host memory of a node; 0: unknown"),
      rate("host-bandwidth", &n.host_bandwidth, "bytes/s between one device and host memory; 0: unknown"),
      rate("storage-bandwidth", &n.storage_bandwidth, "bytes/s that one node writes to shared storage; 0: unknown"),
  };
}

FieldList fields(NetworkSpec& n) {
  return {
      {.name = "nodes-per-leaf",
       .value = &n.nodes_per_leaf,
       .help = "nodes under one leaf switch; 0: one flat switch",
       .min = 0,
       .max = kMostNodes},
      {.name = "oversubscription",
       .value = &n.oversubscription,
       .help = "of a leaf's uplinks: 2 means half the bandwidth above",
       .min = 1,
       .max = 1000},
      seconds("hop-latency", &n.hop_latency, "seconds of each switch level above the leaf"),
      {.name = "rails",
       .value = &n.rails,
       .help = "NIC i of every node hangs on leaf i, so that equal local ranks meet without leaving it"},
  };
}

FieldList fields(CollectiveFit& f) {
  return {
      {.name = "kind",
       .value = &f.kind,
       .help = "the collective",
       .choices = {"all_reduce", "all_gather", "reduce_scatter", "send"}},
      {.name = "ranks", .value = &f.ranks, .help = "that take part", .min = 2, .max = 1e7},
      {.name = "provenance", .value = &f.provenance, .help = "where the fit comes from", .choices = kProvenances},
  };
}

}  // namespace rw
