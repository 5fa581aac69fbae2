#include "libcore/base/files.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

TEST_CASE("an atomic write keeps links and goes into what is no regular file") {
  const fs::path dir = scratch();
  fs::create_directories(dir / "real");
  write_file_atomic(dir / "real" / "a", "old");
  fs::create_symlink("real/a", dir / "link");
  fs::create_symlink("link", dir / "second");
  fs::create_symlink("real/b", dir / "dangling");
  write_file_atomic(dir / "second", "new");
  write_file_atomic(dir / "dangling", "made");
  CHECK(fs::is_symlink(dir / "link"));
  CHECK(fs::is_symlink(dir / "second"));
  CHECK(fs::is_symlink(dir / "dangling"));
  CHECK(read_file(dir / "real" / "a") == "new");
  CHECK(read_file(dir / "real" / "b") == "made");
  const fs::path pipe = dir / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  write_file_atomic(pipe, "through");
  char read[16] = {};
  CHECK(::read(reader, read, sizeof read) == 7);
  CHECK(std::string(read) == "through");
  ::close(reader);
  CHECK(fs::is_fifo(pipe));
  write_file_atomic("/dev/null", "gone");
  CHECK(fs::is_character_file("/dev/null"));
  CHECK_THROWS_WITH_AS(write_file_atomic("/dev/full", "x"), doctest::Contains("No space left"), Error);
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
  CHECK(message([&] { write_file_atomic(dir / "no" / "f", "x"); }) == (dir / "no" / "f").string() +
                                                                          ": cannot be written: there is no folder " +
                                                                          (dir / "no").string() + "; make it first");
  CHECK(message([&] { write_file_atomic(dir, "x"); }).find("found a directory") != std::string::npos);
  write_file_atomic(dir / "plain", "x");
  CHECK(message([&] { write_file_atomic(dir / "plain" / "f", "x"); }).find("Not a directory") != std::string::npos);
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
