// How a model and a batch are laid over ranks: what the flags say, settled against a model and a number of ranks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/schedule/pipeline.h"
#include "libcore/spec/model_spec.h"

namespace rw {

enum class Recompute : uint8_t { none, selective, full };  // selective: attention only (Korthikanti et al. 2022)
const char* recompute_name(Recompute r);                   // "none", "selective", "full"
enum class ZeroGroup : uint8_t { all, node };              // node: shards within a node, replicas across (HSDP)

// Settled: dp is a number, batch sizes fit, stage_layers has pp * vpp entries that add up to the model's layers.
struct Layout {
  int64_t tp = 1, pp = 1, vpp = 1, dp = 1;
  bool sp = false;
  int64_t zero = 0;  // 0..3 (Rajbhandari et al. 2020)
  ZeroGroup zero_group = ZeroGroup::all;
  Recompute recompute = Recompute::none;
  int64_t recompute_layers =
      0;  // the first N of a stage's layers, its chunks in order; N covers all when settled from 0
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int64_t micro_batch = 1, global_batch = 1, seq_len = 1;  // samples, samples, tokens
  std::vector<int64_t> stage_layers;                       // layers of virtual stage v = chunk * pp + stage

  int64_t ranks() const { return tp * pp * dp; }
  int64_t micro_batches() const { return global_batch / (micro_batch * dp); }  // of one pipeline in a step
  PipelineShape pipeline() const;
  // Layers [begin, end) of a stage's chunk.
  struct Layers {
    int64_t begin, end;
  };
  Layers layers_of(int64_t stage, int64_t chunk) const;
  std::string text() const;  // "tp 2 x pp 2 (1f1b) x dp 2, sp, zero 1, recompute full"
};

int64_t largest_stage(const Layout& layout);  // the most layers that one stage has, over all its chunks

struct TrainSpec;

// Fills in what the flags leave open (dp, seq-len, global-batch, the dealing of layers) and checks everything:
// Error{usage} names the rule that was broken, the numbers, and the nearest layouts or batches that work. Nothing is
// allocated.
Layout settle_layout(const TrainSpec& spec, const ModelSpec& model, int64_t ranks);

// The ranks that --tp, --pp and --dp ask for (dp auto: one replica).
int64_t ranks_needed(const TrainSpec& spec);
// Data-parallel neighbours that --zero shards over (MeshShape::shard): 1 without zero; Error{usage} when nodes of so
// many ranks do not hold whole groups.
int64_t zero_ranks(const Layout& layout, int64_t ranks_per_node);

std::vector<int64_t> divisors(int64_t n);  // of n >= 1, ascending

// Layers dealt to n virtual stages so that the largest stage's work is least, each at least one layer; the head's
// product and the embedding count as work of the last and first stage (FLOPs per token at seq_len).
std::vector<int64_t> deal_layers(const ModelSpec& model, int64_t n_stages, int64_t seq_len);

}  // namespace rw
