#include "libcore/ckpt/retention.h"

#include <algorithm>

#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

std::vector<int64_t> steps_to_remove(const std::vector<int64_t>& steps, const Retention& retention) {
  std::vector<int64_t> gone;
  if (retention.keep_last <= 0) return gone;
  const auto n = static_cast<int64_t>(steps.size());
  for (int64_t i = 0; i < n - retention.keep_last; ++i) {
    const int64_t step = steps[static_cast<size_t>(i)];
    if (retention.keep_every <= 0 || step % retention.keep_every != 0) gone.push_back(step);
  }
  return gone;
}

PruneReport prune_steps(const fs::path& checkpoints_dir, const PruneOptions& options) {
  const bool act = options.action == PruneOptions::Action::remove;
  const bool alone = options.leftovers == PruneOptions::Leftovers::remove;
  PruneReport report;
  if (alone) {
    for (const fs::path& dir : leftovers(checkpoints_dir))
      report.removed_leftovers.push_back({dir, step_of_name(dir.stem().string()), directory_bytes(dir)});
    if (act) remove_leftovers(checkpoints_dir);
  }

  std::vector<ListedStep> list = list_steps(checkpoints_dir);
  if (options.check == PruneOptions::Check::every_byte) verify_steps(list, options.watch);
  std::vector<int64_t> committed;
  for (const ListedStep& s : list) {
    if (s.state == StepState::committed) committed.push_back(s.step);
  }
  const std::vector<int64_t> doomed = steps_to_remove(committed, options.retention);
  for (const ListedStep& s : list) {
    const bool goes = s.state == StepState::committed && std::binary_search(doomed.begin(), doomed.end(), s.step) &&
                      // Its .tmp may be a save of the same step that another process is writing.
                      (alone || !fs::exists(tmp_path(s.dir)));
    if (goes) {
      if (act) remove_step(s.dir);
      report.removed.push_back({s.dir, s.step, s.bytes});
    } else if (s.state == StepState::committed || s.state == StepState::part) {
      report.kept.push_back(s);
    } else if (s.state == StepState::damaged) {
      report.damaged.push_back(s);
    } else if (!alone) {
      report.partial.push_back(s);
    }
  }
  for (const auto* list_of : {&report.removed, &report.removed_leftovers}) {
    for (const RemovedDirectory& gone : *list_of) report.bytes += gone.bytes;
  }
  return report;
}

void prune_checkpoints(const fs::path& checkpoints_dir, int64_t keep_last, int64_t keep_every) {
  if (keep_last <= 0) return;
  prune_steps(checkpoints_dir, {.retention = {.keep_last = keep_last, .keep_every = keep_every}});
}

}  // namespace rw
