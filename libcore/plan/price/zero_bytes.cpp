#include "libcore/plan/price/zero_bytes.h"

#include "libcore/plan/memory/rank_params.h"

namespace rw {
namespace {

double packed(const Work& update) {
  double bytes = 0;
  for (const OpCall& call : update.ops)
    if (call.op == "gemm_pack")
      bytes += static_cast<double>(call.calls) * (call.cost.bytes_read + call.cost.bytes_written);
  return bytes;
}

// How often all forms of a block are packed in a micro-batch.
double packings(const Layout& layout, const Ops& backend) {
  const bool one_copy = backend.packed_bytes({.packed = nullptr,
                                              .b = nullptr,
                                              .n = 1,
                                              .k = 1,
                                              .b_trans = Trans::no,
                                              .src_t = DType::f32,
                                              .t = DType::bf16},
                                             {}) == 0;
  if (one_copy) return 2;
  return layout.recompute == Recompute::full ? 1.5 : 1;
}

}  // namespace

ZeroBytes zero_bytes(const ZeroTerms& terms, int64_t stage) {
  const Layout& l = terms.layout;
  const auto m = static_cast<double>(l.micro_batches());
  const auto layers = static_cast<double>(RankParams::stage_layers(l, stage));
  const bool head = stage + 1 == l.pp;
  ZeroBytes bytes;
  const double block = layers * packed(terms.work.layer_update);
  bytes.packing = l.zero == 3 ? block * m * packings(l, terms.backend) : block;
  if (stage == 0) bytes.packing += packed(terms.work.embedding_update);
  if (head) bytes.packing += packed(terms.work.head_update);
  if (l.zero < 2) return bytes;

  double elements = 0;
  RankParams(terms.model, l.tp).each_group(l, stage, [&](const GroupParams& g, int64_t n) {
    elements += static_cast<double>(n * g.elements);
  });
  // The first is copied, the others are added, in f32.
  constexpr double kCopied = 8, kAdded = 12;
  bytes.sums = elements / static_cast<double>(zero_ranks(l, terms.ranks_per_node)) * (kCopied + kAdded * (m - 1));
  return bytes;
}

}  // namespace rw
