#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/base/version.h"
#include "libcore/ckpt/reshard.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/comm/agree.h"
#include "libcore/spec/model_spec.h"
#include "libcore/spec/train_spec.h"
#include "libcore/train/layout_pieces.h"
#include "libcore/train/setup.h"
#include "tools/byte_progress.h"
#include "tools/dckpt.h"
#include "tools/dckpt_step.h"
#include "tools/job_command_line.h"
#include "tools/output_run.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFooter =
    "OUT becomes a run directory: OUT/run.json and OUT/checkpoints/step-N. Train on with `dtrain --resume OUT --out "
    "NEW`, with `dtrain --resume auto --out OUT`, or from its weights with --init-from OUT.\n"
    "\n"
    "Examples:\n"
    "  dckpt reshard runs/kjv --tp 2 --pp 2 --dp 2 --zero 1 -o runs/kjv-tp2\n"
    "  dckpt reshard runs/big/checkpoints/step-00004000 -o canonical --memory 256M\n"
    "  mpirun -n 4 dckpt reshard runs/big --pp 8 --vpp 2 --schedule interleaved -o runs/big-pp8\n"
    "\n"
    "Every byte of the source is compared with its digest on the way: exit code 3, and nothing is left behind, when it "
    "is damaged.";

// The flags of dtrain that say how tensors are cut.
constexpr const char* kLayoutFields[] = {"tp",   "pp",         "vpp",      "dp",           "sp",
                                         "zero", "zero-group", "schedule", "stage-layers", "ranks-per-node"};

struct ReshardRequest {
  std::string path, output, step;
  int64_t memory = int64_t{1} << 30, threads = 4;
  bool force = false, json = false;
  TrainSpec layout;
};

FieldList fields(ReshardRequest& r) {
  FieldList list = {
      {.name = "path", .value = &r.path, .help = "checkpoint, or run or checkpoints directory (its newest)"},
      {.name = "output", .value = &r.output, .help = "run directory to make (-o)"},
      step_field(r.step)};
  r.layout.micro_batch = 1;  // of the batch only what the layout needs
  const FieldList all = fields(r.layout);
  for (const char* name : kLayoutFields) list.push_back(*find_field(all, name));
  list.push_back({.name = "memory",
                  .value = &r.memory,
                  .help = "most that each process holds of tensors, bytes",
                  .min = 1,
                  .is_size = true});
  list.push_back({.name = "threads",
                  .value = &r.threads,
                  .help = "tensors under way at the same time, of each process",
                  .min = 1,
                  .max = 256});
  list.push_back({.name = "force", .value = &r.force, .help = "replace the checkpoint of this step in OUTPUT"});
  list.push_back({.name = "json", .value = &r.json, .help = "print the result as one JSON object on standard output"});
  return list;
}

// The source and what is to become of it, on every rank alike.
struct Work {
  fs::path source;
  Manifest manifest;
  Json identity;
  Layout layout;
  NewCheckpoint target;
};

fs::path source_of(const fs::path& path) {
  if (path_kind(path) == PathKind::huggingface)
    fail(ErrorKind::usage,
         "{}: expected a run or a checkpoint, found a Hugging Face directory: `dckpt convert` makes a checkpoint of it",
         path.string());
  return checkpoint_of(path);
}

Manifest read_manifest(const fs::path& dir) {
  const fs::path file = dir / kManifestName;
  try {
    return parse_manifest(read_regular_file(file), file.string());
  } catch (const Error& e) {
    fail(ErrorKind::verdict, "{}: damaged: {}", dir.string(), e.what());
  }
}

// The identity of the source but for the layout that it records.
Json new_identity(const Work& work, TrainSpec& asked) {
  Json identity = work.identity;
  Json layout = layout_json(work.layout);
  for (const char* batch : {"micro_batch", "micro_batches"})
    layout.erase(batch);  // a run's, which it has when it goes on
  const Json before = identity.contains("layout") ? identity["layout"].value("text", Json()) : Json();
  identity["layout"] = std::move(layout);
  if (const auto config = identity.find("config"); config != identity.end() && config->is_object()) {
    const FieldList all = fields(asked);
    for (const char* name : kLayoutFields) {
      const Json value = fields_json({*find_field(all, name)});
      config->update(value);
    }
  }
  identity["resharded_from"] = {{"checkpoint", fs::absolute(work.source).lexically_normal().string()},
                                {"layout", before},
                                {"tool_version", version()},
                                {"created", utc_timestamp()}};
  return identity;
}

Work plan(ReshardRequest& r, const fs::path& source) {
  Work work{.source = source, .manifest = read_manifest(source)};
  const std::string where = source.string();
  work.identity = parse_json(work.manifest.identity, where);
  const Json state = parse_json(work.manifest.state, where);
  const auto config = work.identity.find("model_config");
  if (config == work.identity.end() || !config->is_object())
    fail(ErrorKind::input, "{}: key 'model_config' of the identity: expected the object of a config.json, found none",
         where);
  const ModelSpec model = parse_model_spec(*config, where + ": model_config");
  r.layout.seq_len = std::min(json_int(state, "seq_len", where, 0), model.max_position);
  const int64_t ranks = ranks_needed(r.layout);
  work.layout = settle_layout(r.layout, model, ranks);

  work.target.step = work.manifest.step;
  work.target.state = work.manifest.state;
  std::vector<TensorInfo> stored;
  for (const TensorRecord& t : work.manifest.tensors) stored.push_back(t.info);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<TensorPiece> file =
        layout_pieces({.model = model,
                       .layout = work.layout,
                       .ranks_per_node = r.layout.ranks_per_node > 0 ? r.layout.ranks_per_node : ranks,
                       .rank = rank});
    for (TensorPiece& piece : file) {
      const TensorInfo* there = find_tensor(stored, piece.name);
      if (there == nullptr) piece.name.clear();
      else piece.dtype = there->dtype;
    }
    // A checkpoint of weights alone has no moments.
    std::erase_if(file, [](const TensorPiece& piece) { return piece.name.empty(); });
    work.target.files.push_back(std::move(file));
  }
  work.target.identity = new_identity(work, r.layout).dump();
  return work;
}

int run_rank(int argc, const char* const* argv, Comm& world) {
  ReshardRequest r;
  const CommandLine line{
      .name = "dckpt reshard",
      .description = "Writes a checkpoint anew in another layout, bit for bit; single process or mpirun.",
      .fields = fields(r),
      .positional = {"path"},
      .required = {"path", "output"},
      .takes_config = false,
      .footer = kFooter};
  std::vector<const char*> args(argv, argv + argc);
  for (const char*& arg : args) {
    if (std::string_view(arg) == "-o") arg = "--output";
  }
  if (const auto code = parse_job_command_line(line, argc, args.data(), world)) return *code;
  world.set_timeout(24 * 3600.0);  // ranks with large tensors are waited for
  const bool first = world.rank() == 0;

  std::string source;
  agree(world, [&] {
    if (first) source = source_of(path_with_step(r.path, r.step)).string();
  });
  source = world.broadcast_text(source, 0);
  Work work;
  std::unique_ptr<RowSource> rows;
  std::optional<OutputRun> out;
  agree(world, [&] {
    work = plan(r, source);
    rows = checkpoint_rows(work.source, work.manifest);
  });
  agree(world, [&] {
    if (first) out.emplace(r.output, json_string(work.identity, "run_id", source, ""), r.force);
  });
  work.target.checkpoints_dir = fs::path(r.output) / "checkpoints";

  ReshardReport done;
  {
    int64_t total = 0;
    for (const TensorInfo& t : rows->tensors()) total += n_elements(t.shape) * dtype_bytes(t.dtype);
    std::optional<ByteProgress> bar;
    if (first) bar.emplace("resharding", total);
    done = reshard(*rows, work.target,
                   {.memory_bytes = r.memory,
                    .threads = static_cast<int>(r.threads),
                    .progress =
                        [&](int64_t bytes) {
                          if (bar) bar->add(bytes * world.size());  // the ranks' shares are alike
                        }},
                   world);
  }
  agree(world, [&] {
    if (first) out->finish(parse_json(work.target.identity, source));
  });
  if (!first) return 0;
  const fs::path checkpoint = work.target.checkpoints_dir / step_name(work.target.step);
  const int64_t bytes = directory_bytes(checkpoint);
  const double rate = static_cast<double>(bytes) / std::max(done.seconds, 1e-9);
  fmt::print(stderr, "{}: {}, {} files, {} in {} ({}/s)\n", checkpoint.string(), work.layout.text(),
             work.target.files.size(), format_bytes(static_cast<double>(bytes)), format_seconds(done.seconds),
             format_bytes(rate));
  if (r.json)
    fmt::print("{}\n", Json{{"output", r.output},
                            {"checkpoint", checkpoint.string()},
                            {"source", work.source.string()},
                            {"step", work.target.step},
                            {"layout", layout_json(work.layout)["text"]},
                            {"files", work.target.files.size()},
                            {"ranks", world.size()},
                            {"bytes", bytes},
                            {"tensor_bytes", done.bytes},
                            {"seconds", done.seconds},
                            {"bytes_per_s", rate}}
                           .dump());
  return 0;
}

}  // namespace

int dckpt_reshard(int argc, const char* const* argv) {
  const std::unique_ptr<Comm> world = make_world_comm();
  set_log_rank(world->rank(), world->size());
  return run_job("dckpt reshard", *world, [&] { return run_rank(argc, argv, *world); });
}

}  // namespace rw
