#include "libcore/plan/place/step_bytes.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "kernels/plain_sizes.h"
#include "libcore/spec/param_table.h"
#include "libcore/spec/train_spec.h"

using namespace rw;

namespace {

ModelSpec llama_7b() {
  const char* source = std::getenv("RANKWRIGHT_SOURCE");
  REQUIRE(source != nullptr);
  return load_model_spec(std::string(source) + "/configs/models/llama-2-7b.json");
}

StepBytes bytes_of(const ModelSpec& model, const TrainSpec& spec, int64_t ranks) {
  const Layout layout = settle_layout(spec, model, ranks);
  return step_bytes({.model = model, .layout = layout, .t = DType::bf16, .backend = plain_sizes()}, 4);
}

}  // namespace

// Korthikanti et al. 2022, section 4: four all_reduces of 2 s b h bytes a layer and micro-batch over tp. Rajbhandari et
// al. 2020, section 7: gradients and weights are reduced and gathered once a step, here in four bytes.
TEST_CASE("step_bytes: the published volumes of tensor, data and pipeline parallelism") {
  const ModelSpec m = llama_7b();  // 32 layers, 4096 wide
  TrainSpec spec;
  spec.tp = 2, spec.pp = 2, spec.dp = "2";
  spec.micro_batch = 1, spec.global_batch = 6, spec.seq_len = 1000;
  const double stream = 2.0 * 1000 * 4096, layers = 16, micro_batches = 3;
  const StepBytes plain = bytes_of(m, spec, 8);
  // Beside the layers: the embedding's sum or the head's.
  CHECK(plain.tp >= 4 * layers * micro_batches * stream);
  CHECK(plain.tp <= (4 * layers + 3) * micro_batches * stream);
  CHECK(plain.pp == doctest::Approx(2 * micro_batches * stream));
  CHECK(plain.shard == 0);
  CHECK(plain.replica == doctest::Approx(4.0 * static_cast<double>(n_params(m)) / 4).epsilon(0.02));

  spec.recompute = "full";
  // Made again: the sum behind attention. That at the layer's end is nobody's input.
  CHECK(bytes_of(m, spec, 8).tp - plain.tp == doctest::Approx(layers * micro_batches * stream).epsilon(0.02));
  spec.recompute = "none";
  // Every all_reduce becomes a gather and a scatter, half of it each, and the backward gathers the two inputs again
  // (section 4.2.2 there): a quarter more. What crosses stages is shared out.
  spec.sp = true;
  const StepBytes sp = bytes_of(m, spec, 8);
  CHECK(sp.tp == doctest::Approx(1.25 * plain.tp).epsilon(0.02));
  CHECK(sp.pp == doctest::Approx(plain.pp / 2));
  spec.sp = false;
  // ZeRO-1 moves what plain data parallelism moves, ZeRO-3 more.
  spec.zero = 1;
  const StepBytes one = bytes_of(m, spec, 8);
  CHECK(one.shard == doctest::Approx(plain.replica).epsilon(0.02));
  CHECK(one.replica == 0);
  spec.zero = 3;
  CHECK(bytes_of(m, spec, 8).shard > 1.4 * one.shard);
}
