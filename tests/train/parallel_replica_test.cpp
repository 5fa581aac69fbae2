// A bit that differs between ranks that should hold the same is found, and the rank is named.
#include "libcore/train/replica_check.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/parallel_run.h"

using namespace rw;
using namespace rw::parallel;

namespace {

// What the check says when `rank` has one bit of the first piece of a parameter wrong.
std::string said(const std::string& family, const Layout& layout, int rank, const std::string& param,
                 int64_t per_node = 0) {
  const Case c{.model = family_model(family), .layout = layout, .steps = 1, .ranks_per_node = per_node};
  std::string text;
  train(c, [&](TrainStep& step) {
    CHECK(replica_difference(step) == "");
    if (step.mesh().world->rank() == rank) {
      bool found = false;
      if (step.weights().sharded()) {
        for (const ShardPiece& piece : step.shards().own_pieces())
          if (step.layout().params()[piece.param].name == param && !found)
            step.weights().at(piece)[0] += 1e-3f, found = true;
      } else {
        for (const LocalParam& p : step.layout().params())
          if (p.name == param) step.weights().masters()[p.slice.offset] += 1e-3f, found = true;
      }
      CHECK(found);
    }
    const std::string mine = replica_difference(step);
    const std::vector<std::string> all = step.mesh().world->gather_text(mine);
    for (const std::string& other : all) CHECK(other == mine);
    if (step.mesh().world->rank() == 0) text = mine;
  });
  return text;
}

bool names(const std::string& text, const std::string& param, const std::string& rank) {
  CAPTURE(text);
  const bool ok = text.find(param + " ") != std::string::npos && text.find(rank) != std::string::npos;
  CHECK(ok);
  return ok;
}

}  // namespace

TEST_CASE("a replica that differs is named") {
  Layout l = base_layout();
  SUBCASE("data parallelism") {
    l.dp = 4;
    names(said("llama", l, 2, "blocks.3.attn.k.weight"), "blocks.3.attn.k.weight", "rank 2 ");
  }
  SUBCASE("sharded optimizer state") {
    l.dp = 4, l.zero = 1;
    names(said("llama", l, 3, "blocks.8.mlp.down.weight"), "blocks.8.mlp.down.weight", "rank 3 ");
  }
  SUBCASE("a norm on tensor-parallel ranks") {
    l.tp = 4, l.sp = true;
    names(said("gpt2", l, 1, "blocks.0.attn_norm.bias"), "blocks.0.attn_norm.bias", "rank 1 ");
  }
  SUBCASE("a shared key/value head") {
    l.tp = 4;
    names(said("qwen2", l, 3, "blocks.2.attn.v.bias"), "blocks.2.attn.v.bias", "rank 3 ");
  }
  SUBCASE("a tied embedding on the last stage of pipelines") {
    l.pp = 2, l.dp = 2;
    names(said("qwen2", l, 3, "embed.token.weight"), "embed.token.weight", "rank 3 ");
  }
  SUBCASE("weights sharded within nodes") {  // three nodes
    l.dp = 6, l.global_batch = 18, l.zero = 3, l.zero_group = ZeroGroup::node;
    names(said("llama", l, 4, "blocks.5.attn.q.weight", 2), "blocks.5.attn.q.weight", "rank 4 ");
  }
}
