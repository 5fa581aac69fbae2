// What the layout flags settle to, and every rule that refuses them.
#include "libcore/spec/layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/spec/tensor_parallel.h"
#include "libcore/spec/train_spec.h"

using namespace rw;

namespace {

ModelSpec small_model() {
  return {.vocab_size = 1000,
          .width = 64,
          .layers = 12,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 8,
          .ffn = 160,
          .max_position = 512};
}

TrainSpec spec_of(int64_t tp, int64_t pp) {
  TrainSpec s;
  s.tp = tp;
  s.pp = pp;
  s.micro_batch = 2;
  return s;
}

std::string refusal(const TrainSpec& spec, const ModelSpec& model, int64_t ranks) {
  try {
    settle_layout(spec, model, ranks);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Expects a refusal that has all these parts.
void check_refused(const TrainSpec& spec, int64_t ranks, const std::vector<std::string>& parts) {
  const std::string text = refusal(spec, small_model(), ranks);
  for (const std::string& part : parts) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(has(text, part));
  }
}

}  // namespace

TEST_CASE("the defaults: all ranks are replicas") {
  TrainSpec spec;
  const Layout l = settle_layout(spec, small_model(), 6);
  CHECK(l.tp == 1);
  CHECK(l.pp == 1);
  CHECK(l.dp == 6);
  CHECK(l.ranks() == 6);
  CHECK(l.seq_len == 512);  // the model's longest
  CHECK(l.micro_batch == 8);
  CHECK(l.global_batch == 48);
  CHECK(l.micro_batches() == 1);
  CHECK(l.stage_layers == std::vector<int64_t>{12});
  CHECK(l.recompute_layers == 0);
  CHECK(l.text() == "tp 1 x pp 1 x dp 6");
}

TEST_CASE("what is asked for is kept, what is open is filled in") {
  TrainSpec spec = spec_of(4, 3);
  spec.vpp = 2;
  spec.sp = true;
  spec.zero = 2;
  spec.zero_group = "node";
  spec.recompute = "selective";
  spec.schedule = "interleaved";
  spec.seq_len = 100;
  const Layout l = settle_layout(spec, small_model(), 24);
  CHECK(l.dp == 2);
  CHECK(l.sp);
  CHECK(l.zero == 2);
  CHECK(l.zero_group == ZeroGroup::node);
  CHECK(l.recompute == Recompute::selective);
  CHECK(l.schedule == ScheduleKind::interleaved);
  CHECK(l.seq_len == 100);
  CHECK(l.global_batch == 12);  // as many micro-batches as stages
  CHECK(l.micro_batches() == 3);
  const PipelineShape shape = l.pipeline();
  CHECK(shape.stages == 3);
  CHECK(shape.chunks == 2);
  CHECK(shape.micro_batches == 3);
  CHECK(l.text() == "tp 4 x pp 3 x vpp 2 (interleaved) x dp 2, sp, zero 2 within nodes, recompute selective");
  CHECK(std::accumulate(l.stage_layers.begin(), l.stage_layers.end(), int64_t{0}) == 12);
  spec.zero_group = "all";
  spec.recompute = "full";
  CHECK(settle_layout(spec, small_model(), 24).text() ==
        "tp 4 x pp 3 x vpp 2 (interleaved) x dp 2, sp, zero 2, recompute full");
  spec.dp = "2";
  CHECK(settle_layout(spec, small_model(), 24).dp == 2);
}

TEST_CASE("layers of a stage's chunks follow each other through the virtual stages") {
  TrainSpec spec = spec_of(1, 2);
  spec.vpp = 2;
  spec.stage_layers = "2,5,4,1";
  const Layout l = settle_layout(spec, small_model(), 2);
  CHECK(l.stage_layers == std::vector<int64_t>{2, 5, 4, 1});
  const int64_t expected[2][2][2] = {{{0, 2}, {7, 11}}, {{2, 7}, {11, 12}}};  // (stage)(chunk)
  for (int64_t stage = 0; stage < 2; ++stage)
    for (int64_t chunk = 0; chunk < 2; ++chunk) {
      CHECK(l.layers_of(stage, chunk).begin == expected[stage][chunk][0]);
      CHECK(l.layers_of(stage, chunk).end == expected[stage][chunk][1]);
    }
  CHECK_THROWS(l.layers_of(2, 0));
  CHECK_THROWS(l.layers_of(0, 2));
}

TEST_CASE("recompute covers the first layers of each stage, all of them when nothing is said") {
  TrainSpec spec = spec_of(1, 2);
  spec.recompute = "full";
  spec.stage_layers = "5,7";
  CHECK(settle_layout(spec, small_model(), 2).recompute_layers == 7);
  spec.recompute_layers = 3;
  CHECK(settle_layout(spec, small_model(), 2).recompute_layers == 3);
  spec.recompute_layers = 100;
  CHECK(settle_layout(spec, small_model(), 2).recompute_layers == 7);
}

TEST_CASE("tp: heads, key/value heads, feed-forward width") {
  check_refused(spec_of(3, 1), 6,
                {"--tp 3 does not divide the model's 8 heads", "work on 6 ranks: tp 2 x pp 1 x dp 3"});
  check_refused(spec_of(16, 1), 16, {"--tp 16 does not divide the model's 8 heads", "tp 8 x pp 1 x dp 2"});
  ModelSpec model = small_model();
  model.heads = 12;
  model.kv_heads = 6;
  CHECK(has(refusal(spec_of(4, 1), model, 4), "--tp 4 neither divides the model's 6 key/value heads"));
  const std::string text = refusal(spec_of(12, 1), model, 12);
  CHECK(has(text,
            "--tp 12 does not divide the model's feed-forward width 160; the nearest layouts that work on 12 ranks: "
            "tp 2 x pp 1 x dp 6, "));
  model.ffn = 144;
  CHECK(refusal(spec_of(12, 1), model, 12) == "");
  model.vocab_size = 5;
  CHECK(has(refusal(spec_of(6, 1), model, 6), "--tp 6 is more than the model's 5 tokens"));
}

TEST_CASE("kv heads are shared where there are fewer of them than tp") {
  const ModelSpec model = small_model();  // 2
  CHECK(kv_share(model, settle_layout(spec_of(1, 1), model, 1).tp) == 1);
  CHECK(kv_share(model, settle_layout(spec_of(2, 1), model, 2).tp) == 1);
  CHECK(kv_share(model, settle_layout(spec_of(4, 1), model, 4).tp) == 2);
  CHECK(kv_share(model, settle_layout(spec_of(8, 1), model, 8).tp) == 4);
}

TEST_CASE("ranks are tp x pp x dp") {
  check_refused(
      spec_of(2, 2), 6,
      {"--tp 2 x --pp 2 = 4 does not divide the number of ranks, 6", "tp 2 x pp 3 x dp 1", "tp 2 x pp 1 x dp 3"});
  TrainSpec spec = spec_of(2, 2);
  spec.dp = "3";
  check_refused(spec, 8, {"--tp 2 x --pp 2 x --dp 3 = 12, but there are 8 ranks", "--dp auto", "tp 2 x pp 2 x dp 2"});
  spec.dp = "none";
  check_refused(spec, 8, {"--dp: expected auto or a whole number of at least 1, found \"none\""});
  spec.dp = "0";
  check_refused(spec, 8, {"--dp: expected auto"});
  spec.dp = "2x";
  check_refused(spec, 8, {"--dp: expected auto"});
}

TEST_CASE("a prime number of ranks that the model cannot use") {
  TrainSpec spec = spec_of(13, 1);
  spec.sp = true;
  check_refused(spec, 13, {"does not divide the model's 8 heads", "no layout of 13 ranks fits"});
}

TEST_CASE("layers >= pp x vpp") {
  check_refused(spec_of(1, 16), 16,
                {"--pp 16 x --vpp 1 = 16 stages are more than the model's 12 layers", "tp 1 x pp 8 x dp 2"});
  TrainSpec spec = spec_of(1, 4);
  spec.vpp = 4;
  check_refused(spec, 8, {"--pp 4 x --vpp 4 = 16 stages", "tp 1 x pp 4 x vpp 3 x dp 2"});
  spec.vpp = 3;
  CHECK(refusal(spec, small_model(), 8) == "");
}

TEST_CASE("the layouts that an error names do work") {
  // Each rule broken in turn; the names are read back and settled.
  for (const auto& [tp, pp, ranks] :
       {std::array<int64_t, 3>{3, 1, 12}, {2, 16, 32}, {5, 7, 24}, {1, 1, 48}, {16, 2, 64}}) {
    TrainSpec spec = spec_of(tp, pp);
    if (tp == 1) spec.dp = "7";
    std::string text = refusal(spec, small_model(), ranks);
    REQUIRE(has(text, "layouts that work"));
    int n = 0;
    for (size_t at = text.find(": tp"); at != std::string::npos; at = text.find(", tp", at + 1), ++n) {
      TrainSpec named = spec;
      long long t = 0, p = 0, d = 0;
      REQUIRE(std::sscanf(text.c_str() + at + 2, "tp %lld x pp %lld x dp %lld", &t, &p, &d) == 3);
      named.tp = t;
      named.pp = p;
      named.dp = std::to_string(d);
      CHECK(refusal(named, small_model(), ranks) == "");
    }
    CHECK(n >= 1);
  }
}

TEST_CASE("options that belong together") {
  TrainSpec spec = spec_of(1, 2);
  spec.sp = true;
  check_refused(spec, 2, {"--sp", "--tp is 1"});
  spec = spec_of(1, 2);
  spec.schedule = "interleaved";
  check_refused(spec, 2, {"--schedule interleaved", "--vpp is 1"});
  spec = spec_of(1, 2);
  spec.zero_group = "node";
  check_refused(spec, 2, {"--zero-group node", "--zero is 0"});
  spec = spec_of(1, 2);
  spec.recompute_layers = 2;
  check_refused(spec, 2, {"--recompute-layers 2", "give --recompute"});
  spec = spec_of(1, 2);
  spec.schedule = "2f2b";
  check_refused(spec, 2, {"--schedule: expected one of gpipe, 1f1b, interleaved, zb-h1, found \"2f2b\""});
}

TEST_CASE("stage-layers") {
  TrainSpec spec = spec_of(1, 4);
  const auto refused = [&](const char* layers, const std::vector<std::string>& parts) {
    spec.stage_layers = layers;
    check_refused(spec, 4, parts);
  };
  refused("3,3,3", {"has 3 entries with 9 layers", "expected --pp x --vpp = 4 x 1 = 4 entries", "12 layers, like "});
  refused("3,3,3,4", {"has 4 entries with 13 layers", "add up to the model's 12 layers"});
  refused("6,6,0,0", {"numbers of layers of at least 1", "found \"0\""});
  refused("3,3,3,", {"found \"\""});
  refused("3,3,3,-3", {"found \"-3\""});
  refused("3 3 3 3", {"found \"3 3 3 3\""});
  refused("3,3,3,99999999999999999999", {"found \"99999999999999999999\""});
  spec.stage_layers = "1,1,1,9";
  CHECK(settle_layout(spec, small_model(), 4).stage_layers == std::vector<int64_t>{1, 1, 1, 9});
}

TEST_CASE("the global batch is micro-batch x dp x a number of micro-batches") {
  TrainSpec spec = spec_of(1, 2);
  spec.global_batch = 10;
  CHECK(refusal(spec, small_model(), 8) ==
        "--global-batch = 10 is not divisible by --micro-batch x dp = 2 x 4 = 8; the nearest that fit are 8 and 16");
  spec.global_batch = 3;
  CHECK(has(refusal(spec, small_model(), 8), "the least that fits is 8"));
  spec.global_batch = 24;
  CHECK(settle_layout(spec, small_model(), 8).micro_batches() == 3);
  spec.vpp = 2;
  spec.schedule = "interleaved";
  CHECK(refusal(spec, small_model(), 8) ==
        "--global-batch = 24 makes 3 micro-batches of a pipeline (micro-batch 2 x dp 4), but --schedule interleaved "
        "needs a multiple of --pp 2; the nearest that fit are 16 and 32");
  spec.global_batch = 0;
  CHECK(settle_layout(spec, small_model(), 8).global_batch == 16);
}

TEST_CASE("the sequence fits the model") {
  TrainSpec spec = spec_of(1, 1);
  spec.seq_len = 513;
  check_refused(spec, 1, {"--seq-len = 513", "longest sequence, 512"});
  ModelSpec model = small_model();
  model.max_position = 8192;
  CHECK(settle_layout(spec_of(1, 1), model, 1).seq_len == 1024);
}

TEST_CASE("the ranks that flags ask for") {
  TrainSpec spec = spec_of(2, 3);
  CHECK(ranks_needed(spec) == 6);
  spec.dp = "5";
  CHECK(ranks_needed(spec) == 30);
}

TEST_CASE("ranks that zero shards over") {
  TrainSpec spec = spec_of(2, 2);
  const auto ranks = [&](const char* group, int64_t zero, int64_t per_node) {
    spec.zero_group = group;
    spec.zero = zero;
    return zero_ranks(settle_layout(spec, small_model(), 32), per_node);  // dp 8
  };
  CHECK(ranks("all", 0, 4) == 1);
  CHECK(ranks("all", 1, 4) == 8);
  CHECK(ranks("node", 3, 4) == 2);
  CHECK(ranks("node", 1, 2) == 1);
  CHECK(ranks("node", 1, 16) == 8);
  CHECK(ranks("node", 1, 32) == 8);  // two stages on a node
  CHECK_THROWS_AS(ranks("node", 1, 3), Error);
  CHECK_THROWS_AS(ranks("node", 1, 6), Error);  // 3 replicas of 8
  CHECK_THROWS_AS(ranks("node", 1, 1), Error);
}

TEST_CASE("dealt layers: the largest stage's work is the least possible") {
  // Against all ways of dealing, with the work counted here once more.
  for (const int64_t vocab : {10, 1000, 20000, 200000})
    for (const int64_t layers : {1, 2, 5, 9})
      for (int64_t n = 1; n <= std::min<int64_t>(layers, 5); ++n) {
        ModelSpec m = small_model();
        m.vocab_size = vocab;
        m.layers = layers;
        const int64_t seq_len = 77;
        const double c = 64, q = 64, kv = 16, f = 160;
        const double layer = 2 * (c * (q + 2 * kv) + q * c + 3 * c * f) + 2 * q * (seq_len + 1);
        const auto largest = [&](const std::vector<int64_t>& dealt) {
          double most = 0;
          for (size_t i = 0; i < dealt.size(); ++i) {
            double work = static_cast<double>(dealt[i]) * layer;
            if (i == 0) work += c;
            if (i + 1 == dealt.size()) work += 2 * c * static_cast<double>(vocab);
            most = std::max(most, work);
          }
          return most;
        };
        double best = 1e300;
        const std::function<void(std::vector<int64_t>, int64_t)> all = [&](std::vector<int64_t> begun, int64_t left) {
          if (static_cast<int64_t>(begun.size()) == n) {
            if (left == 0) best = std::min(best, largest(begun));
            return;
          }
          for (int64_t next = 1; next <= left; ++next) {
            begun.push_back(next);
            all(begun, left - next);
            begun.pop_back();
          }
        };
        all({}, layers);
        const std::vector<int64_t> dealt = deal_layers(m, n, seq_len);
        CAPTURE(vocab);
        CAPTURE(layers);
        CAPTURE(n);
        CHECK(std::accumulate(dealt.begin(), dealt.end(), int64_t{0}) == layers);
        CHECK(*std::min_element(dealt.begin(), dealt.end()) >= 1);
        CHECK(largest(dealt) == doctest::Approx(best).epsilon(1e-12));
      }
}

TEST_CASE("a large head takes layers from the last stage, and little work breaks ties") {
  ModelSpec m = small_model();
  m.layers = 22;
  m.vocab_size = 1;  // embedding and head are little work, not none
  CHECK(deal_layers(m, 4, 64) == std::vector<int64_t>{5, 6, 6, 5});
  m.vocab_size = 1000;  // about two layers
  CHECK(deal_layers(m, 4, 64) == std::vector<int64_t>{6, 6, 6, 4});
  CHECK_THROWS(deal_layers(m, 23, 64));
}

TEST_CASE("only what is computed is in the hyper-parameter hash, not where") {
  TrainSpec plain, spread;
  spread.tp = 2;
  spread.pp = 2;
  spread.vpp = 2;
  spread.dp = "2";
  spread.sp = true;
  spread.zero = 3;
  spread.zero_group = "node";
  spread.recompute = "full";
  spread.recompute_layers = 1;
  spread.schedule = "zb-h1";
  spread.stage_layers = "3,3,3,3";
  spread.ranks_per_node = 2;
  spread.allreduce = "ring";
  spread.nan_trace = true;
  spread.check_replicas_every = 10;
  spread.verify_parallel = 3;
  spread.dry_run = true;
  spread.dry_run_rank = "all-stages";
  spread.dry_run_ranks = 8;
  CHECK(hyper_parameter_hash(plain) == hyper_parameter_hash(spread));
  for (const auto& change : std::vector<std::function<void(TrainSpec&)>>{
           [](TrainSpec& s) { s.precision = "f16"; }, [](TrainSpec& s) { s.loss_scale = 2; },
           [](TrainSpec& s) { s.loss_scale_window = 2; }, [](TrainSpec& s) { s.on_spike = "skip"; },
           [](TrainSpec& s) { s.spike_threshold = 3; }}) {
    TrainSpec other;
    change(other);
    CHECK(hyper_parameter_hash(plain) != hyper_parameter_hash(other));
  }
}

TEST_CASE("a dry run needs neither data nor an output folder") {
  TrainSpec spec;
  spec.model = "tiny-llama";
  CHECK_THROWS_AS(check_train_spec(spec), Error);
  spec.dry_run = true;
  check_train_spec(spec);
}
