// A directory that is written aside and takes its name when it is complete, so that no reader sees half of it and an
// older one lives until then.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

namespace rw {

class StagedDirectory {
 public:
  // Error{usage} when `target` is a file, or holds files and `replace` is not set, or holds one that `is_ours` does not
  // know and that would be lost. Makes an empty directory beside the target.
  StagedDirectory(const std::filesystem::path& target, bool replace,
                  const std::function<bool(const std::string& name)>& is_ours);
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;
  ~StagedDirectory();  // without publish(): nothing is left, the target is as it was
  const std::filesystem::path& path() const { return staged_; }
  // All files in path() are complete and fsynced. Error{runtime}.
  void publish();

 private:
  std::filesystem::path target_, staged_;
};

}  // namespace rw
