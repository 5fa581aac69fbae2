// The folder that a measurement of a job works in: the same path on every host, gone afterwards.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "libcore/base/after_death.h"
#include "libcore/comm/comm.h"

namespace rw {

class BenchFolder {
 public:
  // Collective. `keep`: a new folder, which stays; "": one under the hosts' temporary folder, removed at the end,
  // however this process ends.
  // Error{usage} when `keep` is there already.
  BenchFolder(const std::string& keep, Comm& world);
  ~BenchFolder();
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  // Whether this rank is its host's first: it writes what every host needs.
  bool first_of_host() const { return first_of_host_; }
  bool keeps() const { return keeps_; }

 private:
  std::filesystem::path path_;
  bool first_of_host_ = false, keeps_ = false;
  std::optional<AfterDeath> sweeper_;
};

}  // namespace rw
