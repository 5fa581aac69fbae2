#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/formats/safetensors.h"
#include "libcore/formats/safetensors_header.h"
#include "libcore/tensor/elements.h"
#include "libcore/tensor/read_check.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

struct OpenFile {
  fs::path path;
  MappedFile map;
  std::vector<SafetensorsEntry> entries;

  explicit OpenFile(const fs::path& file) : path(file), map(file) {
    const std::string_view bytes(reinterpret_cast<const char*>(map.data()), static_cast<size_t>(map.size()));
    entries = parse_safetensors_header(bytes, map.size(), path.string());
  }
};

class SafetensorsSource : public TensorSource {
 public:
  // A single file, or the files of an index: `weight_map` says which tensors of them count.
  SafetensorsSource(std::string where, std::vector<OpenFile> files)
      : where_(std::move(where)), files_(std::move(files)) {
    for (const OpenFile& file : files_) {
      for (const SafetensorsEntry& entry : file.entries) places_.push_back({&file, &entry});
    }
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) { return a.entry->info.name < b.entry->info.name; });
    for (const Place& place : places_) tensors_.push_back(place.entry->info);
  }

  std::string where() const override { return where_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }

  void read(const std::string& name, const Box& box, DType dst_type, void* dst) const override {
    const Place& place = places_[static_cast<size_t>(&require_tensor(*this, name) - tensors_.data())];
    if (!place.entry->readable) {
      fail(ErrorKind::input, "{}: tensor {}: expected F32, F16, BF16, F64 or I64, found {}", place.file->path.string(),
           name, place.entry->file_dtype);
    }
    const TensorInfo& info = check_read(*this, name, box, dst_type);
    const Box stored = whole(info.shape);
    const BoxBytes mapped{place.file->map.data() + place.entry->begin, info.dtype, stored};
    copy_part(box, mapped, dst, dst_type, box);
    let_go(box, mapped);
  }

 private:
  struct Place {
    const OpenFile* file;
    const SafetensorsEntry* entry;
  };
  std::string where_;
  std::vector<OpenFile> files_;
  std::vector<Place> places_;        // sorted by name
  std::vector<TensorInfo> tensors_;  // the same order
};

// Keeps of each file what the index assigns to it.
std::vector<OpenFile> open_indexed(const fs::path& index) {
  const Json j = read_json(index);
  const auto map = j.is_object() ? j.find("weight_map") : j.end();
  if (map == j.end() || !map->is_object()) {
    fail(ErrorKind::input, "{}: key 'weight_map': expected an object of tensor names and files", index.string());
  }
  std::map<std::string, std::vector<std::string>> names_by_file;
  for (const auto& [name, file] : map->items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    if (text.empty() || text.find('/') != std::string::npos || text[0] == '.') {
      fail(ErrorKind::input, "{}: weight_map: tensor {}: expected a file name in the same directory, found {}",
           index.string(), name, file.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    names_by_file[text].push_back(name);
  }
  std::vector<OpenFile> files;
  for (auto& [file, names] : names_by_file) {
    OpenFile& open = files.emplace_back(index.parent_path() / file);
    std::sort(names.begin(), names.end());
    std::erase_if(open.entries, [&](const SafetensorsEntry& e) {
      return !std::binary_search(names.begin(), names.end(), e.info.name);
    });
    for (size_t i = 0; i < names.size(); ++i) {
      if (i < open.entries.size() && open.entries[i].info.name == names[i]) continue;
      fail(ErrorKind::input, "{}: expected tensor {}, which {} assigns to it, found none of that name",
           open.path.string(), names[i], index.filename().string());
    }
  }
  return files;
}

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::vector<fs::path> safetensors_in(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") found.push_back(it->path());
  }
  return found;
}

// The file or index that stands for a directory; empty when there is none.
fs::path pick(const fs::path& dir) {
  if (fs::exists(dir / kSingle)) return dir / kSingle;
  if (fs::exists(dir / kIndex)) return dir / kIndex;
  const std::vector<fs::path> files = safetensors_in(dir);
  return files.size() == 1 ? files[0] : fs::path();
}

}  // namespace

bool holds_safetensors(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return !pick(path).empty();
  const std::string name = path.filename().string();
  return fs::is_regular_file(path, error) &&
         (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

std::unique_ptr<TensorSource> open_safetensors(const fs::path& path) {
  std::error_code error;
  fs::path file = path;
  if (fs::is_directory(path, error)) {
    file = pick(path);
    if (file.empty()) {
      fail(ErrorKind::input, "{}: expected {} or {}, found {} files named *.safetensors", path.string(), kSingle,
           kIndex, safetensors_in(path).size());
    }
  }
  std::vector<OpenFile> files;
  if (file.extension() == ".json") files = open_indexed(file);
  else files.emplace_back(file);
  return std::make_unique<SafetensorsSource>(file.string(), std::move(files));
}

}  // namespace rw
