// Runs of a few steps that are small enough for the simulator, and still have odd sizes and ragged masks.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "tests/support/parallel_run.h"

namespace rw::parallel {

// On the device. Four micro-batches a step, all layers alike but for the ends.
inline Case small_case(const std::string& family, int64_t layers) {
  Case c{.model = family_model(family), .layout = base_layout(), .steps = 3, .device = "cuda"};
  c.model.layers = layers;
  c.layout.global_batch = 4;
  c.layout.seq_len = 9;
  return c;
}

inline Case on_cpu(Case c) {
  c.device = "cpu";
  return c;
}
// The same work on one rank.
inline Case alone(Case c) {
  const Layout l = c.layout;
  c.layout = base_layout();
  c.layout.micro_batch = l.micro_batch;
  c.layout.global_batch = l.global_batch;
  c.layout.seq_len = l.seq_len;
  return c;
}

// What one rank of the CPU makes of it, and what rounding alone can do to that.
struct Reference {
  Curve curve, bound;
};
inline Reference cpu_reference(const Case& c) { return {train(on_cpu(alone(c))), rounding_bound(on_cpu(alone(c)))}; }

inline void check_close(const Curve& got, const Reference& r, const std::string& what) {
  CAPTURE(what);
  REQUIRE(r.curve.grad_norms.front() > 0.1);  // there is something to learn
  const double ratio = worst_ratio(got, r.curve, r.bound);
  CHECK(ratio <= 1);
  MESSAGE(what << ": " << ratio << " of the bound");
}

inline void check_same(const Trained& got, const Trained& expected, const std::string& what) {
  CAPTURE(what);
  CHECK(got.curve.losses == expected.curve.losses);
  CHECK(got.curve.grad_norms == expected.curve.grad_norms);
  CHECK(difference(got.tensors, expected.tensors) == "");
}

}  // namespace rw::parallel
