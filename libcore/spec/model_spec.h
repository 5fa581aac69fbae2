// What a model is: read from a Hugging Face config.json, written back to one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "libcore/base/json.h"

namespace rw {

enum class Family { gpt2, llama, qwen2 };
enum class RopeScaling { none, llama3, linear };

struct ModelSpec {
  Family family = Family::llama;
  int64_t vocab_size = 0;        // V
  int64_t width = 0;             // C
  int64_t layers = 0;            // L
  int64_t heads = 0;             // H
  int64_t kv_heads = 0;          // Hkv
  int64_t head_dim = 0;          // D
  int64_t ffn = 0;               // F
  int64_t max_position = 0;      // longest sequence
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1.0, rope_low_freq = 1.0, rope_high_freq = 4.0;
  int64_t rope_original_max_position = 0;
  bool qkv_bias = false;         // qwen2, gpt2, llama with attention_bias
  bool out_bias = false;         // gpt2, llama with attention_bias
  bool mlp_bias = false;         // gpt2, llama with mlp_bias
  bool tied_head = false;
  double init_std = 0.02;
  int64_t bos_id = -1, eos_id = -1;   // -1: none

  bool layer_norm() const { return family == Family::gpt2; }
  bool learned_position() const { return family == Family::gpt2; }
  bool gated_mlp() const { return family != Family::gpt2; }
  bool operator==(const ModelSpec&) const = default;
};

const char* family_name(Family f);

// From config.json's content; Error{input} names `where`, the key, what was expected and found. Refuses what we do not
// compute (an unknown model_type, another activation, sliding windows that bind, dropout is ignored with a note).
ModelSpec parse_model_spec(const Json& config, const std::string& where);
// `path` is a config.json, a directory that holds one, or the name of one under configs/models ("gpt2-124m").
ModelSpec load_model_spec(const std::filesystem::path& path);
// A config.json that transformers reads back to the same model.
Json model_config_json(const ModelSpec& spec);
// Hash of everything that changes a parameter's shape or the function computed.
std::string model_identity(const ModelSpec& spec);

}  // namespace rw
