// What a training's ranks take of memory, by dry run; against a device's, and which one change of the layout would make
// it fit.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/base/json.h"
#include "libcore/plan/memory/rank_memory.h"
#include "libcore/spec/cluster_spec.h"
#include "libcore/spec/train_spec.h"
#include "libcore/train/dry_run.h"

namespace rw {

struct MemorySpec {
  TrainSpec train;
  std::string cluster;  // "": no device to compare with
  int64_t nodes = 0;    // of it; 0: as the file says
  std::string rank = "all-stages";
  std::string backend = "auto";  // cpu, accelerator
  int64_t max_memory = 0;        // bytes of a rank; 0: the cluster's smallest device less its reserve
};
// Those of TrainSpec that say what a layout takes, and the rest of MemorySpec.
FieldList fields(MemorySpec& spec);
// Any of dtrain's settings from TOML; [plan] names the number of nodes that a plan was made for.
void read_memory_config(MemorySpec& spec, const std::string& toml, const std::string& where);

// One change with which every stage fits.
struct MemoryRemedy {
  std::string change;  // "--recompute full"
  Layout layout;
  int64_t stage = 0;  // that takes most, and its bytes
  int64_t bytes = 0;
};
struct MemoryReport {
  std::string model, precision, backend, device;  // device "": none
  int64_t params = 0;
  Layout layout;
  std::vector<DryRun> runs;
  double limit = 0;  // bytes of a rank; 0: unknown
  // With a limit and a rank beyond it: the changes, one of each kind, the least that do.
  std::vector<MemoryRemedy> remedies;

  const DryRun& most() const;  // the run that takes most
  bool fits() const { return limit == 0 || static_cast<double>(most().total_bytes) <= limit; }
};
// Error{usage} for what settle_layout refuses, a layout that the cluster has too few devices for, a rank that is not
// there.
MemoryReport memory_report(const MemorySpec& spec);
Json memory_report_json(const MemoryReport& report);

}  // namespace rw
