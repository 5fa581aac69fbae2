#include "libcore/plan/serve/serve_price.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "kernels/plain_sizes.h"
#include "libcore/plan/serve/serve_forward.h"
#include "libcore/plan/serve/serve_pool.h"

using namespace rw;

namespace {

// Llama's shapes at odd sizes: 3 layers, 4 query heads over 2 key/value heads of 24.
ModelSpec odd_model() {
  ModelSpec m;
  m.vocab_size = 1009;
  m.width = 72;
  m.layers = 3;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 24;
  m.ffn = 200;
  m.max_position = 4096;
  return m;
}

RunnerSpec odd_runner(DType t = DType::bf16) {
  return {.model = odd_model(),
          .precision = t,
          .kv_t = t,
          .max_rows = 512,
          .max_seqs = 64,
          .max_len = 4096,
          .page_tokens = 16,
          .backend = &plain_sizes()};
}

// A device whose times can be worked out by hand: products take their FLOPs, all else its bytes.
DeviceType plain_device() {
  DeviceType d;
  d.name = "plain";
  d.memory = int64_t{1} << 33;
  d.peak_f32 = 1e12;
  d.peak_bf16 = 1e12;
  d.memory_bandwidth = 1e11;
  d.gemm_fraction = d.attention_fraction = d.memory_fraction = 1;
  return d;
}

StepPrice price_on(const DeviceType& device, const RunnerSpec& runner, int64_t tp = 1,
                   CollectiveSeconds collective = {}) {
  return StepPrice({.runner = runner, .tp = tp, .device = device, .collective = std::move(collective)});
}

PricedStep decode(int64_t sequences, int64_t context) {
  PricedStep s;
  for (int64_t i = 0; i < sequences; ++i) s.add(context - 1, 1, true);
  return s;
}

PricedStep prompt(int64_t tokens) {
  PricedStep s;
  s.add(0, tokens, true);
  return s;
}

}  // namespace

TEST_CASE("the price of a step is the sum over the ops of the whole model's forward") {
  const RunnerSpec runner = odd_runner();
  const DeviceType device = plain_device();
  StepPrice price = price_on(device, runner);
  ServeForward whole(runner, 1, runner.model.layers);
  // 37 tokens of a prompt after 100, a whole prompt of 5, and three decodes.
  const std::vector<ServeForward::Span> spans = {{37, 137}, {5, 5}, {1, 900}, {1, 33}, {1, 2}};
  PricedStep shape;
  for (const auto& s : spans) shape.add(s.context - s.rows, s.rows, true);
  double expected = 0;
  for (const OpCall& call : whole.run(spans).ops) expected += serving_op_seconds(call, device, runner.precision);
  for (const OpCall& call : whole.logits(5).ops) expected += serving_op_seconds(call, device, runner.precision);
  const StepParts parts = price.parts(shape);
  const double sampler = 5 * 1009 * 4.0 / device.memory_bandwidth;
  CHECK(parts.total() == doctest::Approx(expected + sampler).epsilon(1e-9));
  CHECK(parts.comm == 0);
}

TEST_CASE("products of a step by hand") {
  const RunnerSpec runner = odd_runner();
  DeviceType device = plain_device();
  device.memory_bandwidth = 1e18;  // FLOPs alone
  StepPrice price = price_on(device, runner);
  // A layer: qkv (4 + 2*2)*24 by 72, out 72 by 96, up 2*200 by 72, down 72 by 200; head 1009 by 72, of one row.
  const double layer = 192 * 72 + 72 * 96 + 400 * 72 + 72 * 200, head = 1009 * 72;
  CHECK(price.parts(prompt(10)).products == doctest::Approx((10 * 3 * layer + head) * 2 / 1e12).epsilon(1e-9));
  // Attention: 4 D H per (query, key) pair, 55 pairs in a prompt of 10, in three layers.
  CHECK(price.parts(prompt(10)).attention == doctest::Approx(4.0 * 24 * 4 * 55 * 3 / 1e12).epsilon(1e-9));
}

TEST_CASE("decode reads all weights, and every key and value once") {
  const RunnerSpec runner = odd_runner();
  DeviceType device = plain_device();
  device.peak_bf16 = 1e20;  // bytes alone
  StepPrice price = price_on(device, runner);
  const double layer = 192 * 72 + 72 * 96 + 400 * 72 + 72 * 200, head = 1009 * 72;
  const double products = price.parts(decode(1, 2000)).products;
  CHECK(products >= 2 * (3 * layer + head) / 1e11);
  CHECK(products < 2.1 * (3 * layer + head) / 1e11);
  // Twice the context: 1000 more tokens of 2 * Hkv * D * 2 bytes in each of three layers.
  const double more = price.parts(decode(1, 2000)).attention - price.parts(decode(1, 1000)).attention;
  CHECK(more == doctest::Approx(3 * 1000 * (2.0 * 2 * 24 * 2) / 1e11).epsilon(1e-9));
}

TEST_CASE("int8 keys and values, and quantised weights, are read as such") {
  DeviceType device = plain_device();
  device.peak_bf16 = 1e20;
  RunnerSpec runner = odd_runner();
  runner.model.width = 128;
  runner.model.ffn = 256;
  runner.model.head_dim = 32;
  StepPrice plain = price_on(device, runner);
  runner.kv_t = DType::i8;
  runner.quant = {.format = WeightFormat::int8, .group = 128};
  StepPrice small = price_on(device, runner);
  const auto context = [](StepPrice& p) {
    return p.parts(decode(1, 2001)).attention - p.parts(decode(1, 1001)).attention;
  };
  CHECK(context(small) == doctest::Approx(3 * 1000 * 2.0 * 2 * (32 + 4) / 1e11).epsilon(1e-9));
  CHECK(small.parts(decode(1, 9)).products < 0.56 * plain.parts(decode(1, 9)).products);
}

TEST_CASE("tensor parallelism: two sums a layer and one after the embedding, of rows by width") {
  const RunnerSpec runner = odd_runner();
  std::map<double, int64_t> asked;
  StepPrice price = price_on(plain_device(), runner, 2, [&](CommKind kind, double bytes) {
    CHECK(kind == CommKind::all_reduce);
    ++asked[bytes];
    return 1e-5;
  });
  const StepParts one = price.parts(prompt(7));
  CHECK(one.comm == doctest::Approx(7e-5));
  CHECK(asked.size() == 1);
  CHECK(asked.begin()->first == 7 * 72 * 2);
  StepPrice alone = price_on(plain_device(), runner);
  CHECK(one.products < 0.55 * alone.parts(prompt(7)).products);
}

TEST_CASE("prices move the right way") {
  DeviceType device = plain_device();
  device.compute_units = 13;
  device.tile_m = 64;
  device.tile_n = 32;
  device.launch = 1e-6;
  const RunnerSpec runner = odd_runner();
  StepPrice price = price_on(device, runner);
  double last = 0;
  for (int64_t rows = 1; rows < 300; ++rows) {
    const double s = price.seconds(prompt(rows));
    CHECK(s >= last * (1 - 1e-12));
    last = s;
  }
  CHECK(price.seconds(decode(8, 999)) > price.seconds(decode(8, 99)));
  CHECK(price.seconds({}) == 0);
  DeviceType faster = device;
  faster.memory_bandwidth *= 3;
  StepPrice quick = price_on(faster, runner);
  for (const int64_t n : {1, 3, 17, 64}) CHECK(quick.seconds(decode(n, 777)) <= price.seconds(decode(n, 777)));
}
