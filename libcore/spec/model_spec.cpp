#include "libcore/spec/model_spec.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/base/error.h"
#include "libcore/base/log.h"

// Key names and the values of absent keys are those of transformers' configuration classes for gpt2, llama and qwen2.
namespace rw {

namespace {

// Ceilings far above any model that exists and low enough that no product of two sizes leaves int64.
constexpr int64_t kMaxVocab = int64_t{1} << 30, kMaxWidth = int64_t{1} << 24, kMaxLayers = int64_t{1} << 16;
constexpr int64_t kMaxHeads = int64_t{1} << 16, kMaxHeadDim = int64_t{1} << 16, kMaxFfn = int64_t{1} << 26;
constexpr int64_t kMaxPosition = int64_t{1} << 31;
constexpr double kMaxParams = 1e15;

// One config.json object (or one object inside it), with the file's name for messages.
struct Source {
  const Json& config;
  std::string where;

  bool has(const char* key) const {
    const auto it = config.find(key);
    return it != config.end() && !it->is_null();
  }
  const Json* object(const char* key) const {
    if (!has(key)) return nullptr;
    const Json& value = *config.find(key);
    if (!value.is_object())
      fail(ErrorKind::input, "{}: key \"{}\": expected an object or null, found a JSON {}", where, key,
           value.type_name());
    return &value;
  }
  double number(const char* key, double otherwise) const { return json_number(config, key, where, otherwise); }
  bool flag(const char* key, bool otherwise) const { return json_bool(config, key, where, otherwise); }
  std::string text(const char* key, const char* otherwise) const {
    return json_string(config, key, where, std::string(otherwise));
  }

  // A size in [1, max]. gpt2 files use the first name or the second.
  int64_t size(const char* key, const char* other_key, int64_t max, int64_t otherwise) const {
    const char* used = has(key) || other_key == nullptr ? key : other_key;
    const int64_t value = json_int(config, used, where, otherwise);
    if (value < 1 || value > max)
      fail(ErrorKind::input, "{}: key \"{}\": expected an integer from 1 to {}, found {}; is the file damaged?", where,
           used, max, value);
    return value;
  }
  int64_t size(const char* key, int64_t max, int64_t otherwise) const { return size(key, nullptr, max, otherwise); }

  double positive(const char* key, double otherwise) const {
    const double value = number(key, otherwise);
    if (!(value > 0) || !std::isfinite(value))
      fail(ErrorKind::input, "{}: key \"{}\": expected a number above 0, found {}", where, key, value);
    return value;
  }

  void refuse_unless(bool computed, const char* key, const std::string& expected, const std::string& found) const {
    if (!computed)
      fail(ErrorKind::input,
           "{}: key \"{}\": expected {}, found {}; this model is not supported, use one that differs here", where, key,
           expected, found);
  }
};

// The token ids under a key, without negative ones and those the vocabulary does not hold: transformers writes a
// family's customary id into the file of a model with a small vocabulary.
std::vector<int64_t> special_ids(const Source& in, const char* key, int64_t otherwise, int64_t vocab_size) {
  std::vector<int64_t> ids;
  const auto it = in.config.find(key);
  if (it == in.config.end()) {
    if (otherwise >= 0 && otherwise < vocab_size) ids.push_back(otherwise);
    return ids;
  }
  for (const Json& one : it->is_array() ? *it : Json::array({*it})) {
    const int64_t id = json_int(Json{{key, one}}, key, in.where, -1);
    if (id >= vocab_size)
      log_info("{}: {} = {} is outside the vocabulary of {} tokens and is taken as none", in.where, key, id,
               vocab_size);
    if (id >= 0 && id < vocab_size) ids.push_back(id);
  }
  return ids;
}

void read_special_ids(const Source& in, ModelSpec& spec, int64_t bos, int64_t eos) {
  const std::vector<int64_t> starts = special_ids(in, "bos_token_id", bos, spec.vocab_size);
  if (!starts.empty()) spec.bos_id = starts.front();
  const std::vector<int64_t> ends = special_ids(in, "eos_token_id", eos, spec.vocab_size);
  if (ends.empty()) return;
  spec.eos_id = ends.front();
  spec.other_eos_ids.assign(ends.begin() + 1, ends.end());
}

void note_dropout(const Source& in, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const double p = in.number(key, 0.0); p != 0.0)
      log_info("{}: {} = {} is ignored: training uses no dropout", in.where, key, p);
}

void read_rope(const Source& in, ModelSpec& spec) {
  // Newer files hold everything in rope_parameters; older ones have rope_theta beside an optional rope_scaling.
  const Json* scaling = in.object("rope_scaling");
  if (scaling == nullptr || scaling->empty()) scaling = in.object("rope_parameters");
  const Json none = Json::object();
  const Source rope{scaling != nullptr ? *scaling : none, in.where + " (rope settings)"};

  spec.rope_theta = rope.has("rope_theta") ? rope.positive("rope_theta", 0) : in.positive("rope_theta", 10000.0);
  const double partial = rope.number("partial_rotary_factor", in.number("partial_rotary_factor", 1.0));
  rope.refuse_unless(partial == 1.0, "partial_rotary_factor", "1", fmt::format("{}", partial));

  const std::string type = rope.text("rope_type", rope.text("type", "default").c_str());
  if (type == "default") return;
  rope.refuse_unless(type == "llama3" || type == "linear", "rope_type", "default, llama3 or linear", type);
  json_number(rope.config, "factor", rope.where);  // required here
  spec.rope_factor = rope.positive("factor", 0);
  if (type == "linear") {
    spec.rope_scaling = RopeScaling::linear;
    return;
  }
  spec.rope_scaling = RopeScaling::llama3;
  spec.rope_low_freq = rope.positive("low_freq_factor", spec.rope_low_freq);
  spec.rope_high_freq = rope.positive("high_freq_factor", spec.rope_high_freq);
  if (spec.rope_high_freq <= spec.rope_low_freq)
    fail(ErrorKind::input, "{}: key \"high_freq_factor\": expected more than low_freq_factor = {}, found {}",
         rope.where, spec.rope_low_freq, spec.rope_high_freq);
  spec.rope_original_max_position = rope.size("original_max_position_embeddings", kMaxPosition, spec.max_position);
}

// qwen2's window: only one that hides nothing within max_position is full attention.
void refuse_window_that_binds(const Source& in, const ModelSpec& spec) {
  if (!in.flag("use_sliding_window", false)) return;
  const int64_t window = in.size("sliding_window", kMaxPosition, 4096);
  bool used = json_int(in.config, "max_window_layers", in.where, 28) < spec.layers;
  if (in.has("layer_types")) {
    const Json& types = *in.config.find("layer_types");
    used = !types.is_array();
    if (types.is_array())
      for (const Json& type : types) used = used || type != "full_attention";
  }
  in.refuse_unless(
      !used || window >= spec.max_position, "use_sliding_window",
      fmt::format("false, or a sliding_window of at least max_position_embeddings = {}", spec.max_position),
      fmt::format("true with sliding_window {}", window));
}

int64_t exact_head_dim(const Source& in, const char* width_key, const ModelSpec& spec) {
  if (spec.width % spec.heads != 0)
    fail(ErrorKind::input,
         "{}: key \"{}\": expected a multiple of the {} attention heads, found {}; change one of the two", in.where,
         width_key, spec.heads, spec.width);
  return spec.width / spec.heads;
}

ModelSpec parse_gpt2(const Source& in) {
  ModelSpec s;
  s.family = Family::gpt2;
  s.vocab_size = in.size("vocab_size", kMaxVocab, 50257);
  s.width = in.size("n_embd", "hidden_size", kMaxWidth, 768);
  s.layers = in.size("n_layer", "num_hidden_layers", kMaxLayers, 12);
  s.heads = in.size("n_head", "num_attention_heads", kMaxHeads, 12);
  s.kv_heads = s.heads;
  s.head_dim = exact_head_dim(in, "n_embd", s);
  s.ffn = in.size("n_inner", kMaxFfn, 4 * s.width);
  s.max_position = in.size("n_positions", "max_position_embeddings", kMaxPosition, 1024);
  s.norm_eps = in.positive("layer_norm_epsilon", 1e-5);
  s.qkv_bias = s.out_bias = s.mlp_bias = true;
  s.tied_head = in.flag("tie_word_embeddings", true);
  const std::string act = in.text("activation_function", "gelu_new");
  in.refuse_unless(act == "gelu_new" || act == "gelu_pytorch_tanh", "activation_function", "gelu_new (the tanh form)",
                   act);
  in.refuse_unless(in.flag("scale_attn_weights", true), "scale_attn_weights", "true", "false");
  in.refuse_unless(!in.flag("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx", "false",
                   "true");
  in.refuse_unless(!in.flag("add_cross_attention", false), "add_cross_attention", "false", "true");
  note_dropout(in, {"resid_pdrop", "embd_pdrop", "attn_pdrop"});
  read_special_ids(in, s, 50256, 50256);
  return s;
}

ModelSpec parse_llama_like(const Source& in, Family family) {
  const bool qwen2 = family == Family::qwen2;
  ModelSpec s;
  s.family = family;
  s.vocab_size = in.size("vocab_size", kMaxVocab, qwen2 ? 151936 : 32000);
  s.width = in.size("hidden_size", kMaxWidth, 4096);
  s.layers = in.size("num_hidden_layers", kMaxLayers, 32);
  s.heads = in.size("num_attention_heads", kMaxHeads, 32);
  // A null, unlike an absent key, means as many as heads in qwen2 too; absent there is 32.
  const bool says_kv_heads = in.config.contains("num_key_value_heads");
  s.kv_heads = in.size("num_key_value_heads", kMaxHeads, qwen2 && !says_kv_heads ? 32 : s.heads);
  if (s.heads % s.kv_heads != 0)
    fail(ErrorKind::input, "{}: key \"num_key_value_heads\": expected a divisor of num_attention_heads = {}, found {}",
         in.where, s.heads, s.kv_heads);
  s.head_dim = in.size("head_dim", kMaxHeadDim, exact_head_dim(in, "hidden_size", s));
  if (s.head_dim % 2 != 0)
    fail(ErrorKind::input, "{}: key \"head_dim\": expected an even number (rotary embedding turns pairs), found {}",
         in.where, s.head_dim);
  s.ffn = in.size("intermediate_size", kMaxFfn, qwen2 ? 22016 : 11008);
  s.max_position = in.size("max_position_embeddings", kMaxPosition, qwen2 ? 32768 : 2048);
  s.norm_eps = in.positive("rms_norm_eps", 1e-6);
  s.qkv_bias = qwen2 || in.flag("attention_bias", false);
  s.out_bias = !qwen2 && s.qkv_bias;
  s.mlp_bias = !qwen2 && in.flag("mlp_bias", false);
  s.tied_head = in.flag("tie_word_embeddings", false);
  read_rope(in, s);
  const std::string act = in.text("hidden_act", "silu");
  in.refuse_unless(act == "silu" || act == "swish", "hidden_act", "silu", act);
  if (qwen2) refuse_window_that_binds(in, s);
  note_dropout(in, {"attention_dropout"});
  read_special_ids(in, s, qwen2 ? -1 : 1, qwen2 ? -1 : 2);
  return s;
}

// The sizes are each within bounds; their products must be too, before anyone multiplies them as int64.
void refuse_absurd_total(const ModelSpec& s, const std::string& where) {
  const double c = static_cast<double>(s.width), q = static_cast<double>(s.heads) * static_cast<double>(s.head_dim);
  const double per_layer = c * (4 * q + 3 * static_cast<double>(s.ffn));
  const double embeddings =
      2 * static_cast<double>(s.vocab_size) + (s.learned_position() ? static_cast<double>(s.max_position) : 0);
  const double total = c * embeddings + static_cast<double>(s.layers) * per_layer;
  if (total > kMaxParams)
    fail(ErrorKind::input,
         "{}: expected a model of at most {:.0e} parameters, found about {:.1e}; check width, layers and ffn", where,
         kMaxParams, total);
}

}  // namespace

const char* family_name(Family f) {
  switch (f) {
    case Family::gpt2: return "gpt2";
    case Family::llama: return "llama";
    case Family::qwen2: return "qwen2";
  }
  return "?";
}

ModelSpec parse_model_spec(const Json& config, const std::string& where) {
  if (!config.is_object())
    fail(ErrorKind::input, "{}: expected the JSON object of a Hugging Face config.json, found a JSON {}", where,
         config.type_name());
  const Source in{config, where};
  const std::string type = json_string(config, "model_type", where);
  std::optional<ModelSpec> spec;
  for (Family family : {Family::gpt2, Family::llama, Family::qwen2})
    if (type == family_name(family)) spec = family == Family::gpt2 ? parse_gpt2(in) : parse_llama_like(in, family);
  in.refuse_unless(spec.has_value(), "model_type", "gpt2, llama or qwen2", "\"" + type + "\"");
  in.refuse_unless(!in.has("quantization_config"), "quantization_config", "none (f32, f16 or bf16 weights)", "one");
  spec->init_std = in.number("initializer_range", 0.02);
  if (!(spec->init_std >= 0 && spec->init_std <= 1))
    fail(ErrorKind::input, "{}: key \"initializer_range\": expected a number from 0 to 1, found {}", where,
         spec->init_std);
  refuse_absurd_total(*spec, where);
  return *spec;
}

}  // namespace rw
