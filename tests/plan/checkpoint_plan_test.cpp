#include "libcore/plan/long_run/checkpoint_plan.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "libcore/base/error.h"
#include "libcore/ckpt/interval.h"
#include "libcore/spec/model_spec.h"
#include "libcore/spec/train_spec.h"
#include "libcore/train/layout_pieces.h"

using namespace rw;

namespace {

ClusterSpec cluster_of(int64_t nodes, int64_t devices) {
  return parse_cluster_spec(
      "name = \"c\"\n[device.d]\nmemory = \"80Gi\"\npeak-bf16 = 1e15\nmemory-bandwidth = 3e12\n"
      "mtbf-hours = 50700\n[[node]]\nname = \"n\"\ndevice = \"d\"\ncount = " +
          std::to_string(nodes) + "\ndevices = " + std::to_string(devices) +
          "\nlink-bandwidth = 450e9\nnic-bandwidth = 50e9\nhost-bandwidth = 50e9\n"
          "storage-bandwidth = 2e9\n",
      "c.toml");
}

double bytes_of_all_ranks(const ModelSpec& model, const Layout& layout) {
  double sum = 0;
  for (int64_t rank = 0; rank < layout.ranks(); ++rank)
    for (const TensorPiece& piece :
         layout_pieces({.model = model, .layout = layout, .ranks_per_node = 2, .rank = rank}))
      sum += static_cast<double>(piece.box.size()) * 4;
  return sum;
}

std::string message_of(const CheckpointQuery& query) {
  try {
    plan_checkpoints(query);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("bytes are what the ranks of any layout write together") {
  for (const char* name : {"tiny-llama", "tiny-gpt2", "tiny-qwen2"}) {
    const ModelSpec model = load_model_spec(name);
    for (const char* zero : {"0", "1", "3"}) {
      TrainSpec train;
      train.pp = 2;
      train.tp = 2;
      train.zero = zero[0] - '0';
      train.micro_batch = 1;
      CAPTURE(name);
      CHECK(bytes_of_all_ranks(model, settle_layout(train, model, 8)) == checkpoint_bytes(model));
    }
  }
  // 405.9 billion parameters (Dubey et al. 2024: 405B) of 12 bytes: 4.87 TB.
  CHECK(checkpoint_bytes(load_model_spec("llama-3.1-405b")) == doctest::Approx(4.87e12).epsilon(0.002));
}

TEST_CASE("by hand: an even spread over two nodes of three devices") {
  const ModelSpec model = load_model_spec("llama-2-7b");
  const ClusterSpec cluster = cluster_of(2, 3);
  const double bytes = 6738415616.0 * 12;  // the released Llama-2-7B has 6,738,415,616 parameters
  CheckpointTerms terms;
  const CheckpointPlan plan = plan_checkpoints({.model = model, .cluster = cluster, .terms = terms});
  CHECK(plan.bytes == bytes);
  CHECK(plan.ranks == 6);
  CHECK(plan.largest_rank_bytes == doctest::Approx(bytes / 6));
  CHECK(plan.write_s == doctest::Approx(bytes / 4e9));  // both nodes at once
  CHECK(plan.blocking_s == doctest::Approx(bytes / 6 / 50e9));
  CHECK(plan.failures.mtbf_s == doctest::Approx(50700.0 * 3600 / 6));
  CHECK(plan.failures.cost_s == plan.blocking_s);
  CHECK(plan.failures.persist_s == plan.write_s);
  CHECK(plan.failures.interval_s == optimal_interval_s(plan.blocking_s, plan.failures.mtbf_s));
  CHECK(plan.sources.at("mtbf_s") == "cluster");
  // The storage of the whole cluster is slower than its nodes.
  ClusterSpec shared = cluster;
  shared.storage_bandwidth = 1e9;
  CHECK(plan_checkpoints({.model = model, .cluster = shared, .terms = terms}).write_s == doctest::Approx(bytes / 1e9));
  terms.mode = "sync";
  const CheckpointPlan sync = plan_checkpoints({.model = model, .cluster = cluster, .terms = terms});
  CHECK(sync.failures.cost_s == doctest::Approx(plan.blocking_s + plan.write_s));
  CHECK(sync.failures.persist_s == 0);
  CHECK(sync.goodput < plan.goodput);
}

TEST_CASE("flags win, steps are counted, and a save ends before the next") {
  const ModelSpec model = load_model_spec("llama-2-7b");
  const ClusterSpec cluster = cluster_of(4, 8);
  CheckpointTerms terms{.mtbf = 3.09, .bandwidth = 1e9, .blocking = 60, .step_time = 7};
  TrainSpec train;
  train.global_batch = 64;
  train.seq_len = 4096;
  train.micro_batch = 1;
  train.zero = 1;
  const Layout layout = settle_layout(train, model, 32);
  CheckpointQuery query{.model = model, .cluster = cluster, .terms = terms, .layout = &layout};
  CheckpointPlan plan = plan_checkpoints(query);
  CHECK(plan.young_s / 60 == doctest::Approx(19.26).epsilon(0.001));  // sqrt(2 * 60 * 11124)
  CHECK(plan.interval_steps ==
        optimal_interval_steps({.cost_s = 60, .background_s = 60 + plan.write_s, .mtbf_s = 3.09 * 3600, .step_s = 7}));
  CHECK(plan.failures.interval_s == 7.0 * static_cast<double>(plan.interval_steps));
  CHECK(plan.sources.at("blocking_s") == "flag");
  terms.bandwidth = 1e7;  // 8086 s to write: that is the interval
  plan = plan_checkpoints(query);
  CHECK(plan.failures.interval_s >= plan.write_s + 60);
  CHECK(plan.failures.interval_s <= plan.write_s + 60 + 2 * 7);
  // A billion tokens: 3814.7 steps of 64 * 4096; with failures every 3.09 h.
  query.tokens = 1e9;
  plan = plan_checkpoints(query);
  CHECK(plan.training_s == doctest::Approx(1e9 / 262144 * 7 / plan.goodput));
  CHECK(plan.expected_failures == doctest::Approx(plan.training_s / 11124));
  const Json json = checkpoint_plan_json(plan);
  CHECK(json["interval_steps"] == plan.interval_steps);
  CHECK(json["sources"]["step_s"] == "flag");
  CHECK(checkpoint_plan_text(plan).find("save every") != std::string::npos);
}

TEST_CASE("a stage that holds more decides how long its nodes write") {
  const ModelSpec model = load_model_spec("tiny-llama");
  const ClusterSpec cluster = cluster_of(2, 1);
  const CheckpointTerms terms;
  TrainSpec train;
  train.pp = 2;
  train.micro_batch = 1;
  const Layout layout = settle_layout(train, model, 2);
  double most = 0;
  for (const int64_t rank : {0, 1}) {
    double own = 0;
    for (const TensorPiece& piece : layout_pieces({.model = model, .layout = layout, .rank = rank}))
      own += static_cast<double>(piece.box.size()) * 4;
    most = std::max(most, own);
  }
  const CheckpointPlan plan = plan_checkpoints({.model = model, .cluster = cluster, .terms = terms, .layout = &layout});
  CHECK(plan.largest_rank_bytes == most);
  CHECK(plan.write_s == doctest::Approx(most / 2e9));
}

TEST_CASE("what is missing is named with the flag and the key that give it") {
  const ModelSpec model = load_model_spec("tiny-llama");
  ClusterSpec cluster = cluster_of(1, 2);
  CheckpointTerms terms;
  const CheckpointQuery query{.model = model, .cluster = cluster, .terms = terms};
  cluster.nodes[0].storage_bandwidth = 0;
  CHECK(message_of(query).find("storage-bandwidth") != std::string::npos);
  CHECK(message_of(query).find("--bandwidth") != std::string::npos);
  terms.bandwidth = 1e9;
  cluster.nodes[0].host_bandwidth = 0;
  CHECK(message_of(query).find("host-bandwidth") != std::string::npos);
  CHECK(message_of(query).find("--blocking") != std::string::npos);
  terms.blocking = 1;
  cluster.devices[0].mtbf_hours = 0;
  CHECK(message_of(query).find("--mtbf") != std::string::npos);
  terms.mtbf = 10;
  CHECK(message_of(query) == "");
  CheckpointQuery tokens{.model = model, .cluster = cluster, .terms = terms, .tokens = 1e9};
  CHECK(message_of(tokens).find("--global-batch") != std::string::npos);
}
