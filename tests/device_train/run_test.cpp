// Laws of a device's runs: near the CPU's, the same bits every time, whatever is recomputed and wherever it is
// interrupted; checkpoints that do not know where they were made; no memory taken after the start.
#include <mutex>
#include <nlohmann/json.hpp>

#include "kernels/simt/cublaslt.cuh"
#include "kernels/simt/runtime.cuh"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/train/train_state.h"
#include "tests/ckpt/scratch_dir.h"
#include "tests/device_train/small_case.h"

using namespace rw;
using namespace rw::parallel;

namespace {

namespace fs = std::filesystem;

// Steps [first, last), from a checkpoint (empty: from the initial weights), saved at the end.
Curve run_part(const Case& c, const fs::path& from, int64_t first, int64_t last, const fs::path& to) {
  Curve result;
  std::mutex mutex;
  run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& host) {
    host.set_timeout(60);
    const TestRank rank(host, c.device);
    const auto record = std::make_shared<CommRecord>();
    Mesh mesh = make_mesh(rank.world(), mesh_shape_of(c), record);
    Arena arena(rank.memory());
    TrainStep step(settings_of(c), rank.exec(c.t), mesh, record, arena);
    if (from.empty()) {
      initialise(step, c);
    } else {
      const Checkpoint checkpoint(from);
      load_params(step, checkpoint, Load::weights_and_moments);
      step.optimizer().set_steps_taken(checkpoint.state().at("updates").get<int64_t>());
    }
    const Curve curve = run_steps(step, c, first, last);
    rank.device().wait();
    save_checkpoint(to, last, checkpoint_pieces(step), Json::object(),
                    Json{{"updates", step.optimizer().steps_taken()}}, *mesh.world, rank.copy());
    const std::lock_guard lock(mutex);
    result = curve;
  });
  return result;
}

Curve joined(Curve a, const Curve& b) {
  a.losses.insert(a.losses.end(), b.losses.begin(), b.losses.end());
  a.grad_norms.insert(a.grad_norms.end(), b.grad_norms.begin(), b.grad_norms.end());
  return a;
}

fs::path step_dir(const fs::path& dir, int64_t step) { return dir / ("step-0000000" + std::to_string(step)); }

}  // namespace

TEST_CASE("law 8: a run on a device is within the bound of rounding of the same run on the CPU") {
  for (const std::string family : {"gpt2", "llama", "qwen2"}) {
    const Case c = small_case(family, 2);
    check_close(train(c), cpu_reference(c), family + " in f32");
  }
  for (const DType t : {DType::bf16, DType::f16}) {
    Case c = small_case("llama", 2);
    c.t = t;
    check_close(train(c), cpu_reference(c), std::string("llama in ") + dtype_name(t));
  }
}

// Each of gpt2's layers has two in a micro-batch: up's activation, and down's gradient back through it.
TEST_CASE("law 8 with GELU in gpt2's products, or beside them where the library has no such product") {
  for (const int64_t ffn : {40, 36}) {
    Case c = small_case("gpt2", 2);
    c.model.ffn = ffn;
    const int64_t before = simt::cublaslt_counts().fused_gelu;
    const Curve got = train(c);
    const int64_t fused = simt::cublaslt_counts().fused_gelu - before;
    CHECK(fused == (ffn % 8 == 0 ? c.steps * c.layout.micro_batches() * c.model.layers * 2 : 0));
    check_close(got, cpu_reference(c), "gpt2 with an MLP of " + std::to_string(ffn));
  }
}

TEST_CASE("law 9: the same run on a device gives the same bits") {
  Case c = small_case("qwen2", 2);
  check_same(train_whole(c), train_whole(c), "one rank");
  c.layout.dp = 2, c.layout.tp = 2, c.layout.sp = true, c.layout.zero = 2;
  check_same(train_whole(c), train_whole(c), c.layout.text());
}

TEST_CASE("law 10: recomputation on a device changes no bit") {
  Case c = small_case("gpt2", 2);
  c.model.ffn = 40;  // GELU in its products
  const Trained plain = train_whole(c);
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    c.layout.recompute = recompute;
    check_same(train_whole(c), plain, "recompute");
  }
}

TEST_CASE("law 11: a run that is saved and resumed on a device keeps its bits, and a CPU goes on from it") {
  Case c = small_case("llama", 2);
  c.steps = 4;
  const Case cpu = on_cpu(c);
  ScratchDir scratch;
  const Curve whole = run_part(c, {}, 0, 4, scratch / "whole");
  const Curve first = run_part(c, {}, 0, 2, scratch / "first");
  CHECK(joined(first, run_part(c, step_dir(scratch / "first", 2), 2, 4, scratch / "second")) == whole);
  const Reference r = cpu_reference(c);
  check_close(joined(first, run_part(cpu, step_dir(scratch / "first", 2), 2, 4, scratch / "on cpu")), r,
              "device, then CPU");
  const Curve from_cpu = run_part(cpu, {}, 0, 2, scratch / "cpu first");
  check_close(joined(from_cpu, run_part(c, step_dir(scratch / "cpu first", 2), 2, 4, scratch / "on device")), r,
              "CPU, then device");
}

TEST_CASE("law 12: steps on a device take no memory after the first, and validation sees the CPU's loss") {
  Case c = small_case("gpt2", 2);
  c.layout.dp = 2;
  c.layout.zero = 3;
  double of_device[2] = {}, of_cpu[2] = {};
  for (const bool device : {true, false}) {
    Case run = device ? c : on_cpu(c);
    train(run, [&](TrainStep& step) {
      const int64_t before = static_cast<int64_t>(simt::device_memory().allocations);
      run_steps(step, run, 3, 5);
      CHECK(static_cast<int64_t>(simt::device_memory().allocations) == before);
      std::vector<int32_t> ids(static_cast<size_t>(run.layout.seq_len)), targets(ids.size());
      const int rank = step.mesh().place.dp != 0;
      reader(run)(1000 + rank, 1, ids.data(), targets.data());
      (device ? of_device : of_cpu)[rank] = step.evaluate(ids.data(), targets.data(), 1);
    });
  }
  for (const int rank : {0, 1}) {
    REQUIRE(of_cpu[rank] > 0);
    CHECK(of_device[rank] == doctest::Approx(of_cpu[rank]).epsilon(1e-4));
  }
}
