#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/base/os_error.h"
#include "libcore/formats/safetensors.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

const char* file_dtype(DType t) {
  switch (t) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    default: CHECK(false, "export as %s", dtype_name(t));
  }
}

constexpr int64_t kBytesAside = 16;  // that producing an element takes

int64_t bytes_of(const ExportTensor& t) { return n_elements(t.shape) * dtype_bytes(t.dtype); }

// A file under a temporary name; publish() gives it its own. What was not published is removed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target)
      : target_(target),
        path_(target.string() + ".tmp"),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) failed("creating it", errno);
  }
  TemporaryFile(TemporaryFile&& other) noexcept
      : target_(std::move(other.target_)),
        path_(std::exchange(other.path_, {})),
        fd_(std::exchange(other.fd_, -1)),
        bytes_(other.bytes_),
        hash_(std::move(other.hash_)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  void write(const void* data, int64_t bytes) {
    const char* at = static_cast<const char*>(data);
    hash_.update(data, bytes);
    bytes_ += bytes;
    while (bytes > 0) {
      const ssize_t n = ::write(fd_, at, static_cast<size_t>(std::min(bytes, int64_t{1} << 20)));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) failed(fmt::format("writing {} more bytes", bytes), errno);
      at += n;
      bytes -= n;
    }
  }
  void sync_and_close() {
    if (::fsync(fd_) != 0) failed("syncing it to disk", errno);
    if (::close(std::exchange(fd_, -1)) != 0) failed("closing it", errno);
  }
  WrittenFile written() const { return {target_.filename().string(), bytes_, hash_.digest()}; }
  void publish() {
    if (::rename(path_.c_str(), target_.c_str()) != 0) failed("renaming it to its final name", errno);
    path_.clear();
  }

 private:
  [[noreturn]] void failed(const std::string& action, int error) const { os_failed(path_, action, error); }
  fs::path target_, path_;
  int fd_;
  int64_t bytes_ = 0;
  StreamHash hash_;
};

std::string header_of(const std::vector<ExportTensor>& tensors, size_t begin, size_t end) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};  // transformers refuses files that do not say so
  int64_t at = 0;
  for (size_t i = begin; i < end; ++i) {
    const ExportTensor& t = tensors[i];
    header[t.name] = {{"dtype", file_dtype(t.dtype)}, {"shape", t.shape}, {"data_offsets", {at, at + bytes_of(t)}}};
    at += bytes_of(t);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begin 8-byte aligned
  return text;
}

// Tensors [begin, end) of a list.
struct Span {
  const std::vector<ExportTensor>& tensors;
  size_t begin, end;
};

TemporaryFile write_shard(const fs::path& target, const Span& span, int64_t memory_bytes) {
  TemporaryFile file(target);
  const std::string header = header_of(span.tensors, span.begin, span.end);
  const uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), static_cast<int64_t>(length));
  std::vector<char> buffer;
  for (size_t i = span.begin; i < span.end; ++i) {
    const ExportTensor& t = span.tensors[i];
    const int64_t rows = t.shape.empty() ? 1 : t.shape[0];
    if (bytes_of(t) == 0) continue;
    const int64_t row_bytes = bytes_of(t) / rows, width = dtype_bytes(t.dtype);
    const int64_t step = std::clamp<int64_t>(memory_bytes / (row_bytes / width * (kBytesAside + width)), 1, rows);
    for (int64_t first = 0; first < rows; first += step) {
      Box band = whole(t.shape);
      if (!t.shape.empty()) band.offset[0] = first, band.extent[0] = std::min(step, rows - first);
      buffer.resize(static_cast<size_t>(band.size() * width));
      t.read(band, buffer.data());
      file.write(buffer.data(), band.size() * width);
    }
  }
  file.sync_and_close();
  return file;
}

// Ends of the runs of tensors that go into one file each; a tensor larger than the limit has a file of its own.
std::vector<size_t> split(const std::vector<ExportTensor>& tensors, int64_t max_shard_bytes) {
  std::vector<size_t> ends;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (bytes > 0 && bytes + bytes_of(tensors[i]) > max_shard_bytes) ends.push_back(i), bytes = 0;
    bytes += bytes_of(tensors[i]);
  }
  ends.push_back(tensors.size());
  return ends;
}

bool is_of(const std::string& stem, const std::string& name) {
  return name == stem + ".safetensors" || name == stem + ".safetensors.index.json" ||
         (name.starts_with(stem + "-") && name.ends_with(".safetensors"));
}

// Files of an earlier export: a reader must not find them beside the new ones.
void remove_others(const fs::path& dir, const std::string& stem, const std::set<std::string>& keep) {
  std::vector<fs::path> doomed;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (is_of(stem, name) && !keep.contains(name)) doomed.push_back(entry.path());
  }
  std::error_code error;
  for (const fs::path& file : doomed) {
    if (!fs::remove(file, error) && error)
      fail(ErrorKind::runtime, "{}: removing it failed: {}", file.string(), error.message());
  }
}

}  // namespace

std::vector<WrittenFile> write_safetensors(const fs::path& dir, const std::vector<ExportTensor>& tensors,
                                           const SafetensorsOptions& options) {
  CHECK(options.max_shard_bytes > 0, "shards of %lld bytes", static_cast<long long>(options.max_shard_bytes));
  std::set<std::string> names;
  for (const ExportTensor& t : tensors) CHECK(names.insert(t.name).second, "'%s' is exported twice", t.name.c_str());

  const std::vector<size_t> ends = split(tensors, options.max_shard_bytes);
  std::vector<TemporaryFile> files;
  std::vector<WrittenFile> written;
  std::set<std::string> keep;
  Json weight_map = Json::object();
  int64_t total = 0;
  size_t begin = 0;
  for (size_t k = 0; k < ends.size(); ++k) {
    const std::string name = ends.size() == 1
                                 ? options.stem + ".safetensors"
                                 : fmt::format("{}-{:05}-of-{:05}.safetensors", options.stem, k + 1, ends.size());
    files.push_back(write_shard(dir / name, {tensors, begin, ends[k]}, options.memory_bytes));
    written.push_back(files.back().written());
    keep.insert(name);
    for (size_t i = begin; i < ends[k]; ++i) weight_map[tensors[i].name] = name, total += bytes_of(tensors[i]);
    begin = ends[k];
  }
  // Of several files the index goes last and an old one first: at no moment does an index name files of another export.
  if (ends.size() > 1) remove_others(dir, options.stem, keep);
  for (TemporaryFile& file : files) file.publish();
  fsync_path(dir);
  if (ends.size() > 1) {
    const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    const std::string text = index.dump(2) + "\n", name = options.stem + ".safetensors.index.json";
    write_file_atomic(dir / name, text);
    written.push_back({name, static_cast<int64_t>(text.size()), hash64(text)});
  } else {
    remove_others(dir, options.stem, keep);
  }
  return written;
}

}  // namespace rw
