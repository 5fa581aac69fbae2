#include "libcore/plan/search/memory_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/model/exec.h"
#include "libcore/plan/search/memory_remedy.h"
#include "libcore/plan/search/plan_file.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

constexpr const char* kLayoutFields[] = {
    "model", "seq-len",    "micro-batch", "global-batch",     "tp",       "pp",           "vpp",       "dp",     "sp",
    "zero",  "zero-group", "recompute",   "recompute-layers", "schedule", "stage-layers", "precision", "threads"};

// The device that a rank must fit, of the least memory.
struct Place {
  std::string device;
  double limit = 0;
  int64_t devices = 0, devices_per_node = 0;
  bool cpu = false;
  ClusterSpec cluster;
};

Place place_of(const MemorySpec& spec) {
  Place place;
  if (spec.max_memory > 0) place.limit = static_cast<double>(spec.max_memory);
  if (spec.cluster.empty()) return place;
  ClusterSpec cluster = load_cluster_spec(spec.cluster);
  if (spec.nodes > 0) set_node_count(cluster, spec.nodes);
  place.devices = cluster.device_count();
  place.cpu = true;
  double least = 0;
  for (const NodeType& node : cluster.nodes) {
    const DeviceType& d = cluster.device_of(node);
    const auto bytes = static_cast<double>(d.memory - d.reserve);
    if (place.device.empty() || bytes < least) place.device = d.name, least = bytes;
    place.devices_per_node =
        place.devices_per_node == 0 ? node.devices : std::min(place.devices_per_node, node.devices);
    place.cpu = place.cpu && d.is_cpu();
  }
  if (place.limit == 0) place.limit = least;
  place.cluster = std::move(cluster);
  return place;
}

int64_t ranks_of(const MemorySpec& spec, const Place& place) {
  const int64_t needed = ranks_needed(spec.train);
  if (place.devices == 0) return needed;
  if (needed > place.devices)
    fail(ErrorKind::usage, "--cluster {} has {} devices, but the layout needs {}; give --nodes {} or more",
         spec.cluster, place.devices, needed, nodes_for(place.cluster, needed));
  return spec.train.dp == "auto" ? place.devices : needed;
}

}  // namespace

FieldList fields(MemorySpec& spec) {
  FieldList list;
  for (const Field& f : fields(spec.train))
    if (std::find(std::begin(kLayoutFields), std::end(kLayoutFields), f.name) != std::end(kLayoutFields))
      list.push_back(f);
  list.push_back({.name = "cluster",
                  .value = &spec.cluster,
                  .help = "a cluster's .toml file or the name of a shipped one, to compare with its smallest device",
                  .group = "Device"});
  list.push_back({.name = "nodes",
                  .value = &spec.nodes,
                  .help = "nodes of the cluster; 0: as its file says",
                  .min = 0,
                  .max = 1 << 20,
                  .group = "Device"});
  list.push_back({.name = "max-memory",
                  .value = &spec.max_memory,
                  .help = "bytes of a rank to compare with; 0: the device's less its reserve",
                  .min = 0,
                  .is_size = true,
                  .group = "Device"});
  list.push_back({.name = "backend",
                  .value = &spec.backend,
                  .help = "whose buffers are counted; auto: this CPU's for devices of one compute unit, an "
                          "accelerator's otherwise",
                  .choices = {"auto", "cpu", "accelerator"},
                  .group = "Device"});
  list.push_back({.name = "rank",
                  .value = &spec.rank,
                  .help = "a rank, or all-stages: the first of each",
                  .or_number = true,
                  .group = "Output"});
  return list;
}

void read_memory_config(MemorySpec& spec, const std::string& toml, const std::string& where) {
  Json tables = Json::object();
  read_toml(fields(spec.train), toml, where, {"plan", "predicted"}, &tables);
  if (tables.contains("plan")) spec.nodes = json_int(tables["plan"], "nodes", where + ": [plan]", spec.nodes);
}

const DryRun& MemoryReport::most() const {
  return *std::max_element(runs.begin(), runs.end(),
                           [](const DryRun& a, const DryRun& b) { return a.total_bytes < b.total_bytes; });
}

MemoryReport memory_report(const MemorySpec& spec) {
  const TrainSpec& train = spec.train;
  if (train.model.empty())
    fail(ErrorKind::usage, "--model is missing: expected a model name, config.json or directory");
  const ModelSpec model = load_model_spec(train.model);
  const Place place = place_of(spec);
  const int64_t ranks = ranks_of(spec, place);
  const Layout layout = settle_layout(train, model, ranks);
  const bool cpu = spec.backend == "cpu" || (spec.backend == "auto" && place.cpu);
  const DryRunSettings settings{
      .step = step_settings(train, model, layout),
      .backend = {.ops = cpu ? this_cpu_ops() : plain_sizes(),
                  .stream = {.threads = static_cast<int>(std::max<int64_t>(1, train.threads))},
                  .t = precision_type(train)},
      .ranks_per_node = place.devices_per_node > 0 ? place.devices_per_node
                        : train.ranks_per_node > 0 ? train.ranks_per_node
                                                   : ranks};
  MemoryReport report{.model = train.model,
                      .precision = train.precision,
                      .backend = settings.backend.ops.name,
                      .device = place.device,
                      .params = n_params(model),
                      .layout = layout,
                      .runs = {},
                      .limit = place.limit,
                      .remedies = {}};
  for (const int64_t rank : ranks_asked("rank", spec.rank, layout)) report.runs.push_back(dry_run(settings, rank));
  if (!report.fits()) report.remedies = memory_remedies(settings, report.limit);
  return report;
}

Json memory_report_json(const MemoryReport& r) {
  Json runs = Json::array();
  for (const DryRun& run : r.runs) runs.push_back(dry_run_json(run));
  Json json{{"model", r.model},
            {"params", r.params},
            {"ranks", r.layout.ranks()},
            {"precision", r.precision},
            {"seq_len", r.layout.seq_len},
            {"global_batch", r.layout.global_batch},
            {"layout", layout_json(r.layout)},
            {"backend", r.backend},
            {"runs", runs},
            {"fits", r.fits()}};
  if (r.limit == 0) return json;
  json["limit_bytes"] = r.limit;
  if (!r.device.empty()) json["device"] = r.device;
  json["missing_bytes"] = std::max(0.0, static_cast<double>(r.most().total_bytes) - r.limit);
  Json changes = Json::array();
  for (const MemoryRemedy& m : r.remedies)
    changes.push_back({{"change", m.change},
                       {"layout", layout_json(m.layout)},
                       {"ranks", m.layout.ranks()},
                       {"stage", m.stage},
                       {"high_water_bytes", m.bytes}});
  if (!r.fits()) json["would_fit"] = changes;
  return json;
}

}  // namespace rw
