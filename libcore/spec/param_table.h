// The param table: the only place that says a parameter's name, shape, where it lies in a Hugging Face file, its
// initial values, and whether it decays.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/spec/box.h"
#include "libcore/spec/model_spec.h"

namespace rw {

// In memory order. q, k, v stand next to each other (one fused product), so do gate and up. gpt2 has up without gate;
// head_w is absent when the head is tied: the head then reads token_embedding.
// clang-format off
enum class ParamRole {
  token_embedding, position_embedding,
  attn_norm_w, attn_norm_b,
  q_w, k_w, v_w, q_b, k_b, v_b, out_w, out_b,
  mlp_norm_w, mlp_norm_b,
  gate_w, up_w, gate_b, up_b, down_w, down_b,
  final_norm_w, final_norm_b, head_w,
};
// clang-format on

enum class Init { normal, zeros, ones };

struct Param {
  std::string name;  // "blocks.3.attn.q.weight", "embed.token.weight", "final_norm.weight", "head.weight"
  ParamRole role;
  int64_t layer;          // 0..L-1, -1 before the blocks, L after them
  Shape shape;            // ours: a linear weight is (out, in)
  std::string file_name;  // the tensor in a Hugging Face file ("h.3.attn.c_attn.weight")
  Shape file_shape;       // its whole shape there
  Box file_box;           // the part of it that is this parameter, in the file's orientation
  bool file_transposed;   // file_box is (in, out): transpose it to get ours
  bool decay;             // weight decay applies (matrices and embeddings, not norms and biases)
  Init init;
  double init_std;  // of Init::normal
};

// All parameters in memory order: embeddings, block 0, ..., block L-1, final norm, head.
std::vector<Param> param_table(const ModelSpec& spec);
int64_t n_params(const ModelSpec& spec);  // tied weights once
// Names an older or prefixed file may use for file_name ("transformer." or "model." in front or missing).
std::vector<std::string> file_name_candidates(const Param& p);

}  // namespace rw
