#include "libcore/spec/param_table.h"

#include <fmt/core.h>

#include <cmath>
#include <string_view>

namespace rw {

namespace {

// What the families' files call the same things.
struct FileNames {
  const char *token_embedding, *position_embedding, *block, *final_norm;
  const char *attn_norm, *out, *mlp_norm, *gate, *up, *down;
};
constexpr FileNames kGpt2Names = {
    .token_embedding = "wte",
    .position_embedding = "wpe",
    .block = "h",
    .final_norm = "ln_f",
    .attn_norm = "ln_1",
    .out = "attn.c_proj",
    .mlp_norm = "ln_2",
    .gate = nullptr,
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
};
constexpr FileNames kLlamaNames = {
    .token_embedding = "model.embed_tokens",
    .position_embedding = nullptr,
    .block = "model.layers",
    .final_norm = "model.norm",
    .attn_norm = "input_layernorm",
    .out = "self_attn.o_proj",
    .mlp_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
};

// Builds the table in memory order; each call adds one parameter.
class Builder {
 public:
  explicit Builder(const ModelSpec& spec)
      : spec_(spec), names_(spec.family == Family::gpt2 ? kGpt2Names : kLlamaNames) {}

  std::vector<Param> build() {
    const int64_t c = spec_.width;
    enter("embed.", "", -1);
    matrix(ParamRole::token_embedding, "token", names_.token_embedding, {spec_.vocab_size, c});
    if (spec_.learned_position())
      matrix(ParamRole::position_embedding, "position", names_.position_embedding, {spec_.max_position, c});
    for (int64_t l = 0; l < spec_.layers; ++l) {
      enter(fmt::format("blocks.{}.", l), fmt::format("{}.{}.", names_.block, l), l);
      attention();
      mlp();
    }
    enter("", "", spec_.layers);
    norm(ParamRole::final_norm_w, ParamRole::final_norm_b, "final_norm", names_.final_norm);
    if (!spec_.tied_head) matrix(ParamRole::head_w, "head", "lm_head", {spec_.vocab_size, c});
    return std::move(table_);
  }

 private:
  using R = ParamRole;

  void enter(std::string prefix, std::string file_prefix, int64_t layer) {
    prefix_ = std::move(prefix);
    file_prefix_ = std::move(file_prefix);
    layer_ = layer;
  }

  // The whole of a file's tensor, as it lies there.
  Param& add(ParamRole role, const std::string& name, const std::string& file_name, const Shape& shape) {
    return table_.emplace_back(Param{.name = prefix_ + name,
                                     .role = role,
                                     .layer = layer_,
                                     .shape = shape,
                                     .file_name = file_prefix_ + file_name,
                                     .file_shape = shape,
                                     .file_box = whole(shape),
                                     .file_transposed = false,
                                     .decay = true,
                                     .init = Init::normal,
                                     .init_std = spec_.init_std});
  }
  Param& matrix(ParamRole role, const std::string& name, const std::string& file_name, const Shape& shape) {
    return add(role, name + ".weight", file_name + ".weight", shape);
  }
  Param& vector(ParamRole role, const std::string& name, const std::string& file_name, int64_t n, Init init) {
    Param& p = add(role, name, file_name, {n});
    p.decay = false;
    p.init = init;
    p.init_std = 0;
    return p;
  }

  void norm(ParamRole w, ParamRole b, const std::string& name, const std::string& file_name) {
    vector(w, name + ".weight", file_name + ".weight", spec_.width, Init::ones);
    if (spec_.layer_norm()) vector(b, name + ".bias", file_name + ".bias", spec_.width, Init::zeros);
  }

  // A linear layer's weight (out, in); gpt2 stores it (in, out).
  Param& linear(ParamRole role, const std::string& name, const std::string& file_name, const Shape& shape) {
    Param& p = matrix(role, name, file_name, shape);
    if (spec_.family == Family::gpt2) {
      p.file_shape = {shape[1], shape[0]};
      p.file_box = whole(p.file_shape);
      p.file_transposed = true;
    }
    return p;
  }
  // One that adds to the residual stream: its std shrinks with the number of such additions (GPT-2, Radford et al.
  // 2019).
  void residual_linear(ParamRole role, const std::string& name, const std::string& file_name, const Shape& shape) {
    linear(role, name, file_name, shape).init_std = spec_.init_std / std::sqrt(2.0 * static_cast<double>(spec_.layers));
  }
  void bias(ParamRole role, const std::string& name, const std::string& file_name, int64_t n) {
    vector(role, name + ".bias", file_name + ".bias", n, Init::zeros);
  }

  void attention() {
    const int64_t c = spec_.width, q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
    norm(R::attn_norm_w, R::attn_norm_b, "attn_norm", names_.attn_norm);
    struct Projection {
      ParamRole w, b;
      const char *name, *file_name;
      int64_t n;
    };
    const Projection projections[] = {{R::q_w, R::q_b, "attn.q", "self_attn.q_proj", q},
                                      {R::k_w, R::k_b, "attn.k", "self_attn.k_proj", kv},
                                      {R::v_w, R::v_b, "attn.v", "self_attn.v_proj", kv}};
    const bool fused = spec_.family == Family::gpt2;  // c_attn (C, 3C) holds q, k and v beside each other
    int64_t first = 0;
    for (const Projection& p : projections) {
      Param& w = linear(p.w, p.name, fused ? "attn.c_attn" : p.file_name, {p.n, c});
      if (fused) {
        w.file_shape = {c, q + 2 * kv};
        w.file_box = {{0, first}, {c, p.n}};
      }
      first += p.n;
    }
    first = 0;
    for (const Projection& p : projections) {
      if (!spec_.qkv_bias) break;
      bias(p.b, p.name, fused ? "attn.c_attn" : p.file_name, p.n);
      if (fused) {
        table_.back().file_shape = {q + 2 * kv};
        table_.back().file_box = {{first}, {p.n}};
      }
      first += p.n;
    }
    residual_linear(R::out_w, "attn.out", names_.out, {c, q});
    if (spec_.out_bias) bias(R::out_b, "attn.out", names_.out, c);
  }

  void mlp() {
    const int64_t c = spec_.width, f = spec_.ffn;
    norm(R::mlp_norm_w, R::mlp_norm_b, "mlp_norm", names_.mlp_norm);
    if (spec_.gated_mlp()) linear(R::gate_w, "mlp.gate", names_.gate, {f, c});
    linear(R::up_w, "mlp.up", names_.up, {f, c});
    if (spec_.mlp_bias && spec_.gated_mlp()) bias(R::gate_b, "mlp.gate", names_.gate, f);
    if (spec_.mlp_bias) bias(R::up_b, "mlp.up", names_.up, f);
    residual_linear(R::down_w, "mlp.down", names_.down, {c, f});
    if (spec_.mlp_bias) bias(R::down_b, "mlp.down", names_.down, c);
  }

  const ModelSpec& spec_;
  const FileNames& names_;
  std::string prefix_, file_prefix_;
  int64_t layer_ = -1;
  std::vector<Param> table_;
};

}  // namespace

std::vector<Param> param_table(const ModelSpec& spec) { return Builder(spec).build(); }

int64_t n_params(const ModelSpec& spec) {
  int64_t n = 0;
  for (const Param& p : param_table(spec)) n += n_elements(p.shape);
  return n;
}

std::vector<std::string> file_name_candidates(const Param& p) {
  constexpr std::string_view kLlamaPrefix = "model.", kGpt2Prefix = "transformer.";
  if (p.role == ParamRole::head_w) return {p.file_name};
  if (p.file_name.starts_with(kLlamaPrefix)) return {p.file_name, p.file_name.substr(kLlamaPrefix.size())};
  return {p.file_name, std::string(kGpt2Prefix) + p.file_name};
}

}  // namespace rw
