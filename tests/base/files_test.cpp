#include "libcore/base/files.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>

#include "libcore/base/error.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {
fs::path scratch() {
  char name[] = "/tmp/rw-files-XXXXXX";
  return ::mkdtemp(name);
}
}  // namespace

TEST_CASE("an atomic write replaces the whole file and leaves nothing beside it") {
  const fs::path dir = scratch(), file = dir / "a.txt";
  write_file_atomic(file, "first, longer");
  write_file_atomic(file, "second");
  CHECK(read_file(file) == "second");
  CHECK(std::distance(fs::directory_iterator(dir), fs::directory_iterator()) == 1);
  const MappedFile map(file);
  CHECK(map.size() == 6);
  CHECK(static_cast<char>(map.data()[0]) == 's');
  write_file_atomic(file, "");
  CHECK(MappedFile(file).size() == 0);
  fs::remove_all(dir);
}

TEST_CASE("file errors say which file and why") {
  const fs::path dir = scratch();
  const auto message = [](auto&& body) -> std::string {
    try {
      body();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message([&] { read_file(dir / "none"); }) ==
        (dir / "none").string() + ": cannot be opened for reading: No such file or directory");
  CHECK(message([&] { read_file(dir); }) == dir.string() + ": expected a file, found a directory");
  CHECK(message([&] { write_file_atomic(dir / "no" / "f", "x"); }).find("creating failed") != std::string::npos);
  fs::remove_all(dir);
}

TEST_CASE("a file lock is held once and free again when its holder goes") {
  const fs::path dir = scratch();
  {
    const FileLock held(dir / "lock", "busy");
    CHECK_THROWS_WITH_AS(FileLock(dir / "lock", "busy"), "busy", Error);
  }
  const FileLock again(dir / "lock", "busy");
  fs::remove_all(dir);
}
