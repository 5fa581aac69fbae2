#include "libcore/plan/published/published_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "libcore/base/error.h"
#include "libcore/plan/price/real.h"

namespace rw {
namespace {

struct Trainer {
  const char* source;  // begins so
  const char* device;  // of it, or ""
  const char* name;
  const char* numbers;  // whose fitted numbers it shares
};
constexpr Trainer kTrainers[] = {
    {"Megatron-LM SC'21", "", "megatron-2021", "megatron-2021"},
    {"Megatron-LM README 2020", "", "megatron-2021", "megatron-2021"},
    {"Megatron-LM functional", "H100", "megatron-core-ci-h100", "megatron-core-ci"},
    {"Megatron-LM functional", "", "megatron-core-ci", "megatron-core-ci"},
    {"MT-NLG", "", "mt-nlg", "bloom"},
    {"Korthikanti", "", "megatron-2022", "megatron-2021"},
    {"BigScience", "", "bloom", "bloom"},
    {"NVIDIA dgxc-benchmarking v24.11.1 MaxText", "", "maxtext", "maxtext"},
    {"NVIDIA dgxc", "", "nemo", "nemo"},
    {"torchtitan", "A100", "torchtitan-a100", "torchtitan-a100"},
    {"torchtitan", "", "torchtitan-h100", "torchtitan-h100"},
    {"llm-foundry", "A100", "llm-foundry-a100", "llm-foundry-a100"},
    {"llm-foundry", "", "llm-foundry-h100", "llm-foundry-h100"},
    {"InternEvo", "", "internevo", "internevo"},
    {"nanotron", "", "nanotron", "nanotron"},
    {"llm.c", "H100", "llm-c-h100", "llm-c"},
    {"llm.c", "", "llm-c", "llm-c"},
    {"stas00", "", "deepspeed", "deepspeed"},
};

const Trainer* trainer_of(const PublishedCells& c) {
  for (const Trainer& t : kTrainers)
    if (c.text("source").starts_with(t.source) && c.mentions("gpu", t.device)) return &t;
  return nullptr;
}

// ---- clusters: a shipped profile, and the source's network ----

struct DatasheetDevice {
  const char* gpu;      // of the table
  const char* profile;  // in configs/clusters
  int64_t memory;       // bytes; 0: the profile's
  double bandwidth;     // bytes/s of it; 0: the profile's
};
constexpr int64_t kGi = 1 << 30;
constexpr DatasheetDevice kDevices[] = {
    {"A100-40GB", "a100-40", 0, 0},
    {"A100-80GB", "a100-80", 0, 0},
    {"H100-80GB", "h100-sxm", 0, 0},
    // pytorch/torchtitan, benchmarks: H100 with HBM2e, limited to 500 W.
    {"H100-96GB-500W", "h100-sxm", 96 * kGi, 2.4e12},
    {"H200-141GB", "h200", 0, 0},
    {"B200-180GB", "b200", 0, 0},
};

struct Network {
  const char* trainer;
  int64_t nics;          // of a node
  double nic_bandwidth;  // bytes/s
};
// Where the profile's network is not the source's.
constexpr Network kNetworks[] = {
    {"bloom", 4, 12.5e9},      // IDRIS, Jean Zay: 8 A100 a node, 4 Omni-Path links of 100 Gb/s
    {"internevo", 4, 12.5e9},  // InternEvo, doc/en/train_performance.md: 4 x 100 Gb/s RoCE
};

// What the shipped files say, read once.
struct Shipped {
  std::vector<TrainerTraits> trainers = published_trainers();
  std::map<std::string, ClusterSpec> profiles = {};  // of configs/clusters, as they are asked for
};

ClusterSpec cluster_of(const PublishedCells& c, const std::string& trainer, int64_t devices, Shipped& shipped) {
  const auto device = std::find_if(std::begin(kDevices), std::end(kDevices),
                                   [&](const DatasheetDevice& d) { return c.text("gpu") == d.gpu; });
  auto [at, is_new] = shipped.profiles.try_emplace(device->profile);
  if (is_new) at->second = load_cluster_spec(device->profile);
  ClusterSpec cluster = at->second;
  NodeType& node = cluster.nodes.front();
  if (device->memory > 0) cluster.devices.front().memory = device->memory;
  if (device->bandwidth > 0) cluster.devices.front().memory_bandwidth = device->bandwidth;
  for (const Network& n : kNetworks)
    if (trainer == n.trainer) node.nics = n.nics, node.nic_bandwidth = n.nic_bandwidth;
  node.count = (devices + node.devices - 1) / node.devices;
  cluster.network.nodes_per_leaf = 0;
  return cluster;
}

bool known_device(const std::string& gpu) {
  return std::any_of(std::begin(kDevices), std::end(kDevices), [&](const DatasheetDevice& d) { return gpu == d.gpu; });
}

// ---- what is left out ----

bool is_mixture_of_experts(const std::string& model) {
  std::string lower = model;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
  for (const char* name : {"grok", "deepseek", "mixtral", "qwen3", "oss", "moe"})
    if (lower.find(name) != std::string::npos) return true;
  return false;
}

// Why a row cannot be predicted; empty when nothing is against it.
std::string obstacle(const PublishedCells& c) {
  const std::string& source = c.text("source");
  const std::string& model = c.text("model");
  const auto one = [&](const char* column) { return !c.has(column) || c.text(column) == "1"; };
  if (c.text("precision").starts_with("fp8")) return "fp8, which dtrain has not";
  if (!one("ep") || is_mixture_of_experts(model)) return "mixture of experts, which dtrain has not";
  if (model.find("nemotron-h") != std::string::npos || model.find("Nemotron_3") != std::string::npos)
    return "state-space layers, which dtrain has not";
  if (!one("cp")) return "context parallel, which dtrain has not";
  if (!known_device(c.text("gpu"))) return "a device without a profile: " + c.text("gpu");
  if (source.find("MegaScale") != std::string::npos) return "quoted from memory; its micro-batch is unknown";
  if (source.starts_with("stas00") && c.text("zero") == "3" && c.mentions("notes", "offload") &&
      !c.mentions("notes", "no offload"))
    return "its optimizer runs on the CPU";
  if (!c.has("iter_time_s") && !c.has("tflops_per_gpu") && !c.has("mfu_pct") && !c.has("mem_gb"))
    return "neither time nor memory (out of memory, or a blank cell)";
  if (c.mentions("notes", "SUSPECT")) return "its source swaps columns";
  if (model == "gpt3-125M") return "its time is a comment that its own file contradicts";
  if (source.starts_with("Megatron-LM functional") && c.text("hidden") == "512")
    return "a toy of width 512: the host's launches set its time";
  if (trainer_of(c) == nullptr || !c.has("tp")) return "its layout is not stated";
  return "";
}

// ---- model ----

ModelSpec model_of(const PublishedCells& c, const std::string& trainer, int64_t layers, int64_t tp, int64_t seq) {
  ModelSpec m;
  const bool gated = c.mentions("model", "llama") || trainer == "maxtext" || trainer == "internevo" ||
                     trainer == "deepspeed" || trainer.starts_with("torchtitan") || trainer == "nanotron";
  const bool tied =
      !(trainer == "maxtext" || trainer == "internevo" || trainer == "deepspeed" || trainer.starts_with("torchtitan"));
  m.family = gated ? Family::llama : Family::gpt2;
  m.tied_head = tied;
  m.width = c.whole("hidden", 0);
  m.layers = layers;
  m.heads = c.whole("heads", 96);  // BLOOM's table of topologies does not say
  m.kv_heads = c.whole("kv_heads", m.heads);
  m.head_dim = m.width / m.heads;
  m.ffn = c.whole("ffn", trainer == "internevo" ? 11008 : 4 * m.width);  // InternLM-7B; Megatron's default
  const int64_t otherwise = trainer == "megatron-2022" ? 51200 : 50304, cut = 128 * tp;
  m.vocab_size =
      ((c.text("source").starts_with("Megatron-LM README 2020") ? 51200 : c.whole("vocab", otherwise)) + cut - 1) /
      cut * cut;
  m.max_position = seq;
  if (!gated) m.qkv_bias = m.out_bias = m.mlp_bias = true;
  return m;
}

// ---- layout ----

// Layers of each virtual stage: even; or a stage's less on both ends when embedding and head count as a layer each
// (Megatron-DeepSpeed for BLOOM); or the odd ones in the middle.
std::vector<int64_t> stage_layers(int64_t layers, int64_t pp, int64_t vpp) {
  const int64_t stages = pp * vpp, even = layers / stages, rest = layers % stages;
  std::vector<int64_t> n(static_cast<size_t>(stages), even);
  if (rest == 0) return n;
  if (vpp == 1 && (layers + 2) % pp == 0) {
    std::fill(n.begin(), n.end(), (layers + 2) / pp);
    n.front() -= 1, n.back() -= 1;
    return n;
  }
  for (int64_t i = 0; i < rest; ++i) ++n[static_cast<size_t>((i + 1) % stages)];
  return n;
}

// ---- time ----

struct Published {
  double step_s;
  std::string how;
};
// In seconds, from the source's own convention of FLOPs where it gives only those.
Published step_of(const PublishedCells& c, const std::string& trainer, const ModelSpec& m, double tokens) {
  if (c.has("iter_time_s"))
    return {c.number("iter_time_s", 0), c.mentions("notes", "derived") ? "published tokens/s" : "published"};
  const double h = real(m.width), s = real(m.max_position), v = c.number("vocab", 51200), n = c.number("ngpus", 1);
  const double layers = real(m.layers);
  const double rate = c.number("tflops_per_gpu", 0) * 1e12, share = c.number("mfu_pct", 0) / 100;
  const double params = c.number("params_b", 0) * 1e9;
  if (trainer == "megatron-2021")
    return {96 * tokens * layers * h * h * (1 + s / (6 * h) + v / (16 * layers * h)) / (rate * n),
            "TFLOP/s: 96 B s L h^2 (1 + s/6h + V/16Lh)"};
  if (trainer == "bloom") return {96 * tokens * layers * h * h / (rate * n), "TFLOP/s: 96 B s L h^2"};
  if (trainer == "megatron-2022" && share > 0)
    return {72 * tokens * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h)) / (share * 312e12 * n),
            "MFU: 72 B s L h^2 (1 + s/6h + V/12Lh)"};
  if (trainer == "nanotron")
    return {(6 * params + 12 * layers * h * s) * tokens / ((rate > 0 ? rate : share * 989e12) * n),
            "TFLOP/s or MFU: 6 N + 12 L h s a token"};
  if (trainer == "deepspeed")
    return {(6 * params + 6 * layers * h * s) * tokens / (rate * n), "TFLOP/s: 6 N + 6 L h s a token"};
  return {0, ""};
}

bool is_readme_of_2020(const PublishedCells& c) { return c.text("source").starts_with("Megatron-LM README 2020"); }
// Its one table without a global batch: a micro-batch a step.
bool is_tp_sweep(const PublishedCells& c) { return c.text("source").starts_with("nanotron TP"); }

// What a layout cannot be made without and the table does not say; empty when nothing is missing.
std::string missing(const PublishedCells& c) {
  for (const char* needed : {"ngpus", "tp", "pp", "dp"})
    if (!c.has(needed)) return fmt::format("{} is not stated", needed);
  if (!c.has("micro_batch") && !is_readme_of_2020(c)) return "micro_batch is not stated";
  if (!c.has("global_batch") && !is_tp_sweep(c)) return "global_batch is not stated";
  return "";
}

// What is made again: Megatron's "selective" is attention, which a fused kernel does not keep; torchtitan's
// is of layers or ops.
void set_recompute(Layout& l, const PublishedCells& c, int64_t layers, const TrainerTraits& traits) {
  std::string recompute = is_readme_of_2020(c) ? "full" : c.text("recompute");
  if (c.mentions("source", "asyncTP") && recompute == "selective") recompute = "selective op";
  l.recompute_layers = layers;
  if (recompute == "full") l.recompute = Recompute::full;
  if (recompute == "selective layer") l.recompute = Recompute::full, l.recompute_layers = layers / 2;
  if (recompute == "selective op") l.recompute = Recompute::selective;
  if (recompute == "selective" && traits.attention == "unfused") l.recompute = Recompute::selective;
  if (l.recompute == Recompute::none) l.recompute_layers = 0;
}

TrainerTraits traits_of(const PublishedCells& c, const std::string& trainer, const Shipped& shipped) {
  const bool async = trainer == "torchtitan-h100" && c.mentions("notes", "async TP");
  TrainerTraits traits = trainer_named(shipped.trainers, async ? "torchtitan-h100-async" : trainer);
  if (trainer == "bloom" && c.text("precision") == "bf16")
    traits.gradient_bytes = 4, traits.accumulation_bytes = 10;  // published.toml
  return traits;
}

// Fills in what is predicted; what the table does not say of it, if anything.
std::string fill(PublishedRow& row, const PublishedCells& c, const Trainer& trainer, Shipped& shipped) {
  if (std::string what = missing(c); !what.empty()) return what;
  row.trainer = trainer.name;
  row.numbers = trainer.numbers;
  const bool readme = is_readme_of_2020(c);
  const int64_t seq = readme ? 1024 : c.whole("seq", 2048), micro = readme ? 16 : c.whole("micro_batch", 1);
  const int64_t batch = c.whole("global_batch", micro);
  const double h = c.number("hidden", 0), devices = c.number("ngpus", 0);
  int64_t layers = c.whole("layers", 0);
  if (layers == 0) {
    // BLOOM's table of topologies: from its TFLOP/s, 96 B s L h^2.
    layers = std::llround(c.number("tflops_per_gpu", 0) * 1e12 * devices * c.number("iter_time_s", 0) /
                          (96 * real(batch) * real(seq) * h * h));
    row.how = "layers from TFLOP/s; ";
  }
  Layout& l = row.layout;
  l.tp = c.whole("tp", 1);
  l.pp = c.whole("pp", 1);
  l.vpp = c.whole("vpp", 1);
  l.dp = c.whole("dp", 1);
  l.seq_len = seq;
  l.micro_batch = micro;
  // Sources round: 2040 samples in micro-batches of 12 x 16.
  l.global_batch = std::max<int64_t>(1, std::llround(real(batch) / real(l.dp * micro))) * l.dp * micro;
  l.zero = c.has("zero") ? c.whole("zero", 0) : row.trainer == "nemo" ? 1 : 0;
  l.sp = c.text("sp") == "1" || row.trainer == "nemo" || row.trainer.starts_with("torchtitan");
  l.sp = l.sp && l.tp > 1;
  l.stage_layers = stage_layers(layers, l.pp, l.vpp);
  // InternEvo's shards of 4 or 8 lie inside a node.
  if (row.trainer == "internevo" && (c.mentions("notes", "group=8") || c.mentions("notes", "group=4") ||
                                     c.mentions("notes", "group 8") || c.mentions("notes", "group 4")))
    l.zero_group = ZeroGroup::node;

  row.model = model_of(c, row.trainer, layers, l.tp, seq);
  row.traits = traits_of(c, row.trainer, shipped);
  set_recompute(l, c, layers, row.traits);

  const Published step = step_of(c, row.trainer, row.model, real(batch * seq));
  row.step_s = step.step_s;
  row.how += step.how;
  row.tflops = c.number("tflops_per_gpu", 0);
  row.mfu = c.number("mfu_pct", 0) / 100;
  if (!(row.step_s > 0)) return "memory alone, no time";
  row.cluster = cluster_of(c, row.trainer, std::llround(devices), shipped);
  row.group = fmt::format("{}, {}, {} devices, batch {}, sequence {}, width {}, {} layers, {} heads", row.source,
                          row.model_name, l.ranks(), batch, seq, row.model.width, layers, row.model.heads);
  return "";
}

}  // namespace

std::string published_trainer(const PublishedCells& cells) {
  const Trainer* trainer = trainer_of(cells);
  return trainer == nullptr ? "" : trainer->name;
}

std::vector<PublishedRow> published_rows(const std::filesystem::path& table) {
  Shipped shipped;
  std::vector<PublishedRow> rows;
  for (const PublishedCells& c : read_published_table(table)) {
    PublishedRow row{.line = c.line(),
                     .source = c.text("source"),
                     .model_name = c.text("model"),
                     .device = c.text("gpu"),
                     .excluded = obstacle(c)};
    if (row.excluded.empty()) row.excluded = fill(row, c, *trainer_of(c), shipped);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace rw
