// A run directory that a tool makes for one checkpoint: OUT/run.json and OUT/checkpoints/step-N, as dtrain's --resume,
// --init-from and --out take it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/base/files.h"
#include "libcore/base/json.h"

namespace rw {

class OutputRun {
 public:
  // Error{usage} when `dir` holds anything and `force` is not set; with it, when what it holds is no run, or another
  // one than `run_id`. Makes the directory and keeps others out of it.
  OutputRun(const std::filesystem::path& dir, const std::string& run_id, bool force);
  OutputRun(const OutputRun&) = delete;
  OutputRun& operator=(const OutputRun&) = delete;
  ~OutputRun();  // without finish(): nothing is left of what was made
  std::filesystem::path checkpoints() const { return dir_ / "checkpoints"; }
  // The checkpoint is committed: run.json, where there is none, gets its identity.
  void finish(Json identity);

 private:
  std::filesystem::path dir_;
  bool is_new_ = false, was_empty_ = false, finished_ = false;
  std::vector<FileLock> lock_;
};

}  // namespace rw
