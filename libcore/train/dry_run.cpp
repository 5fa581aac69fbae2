#include "libcore/train/dry_run.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/spec/train_spec.h"
#include "libcore/train/setup.h"
#include "libcore/train/train_state.h"

namespace rw {
namespace {

// Valid tokens, all alike: what is read does not matter.
uint64_t read_nothing(int64_t, int64_t, int32_t*, int32_t*) { return 0; }

}  // namespace

DryRun dry_run(const DryRunSettings& settings, int64_t rank) {
  OpLog log;
  log.backend = &settings.backend.ops;
  const Exec exec{
      .ops = meta_ops(), .stream = {.threads = settings.backend.stream.threads, .log = &log}, .t = settings.backend.t};
  const auto record = std::make_shared<CommRecord>();
  Mesh mesh =
      make_meta_mesh(mesh_shape(settings.step.layout, settings.step.spec, settings.ranks_per_node), rank, record);
  Arena arena(ArenaKind::count);
  TrainStep step(settings.step, exec, mesh, record, arena);
  step.weights().loaded();
  log.ops.clear();
  for (auto& [key, count] : record->counts) count = {};  // not cleared: watched communicators keep places in it
  if (DryTrace* trace = settings.trace) {
    log.calls = &trace->ops;
    record->on_start = [trace, &log](const CommOp& op) {
      trace->comm.push_back(
          {.kind = op.kind, .group = op.group, .scope = log.scope, .bytes = op.bytes, .at = trace->ops.size()});
    };
  }
  StepClock clock;
  clock.start();
  step.run({.first_sample = 0, .lr = 1e-3}, read_nothing, clock);
  DryRun run{.rank = rank, .bytes = {}, .total_bytes = arena.total_bytes(), .ops = log.ops, .comm = record->counts};
  std::erase_if(run.comm, [](const auto& entry) { return entry.second.calls == 0; });
  for (const TensorPiece& piece : checkpoint_pieces(step))
    run.checkpoint_bytes += piece.box.size() * dtype_bytes(piece.dtype);
  for (size_t o = 0; o < run.bytes.size(); ++o) run.bytes[o] = arena.bytes(static_cast<MemoryOwner>(o));
  return run;
}

Json dry_run_json(const DryRun& run) {
  Json bytes = Json::object(), ops = Json::object(), comm = Json::array();
  for (size_t o = 0; o < run.bytes.size(); ++o)
    if (run.bytes[o] > 0) bytes[memory_owner_name(static_cast<MemoryOwner>(o))] = run.bytes[o];
  double flops = 0;
  for (const auto& [name, count] : run.ops) {
    ops[name] = {{"calls", count.calls},
                 {"flops", count.cost.flops},
                 {"bytes_read", count.cost.bytes_read},
                 {"bytes_written", count.cost.bytes_written}};
    flops += count.cost.flops;
  }
  for (const auto& [key, count] : run.comm)
    comm.push_back(
        {{"group", key.first}, {"kind", comm_kind_name(key.second)}, {"calls", count.calls}, {"bytes", count.bytes}});
  return {{"rank", run.rank},
          {"memory_bytes", bytes},
          {"high_water_bytes", run.total_bytes},
          {"checkpoint_bytes", run.checkpoint_bytes},
          {"flops", flops},
          {"ops", ops},
          {"collectives", comm}};
}

std::vector<int64_t> ranks_asked(const std::string& flag, const std::string& text, const Layout& layout) {
  if (text == "all-stages") {
    std::vector<int64_t> ranks;
    for (int64_t stage = 0; stage < layout.pp; ++stage) ranks.push_back(stage * layout.tp * layout.dp);
    return ranks;
  }
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0 || rank >= layout.ranks())
    fail(ErrorKind::usage, "--{}: expected all-stages or a rank from 0 to {}, found \"{}\"", flag, layout.ranks() - 1,
         text);
  return {rank};
}

std::string dry_run_report(const TrainSpec& asked) {
  TrainSpec spec = asked;
  if (spec.model.empty()) fail(ErrorKind::usage, "--model is missing: expected a model name, config.json or directory");
  const ModelSpec model = load_model_spec(spec.model);
  const int64_t ranks = spec.dry_run_ranks > 0 ? spec.dry_run_ranks : ranks_needed(spec);
  const Layout layout = settle_layout(spec, model, ranks);
  const DryRunSettings settings{.step = step_settings(spec, model, layout),
                                .backend = {.ops = spec.device == "cpu" ? this_cpu_ops() : plain_sizes(),
                                            .stream = {.threads = static_cast<int>(std::max<int64_t>(1, spec.threads))},
                                            .t = precision_type(spec)},
                                .ranks_per_node = spec.ranks_per_node > 0 ? spec.ranks_per_node : ranks};
  Json runs = Json::array();
  for (const int64_t rank : ranks_asked("dry-run-rank", spec.dry_run_rank, layout))
    runs.push_back(dry_run_json(dry_run(settings, rank)));
  return Json{{"model", spec.model},
              {"params", n_params(model)},
              {"ranks", ranks},
              {"precision", spec.precision},
              {"seq_len", layout.seq_len},
              {"global_batch", layout.global_batch},
              {"layout", layout_json(layout)},
              {"backend", settings.backend.ops.name},
              {"runs", runs}}
      .dump();
}

}  // namespace rw
