// save_writer DIR RANKS STEP...: saves these steps one after the other with so many ranks (threads), keeps the last
// two, and writes "STEP VERSION" to DIR/committed after each. A step named again is saved again, with other values.
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/ckpt/checkpoint.h"
#include "tests/faults/made_up_saves.h"

namespace {

using namespace rw;

void save(const std::filesystem::path& dir, int64_t step, int64_t version, Comm& comm) {
  const int64_t ranks = comm.size(), rank = comm.rank();
  std::vector<std::vector<float>> memory;
  std::vector<TensorPiece> pieces;
  for (const faults::MadeUpTensor& t : faults::made_up_tensors()) {
    const int64_t rows = t.shape[0], begin = rows * rank / ranks, end = rows * (rank + 1) / ranks;
    const int64_t width = n_elements(t.shape) / rows;
    const std::vector<float> all = faults::made_up_values(t, step, version);
    memory.emplace_back(all.begin() + begin * width, all.begin() + end * width);
    Box box = whole(t.shape);
    box.offset[0] = begin;
    box.extent[0] = end - begin;
    pieces.push_back({t.name, DType::f32, t.shape, box, memory.back().data()});
  }
  save_checkpoint(dir / "checkpoints", step, pieces, {{"run_id", "made-up"}}, {{"step", step}}, comm);
  if (rank != 0) return;
  prune_checkpoints(dir / "checkpoints", 2, 0);
  std::ofstream(dir / "committed", std::ios::app) << step << " " << version << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    std::map<int64_t, int64_t> versions;
    for (int i = 3; i < argc; ++i) {
      const int64_t step = std::atoll(argv[i]), version = versions[step]++;
      run_thread_ranks(std::atoi(argv[2]), [&](Comm& comm) { save(argv[1], step, version, comm); });
    }
  } catch (const Error& e) {
    fmt::print(stderr, "save_writer: {}\n", e.what());
    return 1;
  }
  return 0;
}
