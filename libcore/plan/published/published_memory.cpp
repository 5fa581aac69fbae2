#include "libcore/plan/published/published_memory.h"

#include <algorithm>
#include <cmath>

#include "libcore/plan/published/published_rows.h"

namespace rw {
namespace {

constexpr double kGi = 1024.0 * 1024 * 1024;

// What the metrics count beside tensors, fitted to these rows: BLOOM's is nvidia-smi's (context, NCCL's buffers, cached
// blocks), nanotron's and DeepSpeed's the allocator's reserve; the others report the allocator's own peak.
constexpr double kBloomReserve = 9.93, kAllocatorReserve = 5.77;
// Of BLOOM's activations and working memory, fragmentation of its allocator: fitted too.
constexpr double kBloomWaste = 1.333;
// Bytes of a logit: in 16 bits, as f32, and its gradient in 16 bits.
constexpr double kLogitBytes = 8;

struct Trainer {
  const char* name;
  double weights_and_gradients;  // bytes of a parameter that no ZeRO-1 cuts
  double reserve, waste;
};
// Bytes: 2 of weights; gradients of 2 or 4 (f32 accumulation).
constexpr Trainer kTrainers[] = {
    {"bloom", 4, kBloomReserve, kBloomWaste},
    {"nanotron", 6, kAllocatorReserve, 1},
    {"megatron-core-ci", 6, 0, 1},
    {"megatron-core-ci-h100", 6, 0, 1},
    {"nemo", 4, 0, 1},
    {"deepspeed", 2, kAllocatorReserve, 1},
};
// Of BLOOM in bf16: gradients also summed in f32.
constexpr double kBloomBf16 = 8;
// f32 masters and two moments.
constexpr double kOptimizer = 12;

struct Run {
  double h, layers, s, b, t, p, d, v, a, g, vocab, f, batch;
  int64_t zero;
  bool gated, tied, sp, full, scores;
};

Run run_of(const PublishedCells& c, const std::string& trainer) {
  Run r{};
  r.h = c.number("hidden", 0);
  r.s = c.number("seq", 0);
  r.b = c.number("micro_batch", 1);
  r.t = c.number("tp", 1);
  r.p = c.number("pp", 1);
  r.d = c.number("dp", 1);
  r.v = c.number("vpp", 1);
  r.a = c.number("heads", 96);
  r.g = c.number("kv_heads", r.a) / r.a;
  r.vocab = c.number("vocab", 50304);
  r.f = c.number("ffn", 4 * r.h);
  r.batch = c.number("global_batch", 1);
  r.zero = c.whole("zero", 1);
  r.layers = c.number("layers", 0);
  if (r.layers == 0)  // BLOOM's table of topologies: from its TFLOP/s, 96 B s L h^2
    r.layers = std::round(c.number("tflops_per_gpu", 0) * 1e12 * c.number("ngpus", 0) * c.number("iter_time_s", 0) /
                          (96 * r.batch * r.s * r.h * r.h));
  const std::string& model = c.text("model");
  const auto named = [&](const char* part) { return model.find(part) != std::string::npos; };
  // Megatron-core's release runs do not say on how many nodes they ran: eight replicas, and micro-batches enough.
  if (named("15b_8t")) r.d = 8, r.vocab = 256000, r.batch = 1e9;
  r.vocab = std::ceil(r.vocab / (128 * r.t)) * 128 * r.t;
  r.gated = named("llama");
  r.tied = trainer == "bloom" || (trainer.starts_with("megatron-core-ci") && !named("7b") && !named("15b")) ||
           (trainer == "nanotron" && (named("1.34") || named("3.57")));
  r.sp = c.text("sp") == "1" || trainer == "nemo";
  r.full = c.text("recompute") == "full";
  r.scores = trainer.starts_with("megatron-core-ci") && r.h == 512;  // its unfused attention keeps the scores
  return r;
}

// Bytes of what a layer keeps of a micro-batch.
double kept_bytes(const Run& r) {
  const double rows = r.s * r.b, rep = r.sp ? r.t : 1;
  if (r.full) return 2 * rows * r.h;
  if (r.scores) return rows * r.h * (10 / rep + (24 + 2.5 * r.a * r.s / r.h) / r.t);
  if (r.gated) return rows * (8 * r.h / rep + (r.h * (8 + 6 * r.g) + 8 * r.f + 4 * r.a) / r.t);
  return rows * (10 * r.h / rep + (r.h * (8 + 4 * r.g) + 4 * r.f + 4 * r.a) / r.t);
}

struct StageBytes {
  double states, activations;
};
// Of stage k, in GiB.
StageBytes stage_bytes(const Run& r, double k, double weights_and_gradients) {
  const double last = r.p - 1;
  const bool ends_count = std::fmod(r.layers, r.p) > 0 && std::fmod(r.layers + 2, r.p) == 0;
  const double most = ends_count ? (r.layers + 2) / r.p : std::ceil(r.layers / r.p);
  const bool end = k == 0 || k == last;
  const double layers = r.p == 1 ? r.layers : ends_count && end ? most - 1 : most;
  const double layer = (r.h * r.h * (2 + 2 * r.g) + r.h * r.f * (r.gated ? 3 : 2)) / r.t;
  const double embedding = r.vocab * r.h / r.t;
  double params = layers * layer + (k == 0 ? embedding : 0);
  if (k == last && (r.p > 1 || !r.tied)) params += embedding;
  const double states = r.zero == 0   ? params * (weights_and_gradients + kOptimizer)
                        : r.zero == 2 ? params * (2 + (2 + kOptimizer) / r.d)
                                      : params * (weights_and_gradients + kOptimizer / r.d);
  const double m = std::max(1.0, r.batch / (r.d * r.b));
  const double in_flight =
      r.v > 1 ? std::min(m * r.v, 2 * (r.p - k - 1) + (r.v - 1) * r.p + 1) / r.v : std::min(m, r.p - k);
  const double again = r.full ? korthikanti_layer_bytes({r.s, r.b, r.h, r.a, r.t}, {}) : 0;
  const double logits = k == last ? r.s * r.b * r.vocab / r.t * kLogitBytes : 0;
  return {states / kGi, (layers * kept_bytes(r) * in_flight + std::max(again, logits)) / kGi};
}

// The paper's own arithmetic (its figure 1): 18 bytes of a parameter, no embedding.
void predict_analytic(const PublishedCells& c, PublishedMemory& row) {
  const Run r = run_of(c, row.trainer);
  const bool selective = c.text("recompute") == "selective";
  const double layer = korthikanti_layer_bytes(
      {r.s, r.b, r.h, r.a, r.t},
      {.sp = c.text("sp") == "1",
       .kept = selective ? ActivationTechnique::Kept::selective : ActivationTechnique::Kept::all});
  row.states = 18 * 12 * r.layers * r.h * r.h / (r.t * r.p) / kGi;
  row.predicted = row.states + layer * r.layers * (r.v > 1 ? 1 + (r.p - 1) / (r.p * r.v) : 1) / kGi;
}

void predict(const PublishedCells& c, const Trainer& trainer, PublishedMemory& row) {
  const Run r = run_of(c, row.trainer);
  const bool bf16_bloom = row.trainer == "bloom" && c.text("precision") == "bf16";
  const double kept = bf16_bloom ? kBloomBf16 : trainer.weights_and_gradients;
  // Megatron-core's tests log the last rank.
  for (double k = row.trainer.starts_with("megatron-core-ci") ? r.p - 1 : 0; k < r.p; ++k) {
    const StageBytes stage = stage_bytes(r, k, kept);
    const double total = stage.states + trainer.waste * stage.activations + trainer.reserve;
    if (total > row.predicted) row.predicted = total, row.states = stage.states;
  }
}

bool says_out_of_memory(const PublishedCells& c) {
  const std::string& notes = c.text("notes");
  return !c.has("mem_gb") && !c.has("iter_time_s") && notes.ends_with("; OOM");
}

std::string obstacle(const PublishedCells& c) {
  if (c.text("precision").starts_with("fp8")) return "fp8, which dtrain has not";
  if (c.has("ep") && c.text("ep") != "1") return "mixture of experts, which dtrain has not";
  if (c.has("cp") && c.text("cp") != "1") return "context parallel, which dtrain has not";
  if (c.mentions("notes", "SUSPECT")) return "its source swaps columns";
  if (c.text("source").starts_with("stas00") && c.text("zero") == "3") return "its states are on the CPU";
  return "";
}

}  // namespace

double korthikanti_layer_bytes(const LayerSize& z, const ActivationTechnique& technique) {
  using Kept = ActivationTechnique::Kept;
  const double rows = z.seq * z.micro_batch * z.width, scores = 5 * z.heads * z.seq / z.width;
  if (technique.kept == Kept::input) return 2 * rows;
  const double attention = technique.kept == Kept::all ? scores : 0;
  return technique.sp ? rows * (34 + attention) / z.tp : rows * (10 + (24 + attention) / z.tp);
}

std::vector<PublishedMemory> published_memory(const std::filesystem::path& table) {
  std::vector<PublishedMemory> rows;
  for (const PublishedCells& c : read_published_table(table)) {
    if (!c.has("mem_gb") && !says_out_of_memory(c)) continue;
    PublishedMemory row{.line = c.line(),
                        .source = c.text("source"),
                        .model_name = c.text("model"),
                        .trainer = published_trainer(c),
                        .device = c.text("gpu"),
                        .excluded = obstacle(c),
                        .reported = c.number("mem_gb", 0)};
    if (row.excluded.empty()) {
      const auto trainer = std::find_if(std::begin(kTrainers), std::end(kTrainers),
                                        [&](const Trainer& t) { return row.trainer == t.name; });
      if (row.trainer == "megatron-2022") predict_analytic(c, row);
      else if (trainer != std::end(kTrainers)) predict(c, *trainer, row);
      else row.excluded = "a trainer without a formula";
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace rw
