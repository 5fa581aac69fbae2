#include "libcore/serve/serving_sizes.h"

#include "libcore/base/error.h"
#include "libcore/comm/watch.h"

namespace rw {
namespace {

// Beyond the sequences of a step, full-length ones whose pages the prefix cache may keep.
constexpr int64_t kCachedSequences = 64;

DType kv_type(const ServeSpec& spec) {
  if (spec.kv_dtype == "int8") return DType::i8;
  const std::string t = spec.kv_dtype == "auto" ? spec.precision : spec.kv_dtype;
  if (t != spec.precision)
    fail(ErrorKind::usage, "--kv-dtype {}: expected auto, int8 or the precision, {}", spec.kv_dtype, spec.precision);
  return t == "f32" ? DType::f32 : DType::bf16;
}

WeightQuant weight_quant(const ServeSpec& spec) {
  if (spec.quantize == "int8") return {.format = WeightFormat::int8, .group = spec.quantize_group};
  if (spec.quantize == "int4") return {.format = WeightFormat::int4, .group = spec.quantize_group};
  return {};
}

}  // namespace

RunnerSpec runner_spec(const RunnerAsked& asked) {
  const ServeSpec& spec = asked.spec;
  return {.model = asked.model,
          .precision = spec.precision == "f32" ? DType::f32 : DType::bf16,
          .kv_t = kv_type(spec),
          .quant = weight_quant(spec),
          .threads = asked.threads,
          .max_rows = spec.max_batch_tokens,
          .max_seqs = spec.max_num_seqs,
          .max_len = asked.max_len,
          .page_tokens = spec.block_size,
          .deterministic = spec.deterministic};
}

SchedulerSpec scheduler_spec(const ServeSpec& spec, int64_t n_pages) {
  return {.n_pages = n_pages,
          .block_tokens = spec.block_size,
          .max_seqs = spec.max_num_seqs,
          .max_batch_tokens = spec.max_batch_tokens,
          .itl_budget_s = spec.itl_budget_ms / 1000,
          .max_preemptions = spec.max_preemptions,
          .prefix_cache = spec.prefix_cache};
}

RunnerSizes runner_sizes(const RunnerSpec& runner, int rank, int ranks) {
  const std::unique_ptr<Comm> meta = make_meta_comm(rank, ranks);
  // The longest sequence decides on nothing but the rotary table, which takes long to make, and the page tables.
  RunnerSpec of_short = runner;
  of_short.max_len = 1;
  const ModelRunner counted(of_short, *meta, ArenaKind::count);
  const int64_t rotary = runner.model.learned_position()
                             ? 0
                             : runner.max_len * runner.model.head_dim * static_cast<int64_t>(sizeof(float));
  const Arena& arena = counted.arena();
  const int64_t weights = arena.bytes(MemoryOwner::weights) + arena.bytes(MemoryOwner::packed_weights),
                pages = (runner.max_len + runner.page_tokens - 1) / runner.page_tokens,
                tables = runner.max_seqs * (pages - 1) * static_cast<int64_t>(sizeof(int32_t));
  return {.weights = weights,
          .runtime = arena.total_bytes() - weights + rotary + tables,
          .page_bytes = KvPages::page_bytes(counted.kv_spec()),
          .most_pages = (runner.max_seqs + kCachedSequences) * pages};
}

}  // namespace rw
