// A folder of a test's own, gone with it; and small token files.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/data/token_file.h"

struct Scratch {
  std::filesystem::path path;
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "rw-data-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove_all(path); }
  std::filesystem::path operator/(const std::string& name) const { return path / name; }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(path / name, std::ios::binary) << content;
    return path / name;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path)) out.push_back(entry.path().filename().string());
    return out;
  }
};

inline void write_tokens(const std::filesystem::path& file, int64_t vocab,
                         const std::vector<std::vector<int32_t>>& documents) {
  rw::TokenFileWriter writer(file, vocab, "{\"a\": \"tokenizer\"}", "bpe-0123456789abcdef");
  for (const auto& d : documents) writer.add_document(d, static_cast<int64_t>(d.size()) * 3);
  writer.finish();
}

// One document 0, 1, 2, ..., n - 1: a token is its own position.
inline std::shared_ptr<const rw::TokenFile> counting_file(const std::filesystem::path& file, int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  write_tokens(file, n, {ids});
  return std::make_shared<const rw::TokenFile>(file);
}

// The message of the rw::Error that `action` throws, with its kind's exit code in front; "" when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const rw::Error& e) {
    return std::to_string(rw::exit_code(e.kind())) + " " + e.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
