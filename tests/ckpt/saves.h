// Checkpoints made for tests: the made-up model of layouts.h, or a few tensors with given values.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/files.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/step_dirs.h"
#include "tests/ckpt/layouts.h"

namespace saves {

namespace fs = std::filesystem;

struct Head {
  rw::Json identity = {{"run_id", "r-1"}};
  rw::Json state = rw::Json::object();
};

// The made-up model, spread over ranks at random.
inline fs::path made_up(const fs::path& dir, int64_t step, int ranks, unsigned seed, size_t salt,
                        const Head& head = {}) {
  const std::vector<layouts::Share> shares = layouts::spread(ranks, seed, salt);
  rw::run_thread_ranks(ranks, [&](rw::Comm& comm) {
    rw::save_checkpoint(dir, step, shares[static_cast<size_t>(comm.rank())].pieces, head.identity, head.state, comm);
  });
  return dir / rw::step_name(step);
}

struct Values {
  rw::TensorInfo info;
  std::vector<char> bytes;
};

template <typename T>
Values values(const std::string& name, rw::DType dtype, const rw::Shape& shape, const std::vector<T>& numbers) {
  Values v{{name, dtype, shape}, std::vector<char>(numbers.size() * sizeof(T))};
  if (!numbers.empty()) std::memcpy(v.bytes.data(), numbers.data(), v.bytes.size());
  return v;
}

// One rank, whole tensors.
inline fs::path tensors(const fs::path& dir, int64_t step, const std::vector<Values>& list, const Head& head = {}) {
  std::vector<rw::TensorPiece> pieces;
  for (const Values& v : list)
    pieces.push_back({v.info.name, v.info.dtype, v.info.shape, rw::whole(v.info.shape), v.bytes.data()});
  rw::save_checkpoint(dir, step, pieces, head.identity, head.state, *rw::make_self_comm());
  return dir / rw::step_name(step);
}

inline void flip(const fs::path& file, int64_t at, char mask = 4) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(at);
  const char was = static_cast<char>(f.get());
  f.seekp(at);
  f.put(static_cast<char>(was ^ mask));
}

// Every file below a directory with its content, and every directory with "": two of these are equal when nothing
// changed.
inline std::vector<std::pair<std::string, std::string>> tree(const fs::path& dir) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    all.emplace_back(fs::relative(entry.path(), dir).string(),
                     entry.is_regular_file() ? rw::read_file(entry.path()) : std::string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

// Runs `action` in a process of its own and kills it at a random moment of the time that it takes.
class KilledProcess {
 public:
  explicit KilledProcess(unsigned seed) : random_(seed) {}
  // Returns whether it was killed before its end.
  template <typename F>
  bool run(F action) {
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      action();
      ::_exit(0);
    }
    int status = 0;
    if (whole_us_ > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(random_()) % whole_us_));
      ::kill(child, SIGKILL);
    }
    ::waitpid(child, &status, 0);
    if (whole_us_ == 0) {  // the first one only tells how long it takes
      const auto took = std::chrono::steady_clock::now() - start;
      whole_us_ = 1 + std::chrono::duration_cast<std::chrono::microseconds>(took).count();
    }
    return WIFSIGNALED(status);
  }

 private:
  std::mt19937 random_;
  int64_t whole_us_ = 0;
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace saves
