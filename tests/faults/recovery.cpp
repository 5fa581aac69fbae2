#include "tests/faults/recovery.h"

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/node_folders.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/comm/comm.h"
#include "libcore/train/run_dir.h"

namespace faults {

namespace fs = std::filesystem;

namespace {

// A node may hold a part of a local step only: its tensors are put together from files that were found whole.
std::vector<fs::path> files_of(const rw::ResumePlan& plan, const rw::TrainSpec& spec, const std::string& run_id) {
  std::vector<fs::path> files;
  const rw::Manifest& manifest = plan.checkpoint->manifest();
  for (size_t f = 0; f < manifest.files.size(); ++f)
    files.push_back(rw::node_folder(spec.local_checkpoint_dir, run_id, plan.local.holders[f].front()) /
                    rw::step_name(plan.local.step) / manifest.files[f].name);
  return files;
}

}  // namespace

Recovery recover(const fs::path& root, const RunPlace& place) {
  rw::TrainSpec spec;
  spec.out = (root / place.out).string();
  spec.resume = "auto";
  if (!place.local.empty()) spec.local_checkpoint_dir = (root / place.local).string();
  Recovery found;
  try {
    const std::string run_id = rw::run_id_of(spec.out);
    rw::run_thread_ranks(
        place.ranks,
        [&](rw::Comm& comm) {
          const int node = comm.nodes()[static_cast<size_t>(comm.rank())];
          const rw::ResumePlan plan =
              rw::plan_resume(spec, rw::node_folder(spec.local_checkpoint_dir, run_id, node), comm);
          if (comm.rank() != 0) return;
          for (const std::string& note : plan.notes) found.notes += "; " + note;
          if (plan.checkpoint == nullptr) return;
          found.step = plan.checkpoint->step();
          found.tensors = plan.local.step < 0 ? digests_by_checkpoint(*plan.checkpoint)
                                              : digests_by_hdf5(files_of(plan, spec, run_id));
        },
        place.ranks_per_node);
  } catch (const rw::Error& e) {
    found.error = e.what();
  }
  return found;
}

}  // namespace faults
