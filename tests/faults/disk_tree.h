// A tree of the crash model as real files, changed from state to state by what differs.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "tests/faults/crash_model.h"

namespace faults {

class DiskTree {
 public:
  explicit DiskTree(std::filesystem::path root) : root_(std::move(root)) {}
  void become(const Tree& tree);
  // Others have written here: start over.
  void forget();

 private:
  std::filesystem::path root_;
  Tree there_;
};

// What lies below a directory, read whole.
Tree read_tree(const std::filesystem::path& root);

}  // namespace faults
