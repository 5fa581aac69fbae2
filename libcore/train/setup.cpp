#include "libcore/train/setup.h"

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

DType precision_type(const std::string& precision) {
  return precision == "f32" ? DType::f32 : precision == "f16" ? DType::f16 : DType::bf16;
}
DType precision_type(const TrainSpec& spec) { return precision_type(spec.precision); }

StepSettings step_settings(const TrainSpec& spec, const ModelSpec& model, const Layout& layout) {
  return {.spec = model,
          .layout = layout,
          .adam = {.beta1 = static_cast<float>(spec.beta1),
                   .beta2 = static_cast<float>(spec.beta2),
                   .eps = static_cast<float>(spec.eps),
                   .weight_decay = static_cast<float>(spec.weight_decay)},
          .clip_norm = spec.clip_norm};
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
  if (const auto config = checkpoint.identity().find("config");
      config != checkpoint.identity().end() && config->is_object() && config->contains("device"))
    if (const std::string before = (*config)["device"].dump(), now = Json(spec.device).dump(); before != now)
      notes.push_back(fmt::format("the checkpoint was written with --device {}, this run has {}", before, now));
  if (state.global_batch != spec.global_batch)
    notes.push_back(
        fmt::format("global-batch was {}, is now {}: the data goes on at sample {}; --lr-batch-rule {} makes the peak "
                    "learning rate {:g}",
                    state.global_batch, spec.global_batch, state.samples, spec.lr_batch_rule,
                    batch_scaled_lr(spec, spec.global_batch)));
  return notes;
}

Json layout_json(const Layout& l) {
  Json stages = Json::array();
  for (const int64_t n : l.stage_layers) stages.push_back(n);
  return {{"tp", l.tp},
          {"pp", l.pp},
          {"vpp", l.vpp},
          {"dp", l.dp},
          {"sp", l.sp},
          {"zero", l.zero},
          {"zero_group", l.zero_group == ZeroGroup::node ? "node" : "all"},
          {"schedule", schedule_name(l.schedule)},
          {"micro_batch", l.micro_batch},
          {"micro_batches", l.micro_batches()},
          {"stage_layers", stages},
          {"text", l.text()}};
}

Json run_identity(const RunInputs& in, const Comm& world, const std::string& run_id) {
  TrainSpec copy = in.spec;
  Json files = Json::array();
  for (const auto& file : in.data.files)
    files.push_back({{"path", std::filesystem::absolute(file->path()).string()},
                     {"fingerprint", file->fingerprint()},
                     {"tokens", file->n_tokens()},
                     {"tokenizer", file->tokenizer_identity()}});
  return {{"run_id", run_id},
          {"tool_version", version()},
          {"created", utc_timestamp()},
          {"model_identity", model_identity(in.model)},
          {"model_config", model_config_json(in.model)},
          {"dataset_fingerprint", in.data.fingerprint},
          {"data", files},
          {"layout", layout_json(in.layout)},
          {"precision", in.spec.precision},
          {"global_batch", in.spec.global_batch},
          {"hyper_parameter_hash", hyper_parameter_hash(in.spec)},
          {"config", fields_json(fields(copy))},
          {"hosts", world.hosts()}};
}

}  // namespace rw
