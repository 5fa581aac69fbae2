#include "libcore/ckpt/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/ckpt/manifest.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/ckpt/verify.h"
#include "libcore/tensor/elements.h"
#include "libcore/tensor/read_check.h"

namespace rw {

namespace fs = std::filesystem;

struct Checkpoint::Impl {
  fs::path dir;
  bool partial = false;
  Manifest manifest;
  Json identity, state;
  std::vector<MappedFile> files;    // in the manifest's order
  std::vector<TensorInfo> tensors;  // in the manifest's order
};

namespace {

constexpr int kVerifyThreads = 2;

MappedFile open_shard(const fs::path& dir, const FileRecord& record) {
  const fs::path file = dir / record.name;
  std::error_code error;
  if (!fs::exists(file, error)) {
    fail(ErrorKind::input, "{}: listed in {} with {} bytes, found no such file", file.string(), kManifestName,
         record.bytes);
  }
  MappedFile map(file);
  if (map.size() != record.bytes) {
    fail(ErrorKind::input, "{}: expected {} bytes (key 'files' of {}), found {}: it was {}", file.string(),
         record.bytes, kManifestName, map.size(), map.size() < record.bytes ? "cut" : "extended");
  }
  return map;
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& dir, Files files) : impl_(std::make_unique<Impl>()) {
  impl_->dir = dir;
  impl_->partial = files == Files::those_here;
  impl_->manifest = read_manifest(dir);
  const fs::path name = dir.has_filename() ? dir.filename() : dir.parent_path().filename();
  if (const int64_t named = step_of_name(name.string()); named >= 0 && named != impl_->manifest.step)
    fail(ErrorKind::input, "{}: expected a manifest of step {}, found step {}", dir.string(), named,
         impl_->manifest.step);
  impl_->identity = parse_json(impl_->manifest.identity, where());
  impl_->state = parse_json(impl_->manifest.state, where());
  for (const FileRecord& record : impl_->manifest.files) {
    // A node's file that was cut short is as good as none: another node has it whole.
    std::error_code error;
    const bool whole = static_cast<int64_t>(fs::file_size(dir / record.name, error)) == record.bytes && !error;
    const bool absent = impl_->partial && !whole;
    impl_->files.push_back(absent ? MappedFile() : open_shard(dir, record));
  }
  for (const TensorRecord& tensor : impl_->manifest.tensors) impl_->tensors.push_back(tensor.info);
}

Checkpoint::~Checkpoint() = default;
std::string Checkpoint::where() const { return impl_->dir.string(); }
const std::vector<TensorInfo>& Checkpoint::tensors() const { return impl_->tensors; }
int64_t Checkpoint::step() const { return impl_->manifest.step; }
const Json& Checkpoint::identity() const { return impl_->identity; }
const Json& Checkpoint::state() const { return impl_->state; }
int64_t Checkpoint::n_files() const { return static_cast<int64_t>(impl_->files.size()); }

int64_t Checkpoint::bytes() const {
  int64_t bytes = 0;
  for (const TensorInfo& t : impl_->tensors) bytes += n_elements(t.shape) * dtype_bytes(t.dtype);
  return bytes;
}

std::vector<StoredPiece> Checkpoint::pieces(const std::string& name) const {
  const TensorInfo& info = require_tensor(*this, name);
  std::vector<StoredPiece> list;
  for (const PieceRecord& p : impl_->manifest.tensors[static_cast<size_t>(&info - impl_->tensors.data())].pieces) {
    list.push_back({p.box, impl_->manifest.files[static_cast<size_t>(p.file)].name, p.at});
  }
  return list;
}

void Checkpoint::read(const std::string& name, const Box& box, DType dst_type, void* dst) const {
  const TensorInfo& info = check_read(*this, name, box, dst_type);
  const TensorRecord& tensor = impl_->manifest.tensors[static_cast<size_t>(&info - impl_->tensors.data())];
  for (const PieceRecord& piece : tensor.pieces) {
    const Box part = intersect(box, piece.box);
    if (part.size() == 0) continue;
    const MappedFile& file = impl_->files[static_cast<size_t>(piece.file)];
    if (file.data() == nullptr)
      fail(ErrorKind::input, "{}: tensor {} {} lies in {}, which is not on this node", where(), name,
           box_text(piece.box), impl_->manifest.files[static_cast<size_t>(piece.file)].name);
    const std::byte* data = file.data() + piece.at;
    copy_part(part, {data, info.dtype, piece.box}, dst, dst_type, box);
    let_go(part, {data, info.dtype, piece.box});
  }
}

const Manifest& Checkpoint::manifest() const { return impl_->manifest; }

std::vector<std::string> Checkpoint::verify(const std::function<void(int64_t)>& progress) const {
  std::vector<ExpectedFile> files = expected_files(impl_->manifest, impl_->dir);
  if (impl_->partial) std::erase_if(files, [](const ExpectedFile& f) { return !fs::exists(f.path); });
  return file_faults(files, kVerifyThreads, progress);
}

}  // namespace rw
