#include "libcore/spec/tensor_parallel.h"

#include <fmt/core.h>

namespace rw {
TpSplit tp_split(ParamRole role) {
  using R = ParamRole;
  switch (role) {
    case R::token_embedding:
    case R::head_w:
    case R::q_w:
    case R::q_b:
    case R::gate_w:
    case R::gate_b:
    case R::up_w:
    case R::up_b: return TpSplit::rows;
    case R::k_w:
    case R::k_b:
    case R::v_w:
    case R::v_b: return TpSplit::kv_rows;
    case R::out_w:
    case R::down_w: return TpSplit::columns;
    case R::position_embedding:
    case R::attn_norm_w:
    case R::attn_norm_b:
    case R::out_b:
    case R::mlp_norm_w:
    case R::mlp_norm_b:
    case R::down_b:
    case R::final_norm_w:
    case R::final_norm_b: return TpSplit::whole;
  }
  return TpSplit::whole;
}

int64_t kv_share(const ModelSpec& spec, int64_t tp) { return tp > spec.kv_heads ? tp / spec.kv_heads : 1; }

Box tp_box(const Param& p, const ModelSpec& spec, const TpPlace& place) {
  Box box = whole(p.shape);
  const auto cut = [&](size_t dim, int64_t parts, int64_t part) {
    const int64_t n = p.shape[dim];
    box.offset[dim] = n * part / parts;
    box.extent[dim] = n * (part + 1) / parts - box.offset[dim];
  };
  const int64_t share = kv_share(spec, place.size);
  switch (tp_split(p.role)) {
    case TpSplit::whole: break;
    case TpSplit::rows: cut(0, place.size, place.rank); break;
    case TpSplit::columns: cut(1, place.size, place.rank); break;
    case TpSplit::kv_rows: cut(0, place.size / share, place.rank / share); break;
  }
  return box;
}

bool tp_owner(const Param& p, const ModelSpec& spec, const TpPlace& place) {
  switch (tp_split(p.role)) {
    case TpSplit::whole: return place.rank == 0;
    case TpSplit::kv_rows: return place.rank % kv_share(spec, place.size) == 0;
    case TpSplit::rows:
    case TpSplit::columns: return true;
  }
  return true;
}

VocabRange vocab_range(const ModelSpec& spec, const TpPlace& place) {
  return {spec.vocab_size * place.rank / place.size, spec.vocab_size * (place.rank + 1) / place.size};
}

std::string tp_fault(const ModelSpec& m, int64_t tp) {
  if (m.heads % tp != 0) return fmt::format("--tp {} does not divide the model's {} heads", tp, m.heads);
  if (m.kv_heads % tp != 0 && tp % m.kv_heads != 0)
    return fmt::format("--tp {} neither divides the model's {} key/value heads nor is a multiple of them", tp,
                       m.kv_heads);
  if (m.ffn % tp != 0) return fmt::format("--tp {} does not divide the model's feed-forward width {}", tp, m.ffn);
  if (m.vocab_size < tp) return fmt::format("--tp {} is more than the model's {} tokens", tp, m.vocab_size);
  return "";
}

}  // namespace rw
