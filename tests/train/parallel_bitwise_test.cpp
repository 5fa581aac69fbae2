// Where another layout must not change a single bit: losses, norms, and in the end all weights and moments.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/parallel_run.h"

using namespace rw;
using namespace rw::parallel;

namespace {

Case case_of(const std::string& family, const Layout& layout) {
  return {.model = family_model(family), .layout = layout, .steps = 3};
}

void check_same(const std::string& family, const Trained& expected, const Layout& layout) {
  const std::string text = layout.text();
  CAPTURE(family);
  CAPTURE(text);
  const Trained got = train_whole(case_of(family, layout));
  CHECK(got.curve.losses == expected.curve.losses);
  CHECK(got.curve.grad_norms == expected.curve.grad_norms);
  CHECK(difference(got.tensors, expected.tensors) == "");
}

Layout layout_of(int64_t tp, int64_t pp, int64_t dp) {
  Layout l = base_layout();
  l.tp = tp, l.pp = pp, l.dp = dp;
  l.sp = tp > 1;
  return l;
}

}  // namespace

TEST_CASE("the same layout gives the same bits") {
  Layout l = layout_of(2, 2, 2);
  l.zero = 3;
  const Trained first = train_whole(case_of("qwen2", l));
  CHECK(first.curve.losses[2] < first.curve.losses[0]);
  // Every parameter with both its moments, all of it written by some rank.
  CHECK(first.tensors.size() == 3 * param_table(family_model("qwen2")).size());
  CHECK(difference(first.tensors, first.tensors) == "");
  check_same("qwen2", first, l);
}

TEST_CASE("recomputation changes no bit") {
  for (const std::string family : {"gpt2", "llama", "qwen2"}) {
    std::vector<Layout> layouts = {layout_of(1, 1, 1), layout_of(4, 1, 2), layout_of(2, 2, 1), layout_of(1, 4, 2)};
    layouts[1].zero = 3;
    layouts[2].schedule = ScheduleKind::zb_h1;
    layouts[3].schedule = ScheduleKind::interleaved, layouts[3].vpp = 2, layouts[3].zero = 2;
    for (Layout l : layouts) {
      const Trained plain = train_whole(case_of(family, l));
      l.recompute = Recompute::selective;
      check_same(family, plain, l);
      l.recompute_layers = 2;
      check_same(family, plain, l);
      l.recompute = Recompute::full;
      check_same(family, plain, l);
      l.recompute_layers = 0;
      check_same(family, plain, l);
    }
  }
}

// Stages 0 and 1 add a rank's micro-batches up first, and then ranks; stages 2 and 3 add ranks up in every micro-batch,
// and then micro-batches. With one micro-batch a step that is the same; with more, the two pairs agree with each other
// only within the bound of rounding, which the matrix holds them to.
TEST_CASE("ZeRO changes no bit") {
  for (const std::string family : {"gpt2", "llama", "qwen2"})
    for (Layout l :
         {layout_of(1, 1, 2), layout_of(1, 1, 4), layout_of(4, 1, 2), layout_of(2, 2, 2), layout_of(1, 4, 2)})
      for (const bool one_micro_batch : {false, true}) {
        l.global_batch = one_micro_batch ? l.dp : 4 * l.dp;
        l.zero = 0;
        const Trained none = train_whole(case_of(family, l));
        l.zero = 1;
        check_same(family, none, l);
        l.zero = 2;
        const Trained gradients = one_micro_batch ? none : train_whole(case_of(family, l));
        if (one_micro_batch) check_same(family, none, l);
        l.zero = 3;
        check_same(family, gradients, l);
      }
}

// All schedules run the backward of a chunk's micro-batches in their order, so each gradient is the same sum. But for
// one: a tied embedding whose two ends are different chunks of one rank is added to by both in the order of the
// schedule.
TEST_CASE("schedules change no bit") {
  for (const std::string family : {"gpt2", "llama"})
    for (const int64_t pp : {1, 2, 4})
      for (const int64_t vpp : {1, 2}) {
        if (family_model(family).tied_head && pp == 1 && vpp > 1) continue;
        Layout l = layout_of(pp == 2 ? 2 : 1, pp, pp == 1 ? 2 : 1);
        l.vpp = vpp;
        l.zero = pp == 1 ? 3 : 0;
        l.global_batch = 8;
        const Trained plain = train_whole(case_of(family, l));
        for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::zb_h1, ScheduleKind::interleaved}) {
          if (kind == ScheduleKind::interleaved && vpp == 1) continue;
          l.schedule = kind;
          check_same(family, plain, l);
        }
      }
}
