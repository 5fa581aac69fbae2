// The dckpt tool as a process, and a run for it to look at.
#pragma once
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/spec/param_table.h"
#include "libcore/text/tokenizer.h"
#include "tests/ckpt/scratch_dir.h"

namespace dckpt_tool {

struct Result {
  int code;  // 128 + N after signal N
  std::string out, err;
  rw::Json json() const { return rw::parse_json(out, "dckpt's output"); }
};

inline std::string quoted(const std::string& text) {
  std::string q = "'";
  for (const char c : text) q += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return q + "'";
}

// A shell's words, after the tool's name.
inline Result dckpt(const std::string& args) {
  const ScratchDir dir;
  const std::string command = quoted(std::string(std::getenv("RANKWRIGHT_BUILD")) + "/tools/dckpt") + " " + args +
                              " >" + quoted((dir / "out").string()) + " 2>" + quoted((dir / "err").string());
  const int status = std::system(command.c_str());
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), rw::read_file(dir / "out"),
          rw::read_file(dir / "err")};
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A run with a checkpoint of each step, written by two ranks that hold half of every tensor's rows. Element i of a
// weight is i % 101 - 50: exact in bf16.
inline void make_run(const std::filesystem::path& run, const std::vector<int64_t>& steps = {3, 8}) {
  const std::filesystem::path model =
      std::filesystem::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests/golden/models/llama";
  const std::vector<rw::Param> params = rw::param_table(rw::load_model_spec(model));
  const rw::Json identity = {{"run_id", "t-1"},
                             {"model_config", rw::read_json(model / "config.json")},
                             {"layout", {{"tp", 1}, {"dp", 2}, {"text", "tp 1 x pp 1 x dp 2, zero 1"}}},
                             {"config", {{"lr", 0.001}}},
                             {"tokenizer_json", rw::byte_tokenizer()->json()}};
  for (const int64_t step : steps) {
    rw::run_thread_ranks(2, [&](rw::Comm& comm) {
      std::vector<std::vector<float>> storage;
      std::vector<rw::TensorPiece> pieces;
      for (const rw::Param& p : params) {
        for (const char* prefix : {"", "adam.m/", "adam.v/"}) {
          rw::Box box = rw::whole(p.shape);
          box.extent[0] = comm.rank() == 0 ? p.shape[0] / 2 : p.shape[0] - p.shape[0] / 2;
          box.offset[0] = comm.rank() == 0 ? 0 : p.shape[0] / 2;
          std::vector<float>& values = storage.emplace_back(static_cast<size_t>(box.size()));
          const int64_t first = box.offset[0] * (box.size() / std::max<int64_t>(box.extent[0], 1));
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>((first + static_cast<int64_t>(i)) % 101 - 50);
          pieces.push_back({prefix + p.name, rw::DType::f32, p.shape, box, values.data()});
        }
      }
      const rw::Json state = {{"step", step}, {"guard", {{"losses", {5.5, 4.0 + 1.0 / static_cast<double>(step)}}}}};
      rw::save_checkpoint(run / "checkpoints", step, pieces, identity, state, comm);
    });
  }
  std::ofstream(run / "run.json") << R"({"run_id": "t-1"})";
}

}  // namespace dckpt_tool
