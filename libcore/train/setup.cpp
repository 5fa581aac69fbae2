#include "libcore/train/setup.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/version.h"
#include "libcore/train/lr_schedule.h"

namespace rw {
namespace {

void check_fits_model(const TokenFile& file, const ModelSpec& model) {
  if (file.vocab_size() > model.vocab_size)
    fail(ErrorKind::input,
         "{}: its tokenizer has {} tokens, the model's vocabulary {}; prepare the data with the model's tokenizer or "
         "use a model with vocab_size >= {}",
         file.path().string(), file.vocab_size(), model.vocab_size, file.vocab_size());
  if (file.max_token() >= model.vocab_size)
    fail(ErrorKind::input, "{}: holds token id {}; expected ids below the model's vocab_size {}", file.path().string(),
         file.max_token(), model.vocab_size);
}

void check_long_enough(const TokenFile& file, int64_t n, int64_t seq_len) {
  if (n <= seq_len)
    fail(ErrorKind::input,
         "{}: {} tokens to train on; --seq-len {} needs at least {}; use a shorter --seq-len or more text",
         file.path().string(), n, seq_len, seq_len + 1);
}

// " lr 0.003 -> 0.001, steps 30 -> 40": what now computes something else than the run that wrote the identity.
std::string changed_settings(const Json& identity, TrainSpec spec) {
  const auto before = identity.find("config");
  if (before == identity.end() || !before->is_object()) return "";
  std::string changed;
  for (const Field& f : fields(spec)) {
    if (!changes_result(f.name)) continue;
    std::string key = f.name;
    std::replace(key.begin(), key.end(), '-', '_');
    const Json now = fields_json({f})[key];
    if (const auto old = before->find(key); old != before->end() && *old != now)
      changed += fmt::format("{} {} {} -> {}", changed.empty() ? "" : ",", f.name, old->dump(), now.dump());
  }
  return changed;
}

}  // namespace

void settle_batch(TrainSpec& spec, const ModelSpec& model, int ranks) {
  if (spec.seq_len == 0) spec.seq_len = std::min<int64_t>(model.max_position, 1024);
  if (spec.seq_len > model.max_position)
    fail(ErrorKind::usage, "--seq-len = {} is longer than the model's longest sequence, {} (max_position_embeddings)",
         spec.seq_len, model.max_position);
  const int64_t per_pass = spec.micro_batch * ranks;
  if (spec.global_batch == 0) spec.global_batch = per_pass;
  if (spec.global_batch % per_pass != 0)
    fail(ErrorKind::usage,
         "--global-batch = {} is not divisible by --micro-batch x ranks = {} x {} = {}; the nearest that fit are {} "
         "and {}",
         spec.global_batch, spec.micro_batch, ranks, per_pass,
         std::max(per_pass, spec.global_batch / per_pass * per_pass), (spec.global_batch / per_pass + 1) * per_pass);
}

TrainData open_data(const TrainSpec& spec, const ModelSpec& model) {
  TrainData data;
  std::string identity;
  for (const std::string& text : spec.data) {
    const WeightedPath path = parse_weighted_path(text);
    auto file = std::make_shared<const TokenFile>(path.path);
    check_fits_model(*file, model);
    const int64_t held_out = static_cast<int64_t>(static_cast<double>(file->n_tokens()) * spec.val_fraction);
    const int64_t end = file->n_tokens() - held_out;
    check_long_enough(*file, end, spec.seq_len);
    if (!data.files.empty() && file->tokenizer_identity() != data.files[0]->tokenizer_identity())
      fail(ErrorKind::input, "{}: prepared with tokenizer {}, but {} with {}; a blend needs one tokenizer",
           file->path().string(), file->tokenizer_identity(), data.files[0]->path().string(),
           data.files[0]->tokenizer_identity());
    data.parts.push_back({.file = file, .begin = 0, .end = end, .weight = path.weight});
    if (held_out > 0) data.validation.push_back({.file = file, .begin = end, .end = file->n_tokens()});
    identity += fmt::format("{} 0 {} {}\n", file->fingerprint(), end, path.weight);
    data.files.push_back(std::move(file));
  }
  for (const std::string& path : spec.val_data) {
    auto file = std::make_shared<const TokenFile>(path);
    check_fits_model(*file, model);
    data.validation.push_back({.file = file, .begin = 0, .end = file->n_tokens()});
    data.files.push_back(std::move(file));
  }
  data.fingerprint = hex64(hash64(identity));
  return data;
}

namespace {

int online_cores() { return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))); }

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int ranks_of_host(const Comm& world) {
  const std::vector<std::string> hosts = world.hosts();
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(world.rank())]));
}

}  // namespace

int idle_cores(int threads, const Comm& world) {
  if (allowed_cores() == online_cores()) return 0;
  return std::max(0, online_cores() - threads * ranks_of_host(world));
}

int threads_per_rank(const TrainSpec& spec, const Comm& world) {
  if (spec.threads > 0) return static_cast<int>(spec.threads);
  const int cores = allowed_cores();
  const int on_host = ranks_of_host(world);
  // A rank that mpirun bound to its own cores has them to itself; otherwise all see the same set.
  return std::max(1, cores * on_host <= online_cores() ? cores : cores / on_host);
}

std::vector<std::string> check_resume(const Checkpoint& checkpoint, const TrainState& state, const TrainSpec& spec,
                                      const ModelSpec& model, const TrainData& data) {
  const std::string where = checkpoint.where();
  const auto must_match = [&](const char* what, const auto& found, const auto& expected, const char* advice) {
    if (found != expected)
      fail(ErrorKind::usage, "cannot resume {}: its {} is {}, this command's is {}; {}", where, what, found, expected,
           advice);
  };
  constexpr const char* kNewRun = "to go on from its weights in a new run use --init-from and another --out";
  must_match("model", json_string(checkpoint.identity(), "model_identity", where), model_identity(model), kNewRun);
  must_match("data fingerprint", state.data_fingerprint, data.fingerprint, kNewRun);
  must_match("seed", state.seed, spec.seed, "give --seed as before");
  must_match("seq-len", state.seq_len, spec.seq_len, "give --seq-len as before");
  std::vector<std::string> notes;
  if (const std::string changed = changed_settings(checkpoint.identity(), spec); !changed.empty())
    notes.push_back("settings changed since the checkpoint:" + changed);
  if (state.global_batch != spec.global_batch)
    notes.push_back(
        fmt::format("global-batch was {}, is now {}: the data goes on at sample {}; --lr-batch-rule {} makes the peak "
                    "learning rate {:g}",
                    state.global_batch, spec.global_batch, state.samples, spec.lr_batch_rule,
                    batch_scaled_lr(spec, spec.global_batch)));
  return notes;
}

Json run_identity(const TrainSpec& spec, const ModelSpec& model, const TrainData& data, const Comm& world,
                  const std::string& run_id) {
  TrainSpec copy = spec;
  Json files = Json::array();
  for (const auto& file : data.files)
    files.push_back({{"path", std::filesystem::absolute(file->path()).string()},
                     {"fingerprint", file->fingerprint()},
                     {"tokens", file->n_tokens()},
                     {"tokenizer", file->tokenizer_identity()}});
  return {{"run_id", run_id},
          {"tool_version", version()},
          {"created", utc_timestamp()},
          {"model_identity", model_identity(model)},
          {"model_config", model_config_json(model)},
          {"dataset_fingerprint", data.fingerprint},
          {"data", files},
          {"layout", {{"dp", world.size()}, {"tp", 1}, {"pp", 1}}},
          {"precision", spec.precision},
          {"global_batch", spec.global_batch},
          {"hyper_parameter_hash", hyper_parameter_hash(spec)},
          {"config", fields_json(fields(copy))},
          {"hosts", world.hosts()}};
}

}  // namespace rw
