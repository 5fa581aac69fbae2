// Ranks and values at fault in a training step: who is slow, where a value that is not finite came from.
#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/op_log.h"
#include "libcore/train/straggler.h"
#include "tests/support/parallel_run.h"

using namespace rw;
using namespace rw::parallel;

namespace {

// Every product takes a millisecond longer.
Ops slow_ops() {
  Ops ops = cpu_ops();
  ops.gemm = [](const Gemm& g, Stream s) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cpu_ops().gemm(g, s);
  };
  return ops;
}

// The activation of block 3 is NaN in one place.
Ops faulty_ops() {
  Ops ops = cpu_ops();
  ops.swiglu_fwd = [](const SwigluFwd& a, Stream s) {
    cpu_ops().swiglu_fwd(a, s);
    if (s.log->scope == "block 3 (forward)") static_cast<float*>(a.y)[0] = std::numeric_limits<float>::quiet_NaN();
  };
  return ops;
}

struct Run {
  Mesh mesh;
  Arena arena;
  TrainStep step;
  StepClock clock;
  Run(Comm& world, const Case& c, const Exec& exec, const std::shared_ptr<CommRecord>& record)
      : mesh(make_mesh(world, mesh_shape_of(c), record)), step(settings_of(c), exec, mesh, record, arena) {
    initialise(step, c);
  }
  StepResult run(const Case& c, int64_t i) {
    clock.start();
    return step.run({.first_sample = i * c.layout.global_batch, .lr = c.lr}, reader(c), clock);
  }
};

// By rank, what checked_ops says of a step in which `faulty` alone computes wrongly; -1: nobody.
std::vector<std::string> traced(const Case& c, int faulty) {
  std::vector<std::string> found(static_cast<size_t>(c.layout.ranks()));
  std::mutex mutex;
  const Ops bad = faulty_ops();
  run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& world) {
    world.set_timeout(60);
    OpLog log;
    log.backend = world.rank() == faulty ? &bad : &cpu_ops();
    Run run(world, c, {.ops = checked_ops(), .stream = {.threads = 1, .log = &log}, .t = c.t},
            std::make_shared<CommRecord>());
    CHECK(run.run(c, 0).finite == (faulty < 0));
    const std::lock_guard lock(mutex);
    found[static_cast<size_t>(world.rank())] = log.first_bad;
  });
  return found;
}

}  // namespace

TEST_CASE("a rank whose kernels are slow is the straggler, not those that wait for it") {
  const auto check = [](auto change, int slow, const std::vector<int64_t>& stage_of_rank) {
    Case c{.model = family_model("llama"), .layout = base_layout()};
    c.layout.global_batch = 4;
    change(c.layout);
    const std::string text = c.layout.text();
    CAPTURE(text);
    const Ops late = slow_ops();
    std::vector<int64_t> named;
    run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& world) {
      world.set_timeout(60);
      const Exec exec{.ops = world.rank() == slow ? late : cpu_ops(), .stream = {.threads = 1}, .t = c.t};
      Run run(world, c, exec, std::make_shared<CommRecord>());
      StragglerWatch watch(stage_of_rank);
      for (int64_t i = 0; i < StragglerWatch::kSteps + 2; ++i) {
        run.run(c, i);
        const double mine = run.clock.seconds(TimeCategory::compute);
        std::vector<double> all(static_cast<size_t>(world.size()));
        world.all_gather(&mine, all.data(), sizeof mine);
        for (const Straggler& s : watch.observe(all))
          if (world.rank() == 0) {
            named.push_back(s.rank);
            CHECK(i == StragglerWatch::kSteps - 1);
            CHECK(s.seconds > s.peers_s);
          }
      }
    });
    CHECK(named == std::vector<int64_t>{slow});
  };
  SUBCASE("of three replicas") {
    check([](Layout& l) { l.dp = 3, l.global_batch = 3; }, 2, {0, 0, 0});
  }
  SUBCASE("of a stage's ranks, which wait for each other in every layer") {
    check([](Layout& l) { l.tp = 2, l.pp = 2, l.global_batch = 2; }, 1, {0, 0, 1, 1});
  }
}

TEST_CASE("a NaN is traced to the rank, the block and the op that made it") {
  const auto check = [](auto change, int faulty) {
    Case c{.model = family_model("llama"), .layout = base_layout()};
    change(c.layout);
    const std::string text = c.layout.text();
    CAPTURE(text);
    for (const std::string& nothing : traced(c, -1)) CHECK(nothing == "");
    const std::vector<std::string> found = traced(c, faulty);
    for (size_t r = 0; r < found.size(); ++r) {
      CAPTURE(r);
      const std::string& what = found[r];
      CAPTURE(what);
      const bool inherited = what.find("already not finite") != std::string::npos;
      if (static_cast<int>(r) == faulty) {
        CHECK(what.substr(0, what.find(':')) == "swiglu_fwd in block 3 (forward)");
        CHECK(what.find("(row 0, column 0)") != std::string::npos);
        CHECK_FALSE(inherited);
      } else {
        CHECK((what.empty() || inherited));
      }
    }
  };
  SUBCASE("one rank") {
    check([](Layout&) {}, 0);
  }
  SUBCASE("a tensor-parallel rank") {
    check([](Layout& l) { l.tp = 2, l.sp = true; }, 1);
  }
  SUBCASE("a stage of a pipeline: block 3 of 9 is the first's") {
    check([](Layout& l) { l.pp = 2; }, 0);
  }
  SUBCASE("a replica of sharded weights") {
    check([](Layout& l) { l.dp = 2, l.zero = 3; }, 1);
  }
  SUBCASE("both") {
    check([](Layout& l) { l.tp = 2, l.pp = 2, l.schedule = ScheduleKind::zb_h1; }, 1);
  }
}
