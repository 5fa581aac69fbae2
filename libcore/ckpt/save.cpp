// Saving and committing. "Committed" is: the directory bears its final name and its manifest verifies.
#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/manifest.h"
#include "libcore/ckpt/shard_file.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/comm/agree.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Runs `action` and returns why it failed, or nothing: a rank must not leave a collective save alone.
template <typename F>
std::string attempt(F action) {
  try {
    action();
    return "";
  } catch (const CheckFailed&) {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  }
}

[[noreturn]] void os_failed(const fs::path& path, const std::string& action, int error) {
  fail(ErrorKind::runtime, "{}: {} failed: {}", path.string(), action,
       std::error_code(error, std::generic_category()).message());
}

void make_directory(const fs::path& dir) {
  std::error_code error;
  fs::create_directory(dir, error);
  if (error) os_failed(dir, "creating the directory", error.value());
}

void rename_directory(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) os_failed(from, "renaming it to " + to.filename().string(), errno);
}

// Puts tmp in the place of final. A committed step of the same name is swapped out in one system call where the file
// system can; elsewhere it steps aside under a name that the reader accepts while the final one is missing.
void publish(const fs::path& tmp, const fs::path& final) {
  std::error_code ignored;
  if (!fs::exists(final)) {
    rename_directory(tmp, final);
  } else if (::renameat2(AT_FDCWD, tmp.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
    fsync_path(final.parent_path());
    fs::remove_all(tmp, ignored);
  } else if (errno != EINVAL && errno != ENOSYS) {
    os_failed(tmp, "exchanging it with " + final.filename().string(), errno);
  } else {
    const fs::path aside = replaced_path(final);
    rename_directory(final, aside);
    rename_directory(tmp, final);
    fsync_path(final.parent_path());
    fs::remove_all(aside, ignored);
  }
  fsync_path(final.parent_path());
}

// Rank 0, before: the directory exists, leftovers of interrupted saves are gone, tmp is there and empty.
void prepare(const fs::path& dir, const fs::path& tmp) {
  std::error_code error;
  if (fs::create_directories(dir, error) && !error) {
    const fs::path full = fs::absolute(dir).lexically_normal();
    fsync_path((full.has_filename() ? full : full.parent_path()).parent_path());
  }
  if (error) os_failed(dir, "creating the directory", error.value());
  remove_leftovers(dir);
  make_directory(tmp);
}

// Rank 0, after: `reports` are every rank's shard_text.
void commit(const fs::path& tmp, const fs::path& final, Manifest head, const std::vector<std::string>& reports) {
  std::vector<ShardRecord> shards;
  for (size_t r = 0; r < reports.size(); ++r) shards.push_back(parse_shard(reports[r], "rank " + std::to_string(r)));
  Manifest manifest = join_shards(shards);
  manifest.step = head.step;
  manifest.identity = std::move(head.identity);
  manifest.state = std::move(head.state);
  manifest.created = utc_timestamp();
  write_file_atomic(tmp / kManifestName, manifest_text(manifest));
  fsync_path(tmp);
  publish(tmp, final);
}

}  // namespace

SaveReport save_checkpoint(const fs::path& checkpoints_dir, int64_t step, const std::vector<TensorPiece>& pieces,
                           const Json& identity, const Json& state, Comm& comm) {
  const double start_s = now_s();
  const fs::path final = checkpoints_dir / step_name(step);
  const fs::path tmp = final.string() + ".tmp";
  const auto give_up = [&](int rank, const std::string& cause) {
    std::error_code ignored;
    if (comm.rank() == 0) fs::remove_all(tmp, ignored);
    throw SharedError(
        ErrorKind::runtime,
        fmt::format("checkpoint of step {}: rank {}: {}; earlier checkpoints are untouched", step, rank, cause));
  };

  std::string problem = attempt([&] {
    if (comm.rank() == 0) prepare(checkpoints_dir, tmp);
  });
  problem = comm.broadcast_text(problem, 0);
  if (!problem.empty()) give_up(0, problem);

  std::string report;
  problem =
      attempt([&] { report = shard_text(write_shard_file(tmp / fmt::format("rank-{:05}.h5", comm.rank()), pieces)); });
  // One gather tells every rank of every failure and rank 0 of every piece; the first character says which it is.
  std::vector<std::string> reports = comm.gather_text(problem.empty() ? "+" + report : "-" + problem);
  for (size_t r = 0; r < reports.size(); ++r) {
    const bool failed = reports[r].starts_with('-');
    reports[r].erase(0, 1);
    if (failed) give_up(static_cast<int>(r), reports[r]);
  }

  problem = attempt([&] {
    if (comm.rank() != 0) return;
    Manifest head;
    head.step = step;
    head.identity = identity.dump();
    head.state = state.dump();
    commit(tmp, final, std::move(head), reports);
  });
  problem = comm.broadcast_text(problem, 0);
  if (!problem.empty()) give_up(0, problem);

  int64_t bytes = 0;
  for (const TensorPiece& piece : pieces) bytes += piece.box.size() * dtype_bytes(piece.dtype);
  SaveReport done;
  done.bytes = comm.all_reduce_value(bytes, ReduceOp::sum);
  done.seconds = now_s() - start_s;
  return done;
}

}  // namespace rw
