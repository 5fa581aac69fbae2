// Runs the tools under the fault shim and hands back what they did to their files.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tests/faults/op_record.h"

namespace faults {

// Removed with all that is in it.
class OwnDirectory {
 public:
  explicit OwnDirectory(const std::filesystem::path& parent);
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;
  ~OwnDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A directory for one test, removed with it, holding data.h5 (some text) and nano.json (a model of 6,000 parameters).
class Workplace {
 public:
  Workplace();
  std::filesystem::path operator/(const std::string& name) const { return here_.path() / name; }

  // A shell command in this directory; $DTRAIN is dtrain with the model, the data and what keeps a run short. Returns
  // the exit code; both streams go to the file "log".
  int run(const std::string& command) const;
  // The same with every process that is started through $SHIM (`$SHIM $DTRAIN ...`, `mpirun -n 2 $SHIM $DTRAIN ...`)
  // recorded below `root`. Throws std::runtime_error with the log unless it ends with `code`.
  std::vector<Operation> record(const std::filesystem::path& root, const std::string& command, int code = 0) const;
  std::string log() const;
  // For what is written and removed thousands of times: in memory where the system offers that.
  const std::filesystem::path& fast() const { return fast_.path(); }

 private:
  OwnDirectory here_, fast_;
};

}  // namespace faults
