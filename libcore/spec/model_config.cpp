// The way back: a ModelSpec as config.json, and as one hash.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "libcore/base/hash.h"
#include "libcore/spec/model_spec.h"

namespace rw {

namespace {

Json id_or_null(int64_t id) { return id < 0 ? Json(nullptr) : Json(id); }

// rope_theta and rope_scaling beside it, the spelling that every version of transformers reads.
void write_rope(const ModelSpec& s, Json& config) {
  config["rope_theta"] = s.rope_theta;
  switch (s.rope_scaling) {
    case RopeScaling::none: config["rope_scaling"] = nullptr; break;
    case RopeScaling::linear: config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", s.rope_factor}}; break;
    case RopeScaling::llama3:
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", s.rope_factor},
                                {"low_freq_factor", s.rope_low_freq},
                                {"high_freq_factor", s.rope_high_freq},
                                {"original_max_position_embeddings", s.rope_original_max_position}};
      break;
  }
}

Json gpt2_config(const ModelSpec& s) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", s.vocab_size},
          {"n_positions", s.max_position},
          {"n_embd", s.width},
          {"n_layer", s.layers},
          {"n_head", s.heads},
          {"n_inner", s.ffn},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", s.norm_eps},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0}};
}

Json llama_like_config(const ModelSpec& s) {
  const bool qwen2 = s.family == Family::qwen2;
  Json config = {{"architectures", {qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
                 {"model_type", family_name(s.family)},
                 {"vocab_size", s.vocab_size},
                 {"max_position_embeddings", s.max_position},
                 {"hidden_size", s.width},
                 {"intermediate_size", s.ffn},
                 {"num_hidden_layers", s.layers},
                 {"num_attention_heads", s.heads},
                 {"num_key_value_heads", s.kv_heads},
                 {"head_dim", s.head_dim},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", s.norm_eps},
                 {"attention_dropout", 0.0}};
  if (qwen2) {
    config["use_sliding_window"] = false;
  } else {
    config["attention_bias"] = s.qkv_bias;
    config["mlp_bias"] = s.mlp_bias;
  }
  write_rope(s, config);
  return config;
}

}  // namespace

Json model_config_json(const ModelSpec& s) {
  Json config = s.family == Family::gpt2 ? gpt2_config(s) : llama_like_config(s);
  config["initializer_range"] = s.init_std;
  config["tie_word_embeddings"] = s.tied_head;
  config["bos_token_id"] = id_or_null(s.bos_id);
  config["eos_token_id"] = id_or_null(s.eos_id);
  if (!s.other_eos_ids.empty()) {
    config["eos_token_id"] = Json::array({s.eos_id});
    for (int64_t id : s.other_eos_ids) config["eos_token_id"].push_back(id);
  }
  return config;
}

std::string model_identity(const ModelSpec& s) {
  std::string text = fmt::format("{} V{} C{} L{} H{} Hkv{} D{} F{} eps{} bias{:d}{:d}{:d} tied{:d}",
                                 family_name(s.family), s.vocab_size, s.width, s.layers, s.heads, s.kv_heads,
                                 s.head_dim, s.ffn, s.norm_eps, s.qkv_bias, s.out_bias, s.mlp_bias, s.tied_head);
  if (s.learned_position()) {
    text += fmt::format(" positions{}", s.max_position);
  } else {
    text += fmt::format(" theta{} scaling{}", s.rope_theta, static_cast<int>(s.rope_scaling));
    if (s.rope_scaling != RopeScaling::none) text += fmt::format(" factor{}", s.rope_factor);
    if (s.rope_scaling == RopeScaling::llama3)
      text += fmt::format(" {} {} {}", s.rope_low_freq, s.rope_high_freq, s.rope_original_max_position);
  }
  return hex64(hash64(text));
}

}  // namespace rw
