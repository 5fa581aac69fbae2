#include "libcore/spec/train_spec.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"

namespace rw {

FieldList fields(TrainSpec& s) {
  constexpr double kMany = 9e15, kMaxParallel = 1 << 20;
  return {
      {.name = "model",
       .value = &s.model,
       .help = "a name under configs/models, a config.json, or a Hugging Face directory",
       .group = "Model"},
      {.name = "init-from",
       .value = &s.init_from,
       .help = "start from these weights: a Hugging Face directory, a run or a checkpoint",
       .group = "Model"},
      {.name = "data",
       .value = &s.data,
       .help = "a token file of `dtrain prepare`; repeat as FILE:WEIGHT to blend",
       .group = "Data"},
      {.name = "val-data", .value = &s.val_data, .help = "a token file to validate on", .group = "Data"},
      {.name = "val-fraction",
       .value = &s.val_fraction,
       .help = "without --val-data: the last share of each file is for validation",
       .min = 0,
       .max = 0.5,
       .group = "Data"},
      {.name = "verify-data",
       .value = &s.verify_data,
       .help = "check the files' digests and report duplicate documents first",
       .group = "Data"},
      {.name = "out", .value = &s.out, .help = "run directory: metrics, events, checkpoints", .group = "Run"},
      {.name = "resume",
       .value = &s.resume,
       .help = "auto: from the newest committed checkpoint of --out, fresh when there is none; none: refuse a used "
               "--out; or a checkpoint's path",
       .group = "Run"},
      {.name = "steps",
       .value = &s.steps,
       .help = "optimizer steps in all, resumed ones included",
       .min = 1,
       .max = kMany,
       .group = "Run"},
      {.name = "seq-len",
       .value = &s.seq_len,
       .help = "tokens per sample; 0: the model's longest, at most 1024",
       .min = 0,
       .max = 1 << 20,
       .is_size = true,
       .group = "Batch"},
      {.name = "micro-batch",
       .value = &s.micro_batch,
       .help = "samples of a data-parallel replica that go through the model at once",
       .min = 1,
       .max = 1 << 20,
       .group = "Batch"},
      {.name = "global-batch",
       .value = &s.global_batch,
       .help = "samples per step over all ranks; gradient accumulation follows; 0: micro-batch x dp x pp",
       .min = 0,
       .max = 1 << 24,
       .group = "Batch"},
      {.name = "lr", .value = &s.lr, .help = "peak learning rate", .min = 0, .group = "Optimizer"},
      {.name = "min-lr", .value = &s.min_lr, .help = "learning rate at the last step", .min = 0, .group = "Optimizer"},
      {.name = "lr-schedule",
       .value = &s.lr_schedule,
       .help = "after the warm-up; wsd holds the peak and decays at the end",
       .choices = {"cosine", "linear", "wsd", "constant"},
       .group = "Optimizer"},
      {.name = "warmup-steps",
       .value = &s.warmup_steps,
       .help = "steps of linear warm-up",
       .min = 0,
       .max = kMany,
       .group = "Optimizer"},
      {.name = "decay-steps",
       .value = &s.decay_steps,
       .help = "steps of wsd's final decay; 0: a fifth of --steps",
       .min = 0,
       .max = kMany,
       .group = "Optimizer"},
      {.name = "lr-base-batch",
       .value = &s.lr_base_batch,
       .help = "global batch that --lr was chosen for; 0: this one",
       .min = 0,
       .max = 1 << 24,
       .group = "Optimizer"},
      {.name = "lr-batch-rule",
       .value = &s.lr_batch_rule,
       .help = "how --lr follows global-batch / lr-base-batch",
       .choices = {"none", "linear", "sqrt"},
       .group = "Optimizer"},
      {.name = "weight-decay",
       .value = &s.weight_decay,
       .help = "decoupled, on matrices and embeddings",
       .min = 0,
       .max = 10,
       .group = "Optimizer"},
      {.name = "beta1",
       .value = &s.beta1,
       .help = "AdamW's first decay",
       .min = 0,
       .max = 0.999999,
       .group = "Optimizer"},
      {.name = "beta2",
       .value = &s.beta2,
       .help = "AdamW's second decay",
       .min = 0,
       .max = 0.9999999,
       .group = "Optimizer"},
      {.name = "eps",
       .value = &s.eps,
       .help = "AdamW's epsilon, above 0: a parameter without gradient divides by it",
       .min = 1e-30,
       .max = 1,
       .group = "Optimizer"},
      {.name = "clip-norm",
       .value = &s.clip_norm,
       .help = "clip the gradient's global norm to this; 0: off",
       .min = 0,
       .group = "Optimizer"},
      {.name = "layout",
       .value = &s.layout_by,
       .help = "who lays the model over the ranks: these flags, or (auto) the planner, which then sets them and "
               "--micro-batch",
       .choices = {"flags", "auto"},
       .group = "Layout"},
      {.name = "cluster",
       .value = &s.cluster,
       .help = "with --layout auto: a name under configs/clusters or a .toml file; without it this host is measured "
               "for a second",
       .group = "Layout"},
      {.name = "tp",
       .value = &s.tp,
       .help = "tensor parallel: ranks that share each layer",
       .min = 1,
       .max = kMaxParallel,
       .group = "Layout"},
      {.name = "pp",
       .value = &s.pp,
       .help = "pipeline parallel: stages that the layers are dealt to",
       .min = 1,
       .max = kMaxParallel,
       .group = "Layout"},
      {.name = "vpp",
       .value = &s.vpp,
       .help = "chunks of layers that a stage holds",
       .min = 1,
       .max = kMaxParallel,
       .group = "Layout"},
      {.name = "dp",
       .value = &s.dp,
       .help = "data parallel: replicas, each with its part of the global batch; auto: ranks / (tp x pp)",
       .or_number = true,
       .group = "Layout"},
      {.name = "sp",
       .value = &s.sp,
       .help = "sequence parallel: shard the residual stream and the norms over the tp ranks too",
       .group = "Layout"},
      {.name = "zero",
       .value = &s.zero,
       .help = "shard over the replicas 1: optimizer state, 2: also gradients, 3: also parameters; 0: nothing",
       .min = 0,
       .max = 3,
       .group = "Layout"},
      {.name = "zero-group",
       .value = &s.zero_group,
       .help = "ranks that --zero shards over; node: within each node, replicated across nodes",
       .choices = {"all", "node"},
       .group = "Layout"},
      {.name = "recompute",
       .value = &s.recompute,
       .help = "activations computed again in the backward instead of kept; selective: attention's only",
       .choices = {"none", "selective", "full"},
       .group = "Layout"},
      {.name = "recompute-layers",
       .value = &s.recompute_layers,
       .help = "recompute in the first so many layers of each stage; 0: in all",
       .min = 0,
       .max = kMaxParallel,
       .group = "Layout"},
      {.name = "schedule",
       .value = &s.schedule,
       .help = "order of a pipeline's forwards and backwards",
       .choices = {"gpipe", "1f1b", "interleaved", "zb-h1"},
       .group = "Layout"},
      {.name = "stage-layers",
       .value = &s.stage_layers,
       .help = "layers of each stage, like 5,6,6,5 (with --vpp: of stages' first chunks, then of their second, ...); "
               "empty: by their work",
       .group = "Layout"},
      {.name = "ranks-per-node",
       .value = &s.ranks_per_node,
       .help = "ranks that count as one node; 0: those of one host",
       .min = 0,
       .max = kMaxParallel,
       .group = "Layout"},
      {.name = "allreduce",
       .value = &s.allreduce,
       .help = "how MPI ranks add up; auto: the fastest of a measured table",
       .choices = {"auto", "direct", "mpi", "ring", "tree", "doubling", "hierarchical"},
       .group = "Device"},
      {.name = "comm-table",
       .value = &s.comm_table,
       .help = "what --allreduce auto goes by: a file of `dbench comm --tune`",
       .group = "Device"},
      {.name = "device",
       .value = &s.device,
       .help = "where a rank's tensors lie and its kernels run: cpu; cuda, a GPU for each rank of a host; or cuda:N",
       .group = "Device"},
      {.name = "precision",
       .value = &s.precision,
       .help = "of activations and products; weights and optimizer state are f32",
       .choices = {"f32", "bf16", "f16"},
       .group = "Device"},
      {.name = "loss-scale",
       .value = &s.loss_scale,
       .help = "with f16: the loss is scaled by this at first; halved when a gradient overflows",
       .min = 1,
       .max = 1 << 24,
       .group = "Device"},
      {.name = "loss-scale-window",
       .value = &s.loss_scale_window,
       .help = "with f16: steps without overflow before the scale doubles",
       .min = 1,
       .max = kMany,
       .group = "Device"},
      {.name = "threads",
       .value = &s.threads,
       .help = "per rank; 0: the host's cores shared among its ranks",
       .min = 0,
       .max = 4096,
       .group = "Device"},
      {.name = "seed",
       .value = &s.seed,
       .help = "of initial weights and data order",
       .min = 0,
       .max = kMany,
       .group = "Run"},
      {.name = "metrics-port",
       .value = &s.metrics_port,
       .help = "rank 0 answers /metrics (Prometheus) and /health here while it trains: a port, auto (a free one, "
               "printed at start), or off",
       .or_number = true,
       .group = "Run"},
      {.name = "metrics-host",
       .value = &s.metrics_host,
       .help = "address that --metrics-port listens on; 0.0.0.0: all of rank 0's",
       .group = "Run"},
      {.name = "eval-every",
       .value = &s.eval_every,
       .help = "steps between validations; 0: only at the end",
       .min = 0,
       .max = kMany,
       .group = "Run"},
      {.name = "log-every",
       .value = &s.log_every,
       .help = "steps between lines on the terminal (metrics.jsonl has them all)",
       .min = 1,
       .max = kMany,
       .group = "Run"},
      {.name = "checkpoint-every",
       .value = &s.checkpoint_every,
       .help =
           "steps between checkpoints; 0: only at the end; auto: what --mtbf and the measured cost of a save ask for",
       .or_number = true,
       .group = "Checkpoints"},
      {.name = "checkpoint-mode",
       .value = &s.checkpoint_mode,
       .help =
           "async: written behind the next steps, and one that comes due meanwhile is left out; sync: training waits "
           "until each is committed",
       .choices = {"async", "sync"},
       .group = "Checkpoints"},
      {.name = "mtbf",
       .value = &s.mtbf,
       .help = "hours between failures of the whole job, on average, for --checkpoint-every auto",
       .min = 0,
       .max = 1e6,
       .group = "Checkpoints"},
      {.name = "checkpoint-dir",
       .value = &s.checkpoint_dir,
       .help = "folder for the checkpoints, on storage that all ranks share; default: checkpoints in --out",
       .group = "Checkpoints"},
      {.name = "local-checkpoint-dir",
       .value = &s.local_checkpoint_dir,
       .help = "fast folder of each node (NVMe, /dev/shm; {node} becomes the node's number): every file also gets a "
               "copy on another node, and durable checkpoints are uploaded from here",
       .group = "Checkpoints"},
      {.name = "local-checkpoint-every",
       .value = &s.local_checkpoint_every,
       .help = "steps between local checkpoints; 0: when a durable one is due",
       .min = 0,
       .max = kMany,
       .group = "Checkpoints"},
      {.name = "checkpoint-memory",
       .value = &s.checkpoint_memory,
       .help = "host memory a rank may take to stage a save, which then goes in waves; 0: as much as its file",
       .min = 0,
       .is_size = true,
       .group = "Checkpoints"},
      {.name = "checkpoint-bandwidth",
       .value = &s.checkpoint_bandwidth,
       .help = "bytes a second a rank may write in the background; 0: no limit",
       .min = 0,
       .is_size = true,
       .group = "Checkpoints"},
      {.name = "keep-last",
       .value = &s.keep_last,
       .help = "checkpoints to keep, newest first; 0: all",
       .min = 0,
       .max = 1e9,
       .group = "Checkpoints"},
      {.name = "keep-every",
       .value = &s.keep_every,
       .help = "also keep each checkpoint whose step is a multiple of this; 0: none",
       .min = 0,
       .max = kMany,
       .group = "Checkpoints"},
      {.name = "max-skips",
       .value = &s.max_skips,
       .help = "stop after so many non-finite steps in a row; the checkpoints before them stand",
       .min = 1,
       .max = kMany,
       .group = "Run"},
      {.name = "on-spike",
       .value = &s.on_spike,
       .help =
           "when the loss or the gradient's norm jumps: warn; skip the update; or rewind to the last checkpoint and "
           "leave the batches since then out",
       .choices = {"warn", "skip", "rewind"},
       .group = "Guard"},
      {.name = "spike-threshold",
       .value = &s.spike_threshold,
       .help = "a jump is this many deviations above the running median; 0: off",
       .min = 0,
       .max = 1e6,
       .group = "Guard"},
      {.name = "nan-trace",
       .value = &s.nan_trace,
       .help = "run a non-finite step again and name the first layer and operation that made it so",
       .group = "Guard"},
      {.name = "check-replicas-every",
       .value = &s.check_replicas_every,
       .help = "steps between comparisons of replicated parameters; 0: never",
       .min = 0,
       .max = kMany,
       .group = "Guard"},
      {.name = "verify-parallel",
       .value = &s.verify_parallel,
       .help = "run this many steps also on one rank in f32 and print the largest relative errors; 0: off",
       .min = 0,
       .max = kMany,
       .group = "Guard"},
      {.name = "trace-steps",
       .value = &s.trace_steps,
       .help = "a step or a range (10..12) whose course on every rank is drawn in OUT/trace.json, for Perfetto",
       .group = "Guard"},
      {.name = "dry-run",
       .value = &s.dry_run,
       .help = "compute nothing: print one step's memory, FLOPs and communication as JSON (no mpirun, no data)",
       .group = "Dry run"},
      {.name = "dry-run-rank",
       .value = &s.dry_run_rank,
       .help = "a rank, or all-stages: the first rank of each pipeline stage",
       .group = "Dry run"},
      {.name = "dry-run-ranks",
       .value = &s.dry_run_ranks,
       .help = "ranks of the run; 0: as many as --tp, --pp and --dp say",
       .min = 0,
       .max = kMaxParallel,
       .group = "Dry run"},
      {.name = "peak-flops",
       .value = &s.peak_flops,
       .help = "peak FLOP/s of one rank for MFU; 0: measured at start",
       .min = 0,
       .group = "Device"},
      {.name = "comm-timeout",
       .value = &s.comm_timeout,
       .help = "seconds to wait for another rank before giving up",
       .min = 1,
       .max = 86400,
       .group = "Device"},
  };
}

void check_train_spec(const TrainSpec& s) {
  const auto need = [](bool given, const char* flag, const char* what) {
    if (!given) fail(ErrorKind::usage, "--{} is missing: expected {}", flag, what);
  };
  need(!s.model.empty() || !s.init_from.empty(), "model", "a model name, config.json or directory (or --init-from)");
  need(s.dry_run || !s.data.empty(), "data", "a token file made by `dtrain prepare`");
  need(s.dry_run || !s.out.empty(), "out", "a run directory");
  if (!s.val_data.empty() && s.val_fraction > 0)
    fail(ErrorKind::usage, "--val-data and --val-fraction exclude each other: expected one of them");
  if (s.min_lr > s.lr)
    fail(ErrorKind::usage, "--min-lr = {} is above --lr = {}; expected at most the peak", s.min_lr, s.lr);
  if (s.lr_batch_rule != "none" && s.lr_base_batch == 0)
    fail(ErrorKind::usage, "--lr-batch-rule {} needs --lr-base-batch, the batch that --lr was chosen for",
         s.lr_batch_rule);
  if (checkpoint_interval(s) == -1 && s.mtbf <= 0)
    fail(ErrorKind::usage, "--checkpoint-every auto needs --mtbf, the hours between failures of the whole job");
  if (s.local_checkpoint_every > 0 && s.local_checkpoint_dir.empty())
    fail(ErrorKind::usage, "--local-checkpoint-every needs --local-checkpoint-dir");
  if (s.nan_trace && s.device != "cpu")
    fail(ErrorKind::usage,
         "--nan-trace looks at results in the host's memory, and --device {} keeps them elsewhere: leave it out, or go "
         "on from the last checkpoint with --device cpu --nan-trace",
         s.device);
  (void)metrics_port(s);
}

int64_t checkpoint_interval(const TrainSpec& s) {
  if (s.checkpoint_every == "auto") return -1;
  int64_t steps = -1;
  const char* end = s.checkpoint_every.data() + s.checkpoint_every.size();
  const auto [at, error] = std::from_chars(s.checkpoint_every.data(), end, steps);
  if (error != std::errc() || at != end || steps < 0)
    fail(ErrorKind::usage, "--checkpoint-every {}: expected a number of steps (0: only at the end) or auto",
         s.checkpoint_every);
  return steps;
}

int metrics_port(const TrainSpec& s) {
  if (s.metrics_port == "off") return -1;
  if (s.metrics_port == "auto") return 0;
  int port = 0;
  const char* end = s.metrics_port.data() + s.metrics_port.size();
  const auto [at, error] = std::from_chars(s.metrics_port.data(), end, port);
  if (error != std::errc() || at != end || port < 1 || port > 65535)
    fail(ErrorKind::usage, "--metrics-port {}: expected a port of 1 to 65535, auto or off", s.metrics_port);
  return port;
}

bool changes_result(const std::string& field) {
  // clang-format off
  constexpr std::string_view kRunning[] = {
      "out", "resume", "device", "threads", "verify-data", "val-data", "eval-every", "log-every", "checkpoint-every", "checkpoint-mode", "mtbf",
      "checkpoint-dir", "local-checkpoint-dir", "local-checkpoint-every", "checkpoint-memory", "checkpoint-bandwidth", "keep-last",
      "keep-every", "peak-flops", "max-skips", "comm-timeout", "allreduce", "comm-table", "nan-trace", "trace-steps", "check-replicas-every",
      "verify-parallel", "dry-run", "dry-run-rank", "dry-run-ranks", "metrics-port", "metrics-host"};
  // A layout changes where a sum is made, not which sum.
  constexpr std::string_view kLayout[] = {
      "layout", "cluster", "tp", "pp", "vpp", "dp", "sp", "zero", "zero-group", "recompute", "recompute-layers", "schedule", "stage-layers",
      "micro-batch", "ranks-per-node"};
  // clang-format on
  return std::ranges::find(kRunning, field) == std::end(kRunning) &&
         std::ranges::find(kLayout, field) == std::end(kLayout);
}

std::string hyper_parameter_hash(TrainSpec s) {
  std::string text;
  for (const Field& f : fields(s))
    if (changes_result(f.name)) text += f.name + "=" + field_text(f) + "\n";
  return hex64(hash64(text));
}

}  // namespace rw
