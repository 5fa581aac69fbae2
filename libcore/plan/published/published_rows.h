// Published training runs as things that can be predicted: model, layout, cluster, trainer and the measured step. Or
// the reason why not.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/plan/price/trainer_traits.h"
#include "libcore/plan/published/published_table.h"
#include "libcore/spec/cluster_spec.h"
#include "libcore/spec/layout.h"
#include "libcore/spec/model_spec.h"

namespace rw {

struct PublishedRow {
  int64_t line = 0;  // of the table
  std::string source, model_name, device;
  std::string excluded;  // why its time is not predicted; empty: it is
  // The rest of what is predicted.
  std::string trainer;  // in published.toml
  std::string numbers;  // the trainer whose fitted numbers it shares: the same software
  ModelSpec model;
  Layout layout;
  ClusterSpec cluster;
  TrainerTraits traits;
  double step_s = 0;
  std::string how;    // "published", or from what the step time was derived
  std::string group;  // rows of one model, cluster and batch: their order can be compared
  // For checks of FLOP conventions: what the source says, per device, in 1e12 FLOP/s or as a share; 0: nothing.
  double tflops = 0, mfu = 0;
};

// All rows of the table, used and excluded. Clusters and traits are the shipped ones (configs/clusters, trainers), with
// the network of the source. Error as read_published_table, load_cluster_spec and published_trainers.
std::vector<PublishedRow> published_rows(const std::filesystem::path& table);
// The name in published.toml of the trainer that ran a row; empty when its layout is of none of these.
std::string published_trainer(const PublishedCells& cells);

}  // namespace rw
