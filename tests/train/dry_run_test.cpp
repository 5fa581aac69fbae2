// The dry run tells what the real run takes, computes and sends: to the byte, call by call. What a layout should send
// is also counted by hand, from the papers, so that the two cannot drift together.
#include "libcore/train/dry_run.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/layout_matrix.h"

using namespace rw;
using namespace rw::parallel;

namespace {

bool same(const Cost& a, const Cost& b) {
  return a.flops == b.flops && a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written;
}

// What really happens on each rank, told as a dry run.
std::vector<DryRun> real_runs(const Case& c) {
  std::vector<DryRun> runs(static_cast<size_t>(c.layout.ranks()));
  run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& world) {
    world.set_timeout(60);
    const auto record = std::make_shared<CommRecord>();
    Mesh mesh = make_mesh(world, mesh_shape_of(c), record);
    OpLog log;
    log.backend = &cpu_ops();
    log.look = false;
    const Exec exec{.ops = checked_ops(), .stream = {.threads = 1, .log = &log}, .t = c.t};
    Arena arena;
    TrainStep step(settings_of(c), exec, mesh, record, arena);
    initialise(step, c);
    log.ops.clear();
    record->counts.clear();
    run_steps(step, c, 0, 1);
    DryRun& run = runs[static_cast<size_t>(world.rank())];
    run = {
        .rank = world.rank(), .bytes = {}, .total_bytes = arena.total_bytes(), .ops = log.ops, .comm = record->counts};
    for (size_t o = 0; o < run.bytes.size(); ++o) run.bytes[o] = arena.bytes(static_cast<MemoryOwner>(o));
  });
  return runs;
}

DryRun dry_run_of(const Case& c, int64_t rank) {
  const int64_t per_node = c.ranks_per_node > 0 ? c.ranks_per_node : c.layout.ranks();
  return dry_run({.step = settings_of(c), .backend = exec_of(c), .ranks_per_node = per_node}, rank);
}

void check_equal(const DryRun& dry, const DryRun& real) {
  CAPTURE(dry.rank);
  for (size_t o = 0; o < dry.bytes.size(); ++o) {
    const std::string owner = memory_owner_name(static_cast<MemoryOwner>(o));
    CAPTURE(owner);
    CHECK(dry.bytes[o] == real.bytes[o]);
  }
  CHECK(dry.total_bytes == real.total_bytes);
  CHECK(dry.ops.size() == real.ops.size());
  for (const auto& [name, count] : real.ops) {
    const std::string op = name;
    CAPTURE(op);
    const auto found = dry.ops.find(name);
    REQUIRE(found != dry.ops.end());
    CHECK(found->second.calls == count.calls);
    CHECK(same(found->second.cost, count.cost));
  }
  CHECK(dry.comm.size() == real.comm.size());
  for (const auto& [key, count] : real.comm) {
    const std::string what = key.first + " " + comm_kind_name(key.second);
    CAPTURE(what);
    const auto found = dry.comm.find(key);
    REQUIRE(found != dry.comm.end());
    CHECK(found->second.calls == count.calls);
    CHECK(found->second.bytes == count.bytes);
  }
}

void check_dry_run(const Case& c) {
  const std::string text = c.layout.text();
  CAPTURE(text);
  const std::vector<DryRun> real = real_runs(c);
  for (size_t rank = 0; rank < real.size(); ++rank) check_equal(dry_run_of(c, static_cast<int64_t>(rank)), real[rank]);
}

CommCount comm_of(const DryRun& run, const char* group, CommKind kind) {
  const auto found = run.comm.find({group, kind});
  return found == run.comm.end() ? CommCount{} : found->second;
}

}  // namespace

TEST_CASE("the dry run equals the real run: memory by owner, ops, collectives") {
  const std::vector<Combination> cover = pairwise_cover(layout_matrix());
  for (const Combination& c : cover) {
    const std::string family = c.family_name();
    CAPTURE(family);
    check_dry_run({.model = family_model(family), .layout = c.layout()});
  }
  MESSAGE("compared every rank of " << cover.size() << " layouts");
}

TEST_CASE("the dry run equals the real run: other precisions, batches, stages and groups") {
  const auto check = [](const char* family, auto change) {
    Case c{.model = family_model(family), .layout = base_layout()};
    change(c);
    check_dry_run(c);
  };
  check("llama", [](Case& c) { c.t = DType::bf16, c.layout.tp = 2, c.layout.sp = true, c.layout.pp = 2; });
  check("gpt2", [](Case& c) { c.t = DType::f16, c.layout.dp = 2, c.layout.zero = 3; });
  check("qwen2",
        [](Case& c) { c.layout.micro_batch = 3, c.layout.global_batch = 9, c.layout.tp = 4, c.layout.sp = true; });
  check("llama", [](Case& c) { c.layout.pp = 4, c.layout.stage_layers = {1, 5, 1, 2}; });
  check("gpt2", [](Case& c) { c.layout.recompute = Recompute::full, c.layout.recompute_layers = 1, c.layout.pp = 2; });
  check("llama", [](Case& c) {
    c.layout.dp = 4, c.layout.zero = 3, c.layout.zero_group = ZeroGroup::node, c.ranks_per_node = 2;
  });
}

// Shoeybi et al. 2019, section 3: forward and backward of a layer take two all-reduces each. With sequence parallelism
// (Korthikanti et al. 2022, section 4.2.2) each is a reduce-scatter and an all-gather, and the backward gathers the two
// linear layers' inputs once more for the weight gradients. The embedding is summed, the head's input gathered, and
// their gradients the other way round.
TEST_CASE("what tensor parallelism sends, counted by hand") {
  for (const std::string family : {"gpt2", "llama"}) {
    Case c{.model = family_model(family), .layout = base_layout()};
    c.layout.tp = 2;
    const int64_t layers = c.model.layers, m = c.layout.micro_batches(), rows = c.layout.seq_len;
    const int64_t stream = rows * c.model.width * 4, parts = 2 * rows * 3 * 4;  // f32
    const int64_t sums = m * (4 * layers + 2), gathers = m * (6 * layers + 2);
    CAPTURE(family);
    {
      const DryRun run = dry_run_of(c, 0);
      // One more value: the gradient norm.
      CHECK(comm_of(run, "tp", CommKind::all_reduce) == CommCount{sums + 1, sums * stream + 8});
      CHECK(comm_of(run, "tp", CommKind::all_gather) == CommCount{m, m * parts});
      CHECK(comm_of(run, "tp", CommKind::reduce_scatter) == CommCount{});
    }
    c.layout.sp = true;
    {
      const DryRun run = dry_run_of(c, 0);
      // And the norms' gradients: each rank has seen its rows alone.
      const int64_t norms = (2 * layers + 1) * c.model.width * (c.model.layer_norm() ? 2 : 1) * 4;
      CHECK(comm_of(run, "tp", CommKind::reduce_scatter) == CommCount{sums, sums * stream});
      CHECK(comm_of(run, "tp", CommKind::all_gather) == CommCount{gathers + m, gathers * stream + m * parts});
      CHECK(comm_of(run, "tp", CommKind::all_reduce) == CommCount{2, norms + 8});
    }
    // Full recomputation runs a layer's forward again, except for its last product (Korthikanti et al. 2022).
    c.layout.recompute = Recompute::full;
    {
      const DryRun run = dry_run_of(c, 0);
      CHECK(comm_of(run, "tp", CommKind::reduce_scatter).calls == sums + m * layers);
      CHECK(comm_of(run, "tp", CommKind::all_gather).calls == gathers + m + m * 2 * layers);
    }
  }
}

// Rajbhandari et al. 2020, section 7: stages 0 to 2 move each gradient and each parameter once (an all-reduce is both),
// stage 3 gathers parameters for the forward and again for the backward.
TEST_CASE("what data parallelism sends, counted by hand") {
  Case c{.model = family_model("gpt2"), .layout = base_layout()};
  c.layout.dp = 2;
  const int64_t n = n_params(c.model), groups = c.model.layers + 3, m = c.layout.micro_batches();
  SUBCASE("no ZeRO") {
    const DryRun run = dry_run_of(c, 1);
    CHECK(comm_of(run, "replica", CommKind::all_reduce) == CommCount{groups, n * 4});
  }
  SUBCASE("optimizer state") {
    c.layout.zero = 1;
    const DryRun run = dry_run_of(c, 1);
    CHECK(comm_of(run, "shard", CommKind::reduce_scatter) == CommCount{groups, n * 4});
    CHECK(comm_of(run, "shard", CommKind::all_gather) == CommCount{groups, n * 4});
  }
  SUBCASE("and gradients") {
    c.layout.zero = 2;
    const DryRun run = dry_run_of(c, 1);
    CHECK(comm_of(run, "shard", CommKind::reduce_scatter) == CommCount{m * groups, m * n * 4});
    CHECK(comm_of(run, "shard", CommKind::all_gather) == CommCount{groups, n * 4});
  }
  SUBCASE("and parameters") {
    c.layout.zero = 3;
    const DryRun run = dry_run_of(c, 1);
    CHECK(comm_of(run, "shard", CommKind::reduce_scatter) == CommCount{m * groups, m * n * 4});
    // Two blocks stay where the direction turns; the three other groups are gathered once a step.
    const int64_t turns = 2 * m - 1;
    CHECK(comm_of(run, "shard", CommKind::all_gather).calls == 2 * m * c.model.layers - 2 * turns + 3);
  }
}

TEST_CASE("what a pipeline sends, counted by hand") {
  Case c{.model = family_model("llama"), .layout = base_layout()};
  c.layout.pp = 2;
  const int64_t m = c.layout.micro_batches(), stream = c.layout.seq_len * c.model.width * 4;
  const auto check = [&](int64_t crossings) {  // of stage 0's messages in a direction, a micro-batch
    const DryRun run = dry_run_of(c, 0);
    const CommCount all{m * crossings, m * crossings * stream};
    CHECK(comm_of(run, "pp_forward", CommKind::send) == all);
    CHECK(comm_of(run, "pp_backward", CommKind::recv) == all);
    const CommCount back{m * (crossings - 1), m * (crossings - 1) * stream};
    CHECK(comm_of(run, "pp_forward", CommKind::recv) == back);
    CHECK(comm_of(run, "pp_backward", CommKind::send) == back);
  };
  check(1);
  c.layout.schedule = ScheduleKind::interleaved;
  c.layout.vpp = 2;
  check(2);
}

// Llama 3.1 405B (Grattafiori et al. 2024, table 3) on 16,384 ranks.
TEST_CASE("one rank of 16,384 of a 405B model") {
  ModelSpec model;
  model.family = Family::llama;
  model.layers = 126;
  model.width = 16384;
  model.heads = 128;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = 53248;
  model.vocab_size = 128256;
  model.max_position = 131072;
  model.rope_theta = 500000;
  Layout layout;
  layout.tp = 8;
  layout.pp = 16;
  layout.dp = 128;
  layout.sp = true;
  layout.zero = 1;
  layout.micro_batch = 1;
  layout.global_batch = 2048;
  layout.seq_len = 8192;
  const Case c{.model = model, .layout = dealt(layout, model), .t = DType::bf16};
  CHECK(n_params(model) == doctest::Approx(405.85e9).epsilon(0.001));
  CHECK(c.layout.ranks() == 16384);

  const int64_t stage = 7, rank = stage * 8 * 128 + 5 * 8 + 3;
  const DryRun run = dry_run_of(c, rank);
  const Layout::Layers layers = c.layout.layers_of(stage, 0);
  const auto n_layers = static_cast<double>(layers.end - layers.begin);
  const double w = 16384, f = 53248, kv = 1024, t = 8192, tp = 8, m = 16;
  const double matrices = 2 * w * w + 2 * w * kv + 3 * w * f;  // of a layer
  const double params = n_layers * (matrices / tp + 2 * w);
  const auto bytes = [&](MemoryOwner o) { return static_cast<double>(run.bytes[static_cast<size_t>(o)]); };
  CHECK(bytes(MemoryOwner::weights) == doctest::Approx(4 * params).epsilon(0.01));
  CHECK(bytes(MemoryOwner::gradients) == doctest::Approx(4 * params).epsilon(0.01));
  CHECK(bytes(MemoryOwner::optimizer) == doctest::Approx(8 * params / 128).epsilon(0.01));
  // Forward, and twice as much backward, of the products; causal attention over half of the pairs, two products forward
  // and five backward (scores once more; Dao 2023).
  const double products = 6 * matrices * t, attention = 7 * 2 * w * t * t / 2;
  double flops = 0;
  for (const char* op : {"gemm", "attention_fwd", "attention_bwd"}) flops += run.ops.at(op).cost.flops;
  CHECK(flops == doctest::Approx(m * n_layers * (products + attention) / tp).epsilon(0.01));
  const double stream = t * w * 2;
  const CommCount scatters = comm_of(run, "tp", CommKind::reduce_scatter);
  CHECK(static_cast<double>(scatters.bytes) == m * n_layers * 4 * stream);
  CHECK(comm_of(run, "pp_forward", CommKind::send) == CommCount{16, static_cast<int64_t>(m * stream / tp)});
  CHECK(static_cast<double>(comm_of(run, "shard", CommKind::reduce_scatter).bytes) ==
        doctest::Approx(4 * params).epsilon(1e-6));
}
