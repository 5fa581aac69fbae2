// What validate says serving should take, against arithmetic by hand.
#include "libcore/bench/train/serving_prediction.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

using namespace rw;

namespace {

// Devices without losses: what they take is bytes by bandwidth, or FLOPs by the peak.
ClusterSpec ideal(double bytes_per_s, double flops_per_s) {
  ClusterSpec c;
  c.devices = {{.name = "ideal",
                .memory = int64_t{1} << 40,
                .peak_f32 = flops_per_s,
                .memory_bandwidth = bytes_per_s,
                .gemm_fraction = 1,
                .attention_fraction = 1,
                .memory_fraction = 1}};
  c.nodes = {{.name = "node", .device = "ideal", .devices = 4, .link_bandwidth = 1e15, .link_latency = 0}};
  return c;
}

ServedLoad load(int64_t concurrency, int64_t input, int64_t output) {
  return {.model = "llama-3.2-1b", .concurrency = concurrency, .input_len = input, .output_len = output};
}

}  // namespace

TEST_CASE("serving is predicted: decoding reads the weights once a token, prompts are products") {
  constexpr double kParameters = 1235814400;  // as published; the embedding and the head are one
  constexpr double kBandwidth = 1e11, kPeak = 1e15;
  // 32 + 64 tokens of keys and values are below 1 % of the weights.
  const ServingPrediction one = predict_serving(load(1, 32, 64), ideal(kBandwidth, kPeak));
  const double weights_s = 4 * kParameters / kBandwidth;
  CHECK(one.tpot_s > weights_s);
  CHECK(one.tpot_s < 1.05 * weights_s);
  CHECK(one.output_throughput == doctest::Approx(64 / (one.ttft_s + 63 * one.tpot_s)));
  CHECK(predict_serving(load(1, 32, 64), ideal(2 * kBandwidth, kPeak)).tpot_s ==
        doctest::Approx(one.tpot_s / 2).epsilon(0.01));
  // Eight at a time read them together.
  const ServingPrediction eight = predict_serving(load(8, 32, 64), ideal(kBandwidth, kPeak));
  CHECK(eight.tpot_s < 1.1 * one.tpot_s);
  CHECK(eight.output_throughput > 7 * one.output_throughput);
  // Where arithmetic is what is short, a prompt of 512 tokens is 2 FLOPs a weight (without the embedding's, which are
  // looked up) and token.
  const ServingPrediction slow = predict_serving(load(1, 512, 2), ideal(1e15, 1e11));
  CHECK(slow.ttft_s > 2 * 0.7 * kParameters * 512 / 1e11);
  CHECK(slow.ttft_s < 2 * 1.2 * kParameters * 512 / 1e11);
  ServedLoad two = load(1, 32, 64);
  two.tp = 2;
  CHECK(predict_serving(two, ideal(kBandwidth, kPeak)).tpot_s == doctest::Approx(one.tpot_s / 2).epsilon(0.02));
}

TEST_CASE("serving is not predicted where it could not be served, or the device has no such type") {
  CHECK_THROWS_WITH_AS(predict_serving(load(1, 131072, 1), ideal(1e11, 1e12)),
                       doctest::Contains("too long for llama-3.2-1b"), Error);
  ServedLoad bf16 = load(1, 8, 8);
  bf16.precision = "bf16";
  CHECK_THROWS_AS(predict_serving(bf16, ideal(1e11, 1e12)), Error);
  ServedLoad odd = load(1, 8, 8);
  odd.tp = 3;
  CHECK_THROWS_AS(predict_serving(odd, ideal(1e11, 1e12)), Error);
}

TEST_CASE("a record of dbench serve takes the predictions of its medians") {
  BenchRecord record = new_record("serve", "x", Json::object());
  for (const char* name : {"median_tpot_ms", "p99_tpot_ms", "output_throughput"})
    record.metrics.push_back({.name = name});
  set_predictions(record, {.ttft_s = 1, .tpot_s = 0.002, .output_throughput = 70});
  CHECK(record.metrics[0].predicted == 2.0);
  CHECK(!record.metrics[1].predicted);
  CHECK(record.metrics[2].predicted == 70.0);
}
