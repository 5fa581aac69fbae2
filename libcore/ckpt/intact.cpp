#include "libcore/ckpt/intact.h"

#include "libcore/base/error.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/comm/agree.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

void refuse_faults(const fs::path& dir, const std::vector<std::string>& faults) {
  if (faults.empty()) return;
  fail(ErrorKind::verdict, "{}: damaged: {}{}", dir.string(), faults.front(),
       faults.size() > 1 ? fmt::format(" (and {} more faults; `dckpt verify` lists them)", faults.size() - 1) : "");
}

}  // namespace

std::unique_ptr<Checkpoint> intact_checkpoint(const fs::path& dir) {
  auto checkpoint = std::make_unique<Checkpoint>(dir);
  refuse_faults(dir, checkpoint->verify());
  return checkpoint;
}

std::unique_ptr<Checkpoint> intact_checkpoint(const fs::path& dir, Comm& comm) {
  std::unique_ptr<Checkpoint> checkpoint;
  agree(comm, [&] { checkpoint = std::make_unique<Checkpoint>(dir); });
  std::vector<ExpectedFile> mine;
  std::vector<ExpectedFile> files = expected_files(checkpoint->manifest(), dir);
  for (size_t f = static_cast<size_t>(comm.rank()); f < files.size(); f += static_cast<size_t>(comm.size()))
    mine.push_back(std::move(files[f]));
  agree(comm, [&] { refuse_faults(dir, file_faults(mine, 1, nullptr)); });
  return checkpoint;
}

}  // namespace rw
