#include "libcore/plan/price/step_time.h"

#include <doctest/doctest.h>

using namespace rw;

namespace {

Layout pipeline_of(int64_t pp, int64_t vpp, int64_t micro_batches, ScheduleKind schedule) {
  Layout l;
  l.pp = pp;
  l.vpp = vpp;
  l.schedule = schedule;
  l.global_batch = micro_batches;
  l.stage_layers.assign(static_cast<size_t>(pp * vpp), 3);
  return l;
}

PipelineParts even_parts() {
  PipelineParts parts;
  parts.layer = {.forward = 1, .backward_input = 1, .backward_weight = 1, .tp_forward = 0, .tp_backward = 0};
  parts.recomputed_layer = parts.layer;
  parts.recomputed_layer.backward_input += 1;
  return parts;
}

}  // namespace

TEST_CASE("step_time: an even pipeline takes (m + (p - 1) / v)(tf + tb), by formula and by simulation") {
  for (const int64_t pp : {1, 2, 3, 5, 8})
    for (const int64_t passes : {1, 2, 7})
      for (const int64_t vpp : {1, 2, 3}) {
        const int64_t m = passes * pp;
        const Layout l = pipeline_of(pp, vpp, m, vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b);
        const double stage = 9.0 * static_cast<double>(vpp);  // three layers a chunk, three seconds a layer
        const double expected =
            (static_cast<double>(m) + static_cast<double>(pp - 1) / static_cast<double>(vpp)) * stage;
        CAPTURE(l.text());
        CHECK(pipeline_closed_form(l, even_parts()).span == doctest::Approx(expected));
        CHECK(pipeline_simulated(l, even_parts()).span == doctest::Approx(expected));
      }
}

TEST_CASE("step_time: the shares add up, and an uneven stage sets the pace") {
  Layout l = pipeline_of(4, 1, 12, ScheduleKind::one_f_one_b);
  l.stage_layers = {3, 5, 3, 3};
  PipelineParts parts = even_parts();
  parts.layer.tp_forward = 0.25;
  parts.head = {.forward = 0, .backward_input = 2, .backward_weight = 0, .tp_forward = 0, .tp_backward = 0};
  parts.message = 0.1;
  for (const PipelineSeconds& p : {pipeline_closed_form(l, parts), pipeline_simulated(l, parts)}) {
    CHECK(p.slowest == 1);
    CHECK(p.compute == doctest::Approx(12 * 15.0));
    CHECK(p.exposed_tp == doctest::Approx(12 * 5 * 0.25));
    CHECK(p.compute + p.exposed_tp + p.bubble + p.exposed_pp == doctest::Approx(p.span));
    CHECK(p.last_backward == doctest::Approx(10.0));
  }
  const double simulated = pipeline_simulated(l, parts).span;
  CHECK(pipeline_closed_form(l, parts).span == doctest::Approx(simulated).epsilon(0.05));
}

TEST_CASE("step_time: recomputation adds its forward to the layers that it covers, and no more") {
  Layout l = pipeline_of(1, 1, 4, ScheduleKind::one_f_one_b);
  l.stage_layers = {5};
  l.recompute = Recompute::full;
  l.recompute_layers = 2;
  CHECK(pipeline_closed_form(l, even_parts()).span == doctest::Approx(4 * (5 * 3.0 + 2)));
}

TEST_CASE("step_time: moving the weight halves into the bubble shortens it") {
  const PipelineParts parts = even_parts();
  const double plain = pipeline_simulated(pipeline_of(4, 1, 8, ScheduleKind::one_f_one_b), parts).span;
  const Layout zb = pipeline_of(4, 1, 8, ScheduleKind::zb_h1);
  const double moved = pipeline_simulated(zb, parts).span;
  CHECK(moved < plain);
  // (p - 1)(tf + tb - tw) of bubble: Qi et al. 2023, table 1.
  CHECK(moved == doctest::Approx(8 * 9.0 + 3 * (3.0 + 3.0 + 3.0 - 3.0)).epsilon(0.1));
  CHECK(pipeline_closed_form(zb, parts).span == doctest::Approx(moved).epsilon(0.1));
}
