// What a model is: read from a Hugging Face config.json, written back to one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

enum class Family { gpt2, llama, qwen2 };
enum class RopeScaling { none, llama3, linear };

struct ModelSpec {
  Family family = Family::llama;
  int64_t vocab_size = 0;    // V
  int64_t width = 0;         // C
  int64_t layers = 0;        // L
  int64_t heads = 0;         // H
  int64_t kv_heads = 0;      // Hkv
  int64_t head_dim = 0;      // D
  int64_t ffn = 0;           // F
  int64_t max_position = 0;  // longest sequence
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1.0, rope_low_freq = 1.0, rope_high_freq = 4.0;
  int64_t rope_original_max_position = 0;
  bool qkv_bias = false;  // qwen2, gpt2, llama with attention_bias
  bool out_bias = false;  // gpt2, llama with attention_bias
  bool mlp_bias = false;  // gpt2, llama with mlp_bias
  bool tied_head = false;
  double init_std = 0.02;
  int64_t bos_id = -1, eos_id = -1;    // -1: none
  std::vector<int64_t> other_eos_ids;  // further ids that end a text (llama 3.1 has three)

  bool layer_norm() const { return family == Family::gpt2; }
  bool learned_position() const { return family == Family::gpt2; }
  bool gated_mlp() const { return family != Family::gpt2; }
  bool ends_text(int64_t id) const {
    return (id >= 0 && id == eos_id) ||
           std::find(other_eos_ids.begin(), other_eos_ids.end(), id) != other_eos_ids.end();
  }
  bool operator==(const ModelSpec&) const = default;
};

const char* family_name(Family f);

// From config.json's content, with transformers' defaults for absent keys; Error{input} names `where`, the key, what
// was expected and found. Refuses what we do not compute (an unknown model_type, another activation or rope scaling, a
// sliding window that binds, quantised weights) and sizes whose products leave int64. Dropout, and a bos or eos id
// outside the vocabulary, are ignored with a note in the log.
ModelSpec parse_model_spec(const Json& config, const std::string& where);
// `path` is a config.json, a directory that holds one, or the name of one in $RANKWRIGHT_CONFIGS/models or, without
// that variable, in configs/models or share/rankwright/configs/models of a folder above the executable ("gpt2-124m").
ModelSpec load_model_spec(const std::filesystem::path& path);
// A config.json that transformers reads back to the same model. It names no dtype: whoever writes the weights adds
// that.
Json model_config_json(const ModelSpec& spec);
// Hash (16 hex digits) of everything that changes a parameter's shape or the function computed: not the initial values,
// the special ids, or the longest sequence of a model without learned positions.
std::string model_identity(const ModelSpec& spec);

}  // namespace rw
