#include "libcore/ckpt/verify.h"

#include "libcore/base/error.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

VerifiedCheckpoint verify_checkpoint(const fs::path& dir) {
  VerifiedCheckpoint report;
  report.dir = dir;
  try {
    const Checkpoint checkpoint(dir);
    report.step = checkpoint.step();
    report.bytes = checkpoint.bytes();
    report.faults = checkpoint.verify();
  } catch (const Error& e) {
    report.faults.push_back(e.what());
  }
  return report;
}

std::vector<VerifiedCheckpoint> verify_checkpoints(const fs::path& checkpoints_dir,
                                                   const std::function<void(const fs::path&)>& begin,
                                                   std::vector<fs::path>* unfinished) {
  std::vector<VerifiedCheckpoint> reports;
  for (const auto& [step, dir] : step_directories(checkpoints_dir, unfinished)) {
    begin(dir);
    VerifiedCheckpoint report = verify_checkpoint(dir);
    if (report.step >= 0 && report.step != step) {
      report.faults.push_back(
          fmt::format("{}: expected a manifest of step {}, found step {}", dir.string(), step, report.step));
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace rw
