#include "tests/faults/disk_tree.h"

#include <fstream>
#include <stdexcept>

#include "libcore/base/files.h"

namespace faults {

namespace fs = std::filesystem;

void DiskTree::become(const Tree& tree) {
  fs::create_directories(root_);
  for (auto old = there_.rbegin(); old != there_.rend(); ++old) {  // children before their directories
    const auto now = tree.find(old->first);
    if (now == tree.end() || (now->second == nullptr) != (old->second == nullptr)) fs::remove_all(root_ / old->first);
  }
  for (const auto& [path, content] : tree) {
    const auto old = there_.find(path);
    const bool kind_stays = old != there_.end() && (old->second == nullptr) == (content == nullptr);
    if (content == nullptr) {
      if (!kind_stays) fs::create_directory(root_ / path);
    } else if (!kind_stays || old->second->digest != content->digest) {
      std::ofstream file(root_ / path, std::ios::binary | std::ios::trunc);
      if (!file.write(content->bytes.data(), static_cast<std::streamsize>(content->bytes.size())).flush())
        throw std::runtime_error((root_ / path).string() + " cannot be written");
    }
  }
  there_ = tree;
}

void DiskTree::forget() {
  fs::remove_all(root_);
  there_.clear();
}

Tree read_tree(const fs::path& root) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string path = fs::relative(entry.path(), root).string();
    tree[path] = entry.is_directory() ? nullptr : content_of(rw::read_file(entry.path()));
  }
  return tree;
}

}  // namespace faults
