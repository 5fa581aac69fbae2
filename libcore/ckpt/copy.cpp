#include "libcore/ckpt/copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/base/direct_file.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/os_error.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/ckpt/shard_digests.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/ckpt/verify.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kPartBytes = int64_t{4} << 20, kAheadBytes = 2 * kPartBytes;

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// The source, read in order.
class SourceFile {
 public:
  explicit SourceFile(const fs::path& file) : file_(file), fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) os_failed(file_, "opening it", errno);
  }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;
  ~SourceFile() { ::close(fd_); }

  void read(char* data, int64_t bytes, int64_t at) {
    // The disk reads what comes next while this part is digested and written.
    ::posix_fadvise(fd_, at + bytes, kAheadBytes, POSIX_FADV_WILLNEED);
    for (int64_t done = 0; done < bytes;) {
      const ssize_t n = ::pread(fd_, data + done, static_cast<size_t>(bytes - done), at + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) os_failed(file_, fmt::format("reading {} bytes at {}", bytes - done, at + done), errno);
      if (n == 0) fail(ErrorKind::verdict, "{}: it ended at {} while it was read", file_.string(), at + done);
      done += n;
    }
  }

 private:
  fs::path file_;
  int fd_;
};

struct Free {
  void operator()(char* p) const { std::free(p); }
};

class Copier {
 public:
  explicit Copier(const CopyOptions& options)
      : options_(options),
        tmp_(tmp_path(options.target)),
        buffer_(static_cast<char*>(std::aligned_alloc(DirectFile::kAlignBytes, static_cast<size_t>(kPartBytes)))) {
    CHECK(buffer_ != nullptr, "no %lld bytes", static_cast<long long>(kPartBytes));
  }
  // Unless it was committed, nothing stays.
  ~Copier() {
    if (is_committed_ || !is_begun_) return;
    std::error_code ignored;
    fs::remove_all(tmp_, ignored);
    for (const fs::path& dir : made_) fs::remove(dir, ignored);
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  CopyReport run() {
    const std::string text = open_source();
    check_target();
    prepare();
    for (const ExpectedFile& file : expected_files(manifest_, options_.source)) copy_file(file);
    if (!faults_.empty()) {
      std::string message = options_.source.string() + ": damaged, not copied:";
      for (const std::string& fault : faults_) message += "\n  " + fault;
      throw Error(ErrorKind::verdict, message);
    }
    write_file_atomic(tmp_ / kManifestName, text);
    if (options_.progress) options_.progress(total_, total_);
    fsync_path(tmp_);
    check_files(read_manifest(tmp_), tmp_);
    publish_directory(tmp_, options_.target);
    is_committed_ = true;
    return {.step = manifest_.step, .bytes = total_, .n_files = static_cast<int64_t>(manifest_.files.size())};
  }

 private:
  std::string open_source() {
    try {
      std::string text = read_regular_file(options_.source / kManifestName);
      manifest_ = parse_manifest(text, (options_.source / kManifestName).string());
      check_files(manifest_, options_.source);
      total_ = static_cast<int64_t>(text.size());
      for (const FileRecord& file : manifest_.files) total_ += file.bytes;
      return text;
    } catch (const Error& e) {
      throw Error(ErrorKind::verdict, fmt::format("damaged, not copied: {}", e.what()));
    }
  }

  void check_target() const {
    const fs::path& target = options_.target;
    std::error_code error;
    if (fs::equivalent(options_.source, target, error) && !error)
      fail(ErrorKind::usage, "{}: expected another place to copy to, found the checkpoint itself", target.string());
    if (options_.existing == CopyOptions::Existing::replace) return;
    if (fs::exists(target, error))
      fail(ErrorKind::usage, "{}: it exists already; --force replaces it", target.string());
    if (options_.existing == CopyOptions::Existing::refuse && fs::exists(tmp_, error)) {
      fail(ErrorKind::usage,
           "{}: a save or copy that is under way or was interrupted; wait for it, or replace it with --force",
           tmp_.string());
    }
  }

  void prepare() {
    std::error_code error;
    const fs::path folder = fs::absolute(tmp_).parent_path();
    std::vector<fs::path> missing;
    for (fs::path dir = folder; !fs::exists(dir, error) && dir.has_relative_path(); dir = dir.parent_path())
      missing.push_back(dir);
    is_begun_ = true;
    for (auto dir = missing.rbegin(); dir != missing.rend(); ++dir) {
      fs::create_directory(*dir, error);
      if (error) os_failed(*dir, "creating the directory", error.value());
      made_.insert(made_.begin(), *dir);
      fsync_path(dir->parent_path());
    }
    fs::remove_all(tmp_, error);
    if (!error) fs::create_directory(tmp_, error);
    if (error) os_failed(tmp_, "creating the directory", error.value());
  }

  void copy_file(const ExpectedFile& file) {
    const FileRecord& record = file.record;
    ShardDigests digests = digests_of(file);
    SourceFile in(file.path);
    DirectFile out(tmp_ / record.name, FileCache::bypass);
    out.reserve(record.bytes);
    for (int64_t at = 0; at < record.bytes; at += kPartBytes) {
      const int64_t n = std::min(kPartBytes, record.bytes - at);
      in.read(buffer_.get(), n, at);
      digests.update(buffer_.get(), n);
      // After the first fault the rest is only read, so that all of them are told.
      if (faults_.empty()) out.write(buffer_.get(), n, at);
      done_ += n;
      if (options_.progress) options_.progress(done_, total_);
    }
    for (std::string& fault : digest_faults(file, digests)) faults_.push_back(std::move(fault));
    if (faults_.empty()) out.sync_and_close();
  }

  const CopyOptions& options_;
  const fs::path tmp_;
  std::unique_ptr<char, Free> buffer_;
  Manifest manifest_;
  std::vector<std::string> faults_;
  std::vector<fs::path> made_;  // directories that were not there before, innermost first
  int64_t done_ = 0, total_ = 0;
  bool is_begun_ = false, is_committed_ = false;
};

}  // namespace

fs::path copy_target(const fs::path& source, const fs::path& dest) {
  const fs::path place = without_slash(dest);
  std::error_code error;
  if (fs::exists(place, error) && !fs::is_directory(place, error))
    fail(ErrorKind::usage, "{}: expected a directory or a new name to copy to, found a file", dest.string());
  int64_t step = step_of_name(without_slash(fs::absolute(source).lexically_normal()).filename().string());
  try {
    step = read_manifest(source).step;
  } catch (const Error&) {
    // Its damage is told by the copy.
  }
  const std::string name = without_slash(fs::absolute(place).lexically_normal()).filename().string();
  const int64_t named = step_of_name(name);
  if (named >= 0 && named != step)
    fail(ErrorKind::usage, "{}: expected the name of step {}, found that of step {}", dest.string(), step, named);
  if (named >= 0) return place;
  if (fs::exists(place / kManifestName, error)) return place;
  if (fs::is_directory(place / "checkpoints", error)) return place / "checkpoints" / step_name(step);
  return place / step_name(step);
}

CopyReport copy_checkpoint(const CopyOptions& options) { return Copier(options).run(); }

}  // namespace rw
