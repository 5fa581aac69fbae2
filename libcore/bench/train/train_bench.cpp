#include "libcore/bench/train/train_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "libcore/base/error.h"
#include "libcore/bench/train/ladder.h"
#include "libcore/bench/train/measure_training.h"
#include "libcore/bench/train/scaling.h"
#include "libcore/bench/train/train_record.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/rank_cores.h"
#include "libcore/device/device.h"
#include "libcore/device/open_device.h"
#include "libcore/formats/model_source.h"
#include "libcore/plan/measure/measured_cluster.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

// What is to be measured, the same on every rank.
struct Cases {
  std::vector<TrainCase> cases;
  std::vector<Rung> rungs;  // of a ladder, those that are skipped too
  std::vector<int> ranks;   // of a sweep
};

Cases cases_of(const TrainBenchSpec& spec, int ranks) {
  check_train_bench(spec);
  const ModelSpec model =
      spec.train.model.empty() ? open_model_source(spec.train.init_from).spec : load_model_spec(spec.train.model);
  Cases c;
  c.ranks = sweep_ranks(spec, ranks);
  if (spec.ladder) {
    c.rungs = ladder_rungs(spec.train, model, ranks);
    for (const Rung& r : c.rungs)
      if (r.skipped.empty()) c.cases.push_back({r.name, r.spec, ranks});
  } else if (!c.ranks.empty()) {
    c.cases = scaling_cases(spec, model, c.ranks);
  } else {
    c.cases = {{settle_layout(spec.train, model, ranks).text(), spec.train, ranks}};
  }
  return c;
}

// This host, as the cluster of the prediction; none where it cannot be measured, which is said.
std::optional<Discovered> measured_host(const TrainBenchSpec& spec, Comm& world, const TrainBenchHooks& hooks) {
  if (world.rank() == 0) hooks.progress("measuring this host, for the prediction", 1);
  std::optional<Discovered> host;
  try {
    host = measured_cluster(threads_per_rank(spec.train.threads, world), world);
  } catch (const SharedError& e) {
    if (world.rank() == 0) hooks.warning(std::string("no prediction: ") + e.what());
  }
  return host;
}

}  // namespace

TrainBenchAnswer run_train_bench(const TrainBenchSpec& spec, Comm& world, const TrainBenchHooks& hooks) {
  world.set_timeout(spec.train.comm_timeout);
  Cases c;
  agree(world, [&] {
    check_device_name(spec.train.device);
    c = cases_of(spec, world.size());
    check_device({.device = spec.train.device, .local_rank = rank_on_host(world)});
  });
  for (const Rung& rung : c.rungs)
    if (!rung.skipped.empty() && world.rank() == 0)
      hooks.warning(fmt::format("the rung \"{}\" is skipped: {}", rung.name, rung.skipped));
  std::optional<ClusterSpec> cluster;
  if (spec.predict && !spec.train.cluster.empty())
    agree(world, [&] { cluster = load_cluster_spec(spec.train.cluster); });
  const std::vector<TrainSeries> all = measure_training(
      {.spec = spec, .world = world, .cases = c.cases, .progress = hooks.progress, .warning = hooks.warning});
  // After the training: measuring takes memory that would count as the training's.
  std::optional<Discovered> host;
  if (spec.predict && !cluster && spec.train.device != "cpu") {
    if (world.rank() == 0)
      hooks.warning(fmt::format(
          "no prediction: --device {} needs --cluster, the file that `dplan discover` writes or a name under "
          "configs/clusters: what can be measured here is the CPU",
          spec.train.device));
  } else if (spec.predict && !cluster) {
    host = measured_host(spec, world, hooks);
  }
  if (host) cluster = host->cluster;
  TrainBenchAnswer answer;
  agree(world, [&] {
    if (world.rank() != 0) return;
    double bytes_per_s = 0;
    if (cluster)
      if (const DeviceType& d = cluster->device_of(cluster->nodes.front()); d.is_cpu())
        bytes_per_s = d.memory_bandwidth;
    for (const TrainSeries& series : all) {
      TrainExpectation expected = expected_training(series, cluster ? &*cluster : nullptr, bytes_per_s);
      expected.was_quiet = !host || host->is_quiet;
      answer.records.push_back(train_record(series, expected, spec));
    }
    if (spec.ladder) {
      answer.table = compare_rungs(c.rungs, answer.records);
    } else if (!c.ranks.empty()) {
      const ScalingAnswer scaling = scaling_answer(spec, c.ranks, answer.records);
      answer.table = scaling.table;
      answer.records.insert(answer.records.end(), scaling.record.begin(), scaling.record.end());
    } else {
      answer.table = train_table(answer.records.front());
    }
  });
  return answer;
}

}  // namespace rw
