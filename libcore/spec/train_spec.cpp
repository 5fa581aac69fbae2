#include "libcore/spec/train_spec.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"

namespace rw {

FieldList fields(TrainSpec& s) {
  constexpr double kMany = 9e15;
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
       .help = "samples per rank that go through the model at once",
       .min = 1,
       .max = 1 << 20,
       .group = "Batch"},
      {.name = "global-batch",
       .value = &s.global_batch,
       .help = "samples per step over all ranks; gradient accumulation follows; 0: micro-batch x ranks",
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
      {.name = "precision",
       .value = &s.precision,
       .help = "of activations and products; weights and optimizer state are f32",
       .choices = {"f32", "bf16"},
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
       .help = "steps between checkpoints; 0: only at the end",
       .min = 0,
       .max = kMany,
       .group = "Run"},
      {.name = "keep-last",
       .value = &s.keep_last,
       .help = "checkpoints to keep, newest first; 0: all",
       .min = 0,
       .max = 1e9,
       .group = "Run"},
      {.name = "keep-every",
       .value = &s.keep_every,
       .help = "also keep each checkpoint whose step is a multiple of this; 0: none",
       .min = 0,
       .max = kMany,
       .group = "Run"},
      {.name = "max-skips",
       .value = &s.max_skips,
       .help = "stop after so many non-finite steps in a row; the checkpoints before them stand",
       .min = 1,
       .max = kMany,
       .group = "Run"},
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
  need(!s.data.empty(), "data", "a token file made by `dtrain prepare`");
  need(!s.out.empty(), "out", "a run directory");
  if (!s.val_data.empty() && s.val_fraction > 0)
    fail(ErrorKind::usage, "--val-data and --val-fraction exclude each other: expected one of them");
  if (s.min_lr > s.lr)
    fail(ErrorKind::usage, "--min-lr = {} is above --lr = {}; expected at most the peak", s.min_lr, s.lr);
  if (s.lr_batch_rule != "none" && s.lr_base_batch == 0)
    fail(ErrorKind::usage, "--lr-batch-rule {} needs --lr-base-batch, the batch that --lr was chosen for",
         s.lr_batch_rule);
}

bool changes_result(const std::string& field) {
  constexpr std::array<std::string_view, 14> kNoEffect = {
      "out",        "resume",     "threads",      "eval-every",  "log-every", "checkpoint-every", "keep-last",
      "keep-every", "peak-flops", "comm-timeout", "verify-data", "max-skips", "micro-batch",      "val-data"};
  return std::find(kNoEffect.begin(), kNoEffect.end(), field) == kNoEffect.end();
}

std::string hyper_parameter_hash(TrainSpec s) {
  std::string text;
  for (const Field& f : fields(s))
    if (changes_result(f.name)) text += f.name + "=" + field_text(f) + "\n";
  return hex64(hash64(text));
}

}  // namespace rw
