// Every layout trains as one rank does: losses and gradient norms of five steps within what rounding alone can do.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "libcore/train/replica_check.h"
#include "tests/support/layout_matrix.h"

using namespace rw;
using namespace rw::parallel;

namespace {

struct Reference {
  Curve curve, bound;
};

// One rank, plain.
Reference reference_of(Case c) {
  const Layout& l = c.layout;
  Layout alone = base_layout();
  alone.micro_batch = l.micro_batch;
  alone.global_batch = l.global_batch;
  alone.seq_len = l.seq_len;
  c.layout = alone;
  return {train(c), rounding_bound(c)};
}

const Reference& family_reference(const std::string& family) {
  static std::map<std::string, Reference> made;
  if (const auto found = made.find(family); found != made.end()) return found->second;
  return made[family] = reference_of({.model = family_model(family), .layout = base_layout()});
}

// The ratio to the bound. What several ranks hold is the same on all of them afterwards.
double check_run(const Case& c, const Reference& r) {
  const std::string text = c.layout.text();
  CAPTURE(text);
  const Curve got = train(c, [](TrainStep& step) { CHECK(replica_difference(step) == ""); });
  const double ratio = worst_ratio(got, r.curve, r.bound);
  CHECK(ratio <= 1);
  if (c.t == DType::f32) CHECK(first_step_close(got, r.curve));
  return ratio;
}

}  // namespace

// Small and apart, so that a fault shows where it belongs; tests/mutants plants some and looks here.
TEST_CASE("each way to split the work trains as one rank does") {
  const auto check = [](const std::string& family, auto change) {
    Case c{.model = family_model(family), .layout = base_layout()};
    change(c.layout);
    const double ratio = check_run(c, family_reference(family));
    MESSAGE(family << ", " << c.layout.text() << ": " << ratio << " of the bound");
  };
  SUBCASE("tensor parallelism") {
    check("gpt2", [](Layout& l) { l.tp = 2; });
  }
  SUBCASE("sequence parallelism") {
    check("gpt2", [](Layout& l) { l.tp = 2, l.sp = true; });
  }
  SUBCASE("shared key/value heads") {
    check("qwen2", [](Layout& l) { l.tp = 2; });
  }
  SUBCASE("data parallelism") {  // the samples' numbers of valid targets differ
    check("llama", [](Layout& l) { l.dp = 2; });
  }
  SUBCASE("sharded gradients") {
    check("llama", [](Layout& l) { l.dp = 2, l.zero = 2; });
  }
  SUBCASE("sharded weights") {
    check("llama", [](Layout& l) { l.dp = 2, l.zero = 3; });
  }
  SUBCASE("pipeline with a tied embedding") {
    check("qwen2", [](Layout& l) { l.pp = 2; });
  }
  SUBCASE("split backward") {
    check("llama", [](Layout& l) { l.pp = 2, l.schedule = ScheduleKind::zb_h1; });
  }
}

TEST_CASE("the matrix of layouts trains as one rank does") {
  const std::vector<Combination> combinations = combinations_to_run();
  double worst = 0;
  std::string where;
  for (const Combination& c : combinations) {
    const std::string family = c.family_name();
    CAPTURE(family);
    const Reference& r = family_reference(family);
    REQUIRE(r.curve.losses.back() < r.curve.losses.front());
    const double ratio = check_run({.model = family_model(family), .layout = c.layout()}, r);
    if (ratio > worst) worst = ratio, where = family + ", " + c.layout().text();
  }
  MESSAGE("ran " << combinations.size() << " of " << layout_matrix().size() << " combinations; the worst is " << worst
                 << " of the bound (" << where << ")");
}

// Whatever else may be uneven: rows that tensor-parallel ranks share out (and more ranks than rows of a share),
// batches, stages, heads, partial recomputation, shards within nodes.
TEST_CASE("uneven layouts train as one rank does") {
  struct Uneven {
    const char* family;
    std::function<void(Case&)> change;
  };
  const std::vector<Uneven> all = {
      {"llama",
       [](Case& c) { c.layout.seq_len = 5, c.layout.tp = 4, c.layout.sp = true; }},  // the last rank has no row
      {"gpt2", [](Case& c) { c.layout.seq_len = 5, c.layout.tp = 4, c.layout.sp = true, c.layout.pp = 2; }},
      {"llama", [](Case& c) { c.layout.micro_batch = 3, c.layout.global_batch = 9, c.layout.tp = 4; }},
      {"qwen2",
       [](Case& c) {
         c.layout.micro_batch = 3, c.layout.global_batch = 15, c.layout.tp = 4, c.layout.sp = true, c.layout.pp = 2;
         c.layout.schedule = ScheduleKind::zb_h1;
       }},
      {"gpt2",
       [](Case& c) {
         c.layout.global_batch = 7, c.layout.pp = 4, c.layout.stage_layers = {1, 4, 1, 3};
       }},
      {"llama",
       [](Case& c) {
         c.layout.pp = 2, c.layout.vpp = 2, c.layout.stage_layers = {3, 1, 1, 4};
         c.layout.schedule = ScheduleKind::interleaved;
       }},
      {"qwen2",
       [](Case& c) {
         c.layout.pp = 2, c.layout.vpp = 4, c.layout.stage_layers = {1, 1, 1, 1, 1, 1, 1, 2};
         c.layout.schedule = ScheduleKind::interleaved, c.layout.dp = 2, c.layout.zero = 3;
       }},
      {"gpt2",
       [](Case& c) {
         c.layout.pp = 2, c.layout.recompute = Recompute::full, c.layout.recompute_layers = 1;
         c.layout.schedule = ScheduleKind::zb_h1, c.layout.tp = 2, c.layout.sp = true;
       }},
      {"llama",
       [](Case& c) { c.layout.recompute = Recompute::selective, c.layout.recompute_layers = 1, c.layout.tp = 2; }},
      {"llama", [](Case& c) { c.layout.dp = 3, c.layout.global_batch = 15, c.layout.zero = 2; }},
      {"gpt2", [](Case& c) { c.layout.dp = 5, c.layout.global_batch = 15, c.layout.zero = 3; }},
      {"qwen2",
       [](Case& c) {
         c.layout.dp = 4, c.layout.zero = 3, c.layout.zero_group = ZeroGroup::node, c.ranks_per_node = 2;
       }},
      // Groups of one: sharded in name, whole in fact.
      {"llama",
       [](Case& c) {
         c.layout.dp = 2, c.layout.zero = 2, c.layout.zero_group = ZeroGroup::node, c.ranks_per_node = 1;
       }},
      {"qwen2",
       [](Case& c) {
         c.layout.dp = 3, c.layout.global_batch = 15, c.layout.zero = 3, c.layout.zero_group = ZeroGroup::node;
         c.ranks_per_node = 1;
       }},
      {"gpt2",
       [](Case& c) {
         c.layout.tp = 2, c.layout.dp = 4, c.layout.zero = 2, c.layout.zero_group = ZeroGroup::node;
         c.ranks_per_node = 4;
       }},
      {"llama",
       [](Case& c) {
         c.layout.pp = 2, c.layout.dp = 4, c.layout.zero = 1, c.layout.zero_group = ZeroGroup::node;
         c.ranks_per_node = 2;
       }},
  };
  double worst = 0;
  for (const Uneven& u : all) {
    const std::string family = u.family;
    CAPTURE(family);
    Case c{.model = family_model(family), .layout = base_layout()};
    u.change(c);
    worst = std::max(worst, check_run(c, reference_of(c)));
  }
  MESSAGE("ran " << all.size() << " layouts; the worst is " << worst << " of the bound");
}

// Against one rank in bf16, with a bound of bf16's own: its runs start one ulp of bf16 apart.
TEST_CASE("layouts in bf16 train as one rank does") {
  double worst = 0;
  for (const std::string family : {"gpt2", "llama", "qwen2"}) {
    CAPTURE(family);
    const auto bf16_case = [&](auto change) {
      Case c{.model = family_model(family), .layout = base_layout(), .t = DType::bf16};
      change(c.layout);
      return c;
    };
    const Reference r = reference_of(bf16_case([](Layout&) {}));
    const auto check = [&](auto change) { worst = std::max(worst, check_run(bf16_case(change), r)); };
    check([](Layout& l) { l.tp = 2; });
    check([](Layout& l) { l.tp = 4, l.sp = true; });
    check([](Layout& l) { l.pp = 2, l.dp = 2, l.zero = 1; });
    check([](Layout& l) { l.tp = 2, l.sp = true, l.pp = 2, l.dp = 2, l.zero = 3, l.recompute = Recompute::full; });
    check([](Layout& l) { l.pp = 4, l.schedule = ScheduleKind::zb_h1, l.dp = 2, l.zero = 2; });
    check([](Layout& l) { l.pp = 2, l.vpp = 2, l.schedule = ScheduleKind::interleaved, l.tp = 2; });
  }
  MESSAGE("the worst is " << worst << " of the bound");
}
