#include "libcore/plan/price/trainer_traits.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "libcore/base/error.h"
#include "libcore/base/toml_table.h"
#include "libcore/spec/config_find.h"

namespace rw {

FieldList fields(TrainerTraits& t) {
  return {
      {.name = "attention",
       .value = &t.attention,
       .help = "its kernel; unfused: scores go through memory",
       .choices = {"fused", "unfused"}},
      {.name = "attention-rate",
       .value = &t.attention_rate,
       .help = "of the device's attention-fraction",
       .min = 0.01,
       .max = 10},
      {.name = "selective",
       .value = &t.selective,
       .help = "what selective recompute makes again; half: every other product and all else of a layer",
       .choices = {"attention", "half"}},
      {.name = "whole-layers",
       .value = &t.whole_layers,
       .help = "full recompute repeats a layer to its end, with its collectives"},
      {.name = "accumulation-bytes",
       .value = &t.accumulation_bytes,
       .help =
           "of a parameter, moved to add a micro-batch's gradient to the sum by an op of its own; 0: the product adds",
       .min = 0,
       .max = 100},
      {.name = "blocking-messages", .value = &t.blocking_messages, .help = "a pipeline stage waits for its messages"},
      {.name = "tp-hidden",
       .value = &t.tp_hidden,
       .help = "share of tensor-parallel collectives that products hide",
       .min = 0,
       .max = 1},
      {.name = "gradient-bytes",
       .value = &t.gradient_bytes,
       .help = "of an element of a gradient on the wire",
       .min = 1,
       .max = 8},
      {.name = "parameter-bytes",
       .value = &t.parameter_bytes,
       .help = "of an element of a parameter on the wire",
       .min = 1,
       .max = 8},
      {.name = "overlaps-gradients",
       .value = &t.overlaps_gradients,
       .help = "data-parallel collectives run beside the last backward"},
      {.name = "reduces-all", .value = &t.reduces_all, .help = "ZeRO-1 all-reduces its gradients"},
      {.name = "broadcasts",
       .value = &t.broadcasts,
       .help = "ZeRO-1: every rank broadcasts its share of the parameters after the update, beside nothing"},
      {.name = "messages",
       .value = &t.messages,
       .help = "what one data-parallel collective carries: a bucket (under ZeRO 2 and 3 a layer) or a parameter",
       .choices = {"buckets", "tensors"}},
      {.name = "bucket-bytes", .value = &t.bucket_bytes, .help = "of gradients in a bucket", .min = 1e3, .max = 1e12},
      {.name = "compute-factor",
       .value = &t.compute_factor,
       .help = "fitted: of compute time, against the device's calibration",
       .min = 0.01,
       .max = 100},
      {.name = "communication-factor",
       .value = &t.communication_factor,
       .help = "fitted: of communication's time",
       .min = 0.01,
       .max = 100},
  };
}

std::vector<TrainerTraits> parse_trainers(const std::string& toml, const std::string& where) {
  const TomlTable top(toml, where);
  top.read({}, {"trainer"});
  std::vector<TrainerTraits> all;
  for (const auto& [name, table] : top.named_tables("trainer")) {
    TrainerTraits traits;
    traits.name = name;
    table.read(fields(traits));
    all.push_back(std::move(traits));
  }
  return all;
}

std::vector<TrainerTraits> published_trainers() {
  constexpr ConfigKind kTrainers{.folder = "trainers", .suffix = ".toml"};
  const auto file = find_config(kTrainers, "published");
  if (!file)
    fail(ErrorKind::usage,
         "configs/trainers/published.toml: expected the traits of published trainers, found no such "
         "file above the executable or in RANKWRIGHT_CONFIGS");
  std::ifstream in(*file);
  return parse_trainers({std::istreambuf_iterator<char>(in), {}}, file->string());
}

const TrainerTraits& trainer_named(const std::vector<TrainerTraits>& all, const std::string& name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const TrainerTraits& t) { return t.name == name; });
  if (at == all.end()) fail(ErrorKind::usage, "trainer {}: expected one of those in published.toml, found none", name);
  return *at;
}

}  // namespace rw
