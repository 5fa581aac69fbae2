#include "libcore/plan/memory/rank_params.h"

#include <algorithm>
#include <string>

#include "libcore/model/param_layout.h"
#include "libcore/train/shards.h"

namespace rw {

RankParams::RankParams(const ModelSpec& model, int64_t tp, int64_t shard) : tied(model.tied_head) {
  ModelSpec one = model;
  one.layers = 1;
  ModelPart part = whole_model(one);
  part.tp = {.size = tp, .rank = 0};
  const ParamLayout layout(one, part);
  const auto of = [&](GroupKind kind) -> GroupParams& {
    switch (kind) {
      case GroupKind::token_embedding: return token;
      case GroupKind::position_embedding: return position;
      case GroupKind::block: return block;
      case GroupKind::final_norm: return final_norm;
      case GroupKind::head: break;
    }
    return head;
  };
  const Shards shards(layout, static_cast<int>(shard), 0);
  for (int64_t g = 0; g < layout.n_groups(); ++g) {
    GroupParams& group = of(layout.group(g).kind);
    group.elements = shards.own(g).n;
    for (const ShardPiece& piece : shards.pieces(g, 0)) {
      const LocalParam& p = layout.params()[piece.param];
      if (p.name.find("norm") != std::string::npos) group.norms += piece.n;
      if (tp_split(p.role) == TpSplit::kv_rows) group.kv += piece.n;
      ++group.params;
    }
  }
}

int64_t RankParams::stage_layers(const Layout& layout, int64_t stage) {
  int64_t n = 0;
  for (int64_t c = 0; c < layout.vpp; ++c) n += layout.stage_layers[static_cast<size_t>(c * layout.pp + stage)];
  return n;
}

double norm_partials(const RankParams& params, const Layout& layout, int64_t stage, int64_t ranks) {
  constexpr double kBlock = 65536;  // elements (grad_norm.cpp)
  double partials = 0;
  params.each_group(layout, stage, [&](const GroupParams& g, int64_t n) {
    // The last stage's copy of a tied embedding is counted on the first.
    if (&g == &params.token && stage > 0) return;
    const auto pieces = static_cast<double>(ranks + g.params - 1);
    const double piece = static_cast<double>(g.elements) / pieces;
    partials += static_cast<double>(n) * pieces * std::max(1.0, piece / kBlock + 0.5);
  });
  return partials;
}

}  // namespace rw
