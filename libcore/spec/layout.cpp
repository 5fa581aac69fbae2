#include "libcore/spec/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/spec/tensor_parallel.h"
#include "libcore/spec/train_spec.h"

namespace rw {
namespace {

int64_t to_count(std::string_view text, const char* flag, const char* expected) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 1 << 20)
    fail(ErrorKind::usage, "--{}: expected {}, found \"{}\"", flag, expected, text);
  return value;
}

// 0: auto.
int64_t asked_dp(const TrainSpec& spec) {
  return spec.dp == "auto" ? 0 : to_count(spec.dp, "dp", "auto or a whole number of at least 1");
}

template <typename Enum>
Enum choice(const std::string& text, const char* flag, std::initializer_list<std::pair<const char*, Enum>> known) {
  std::string names;
  for (const auto& [name, value] : known) {
    if (text == name) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  fail(ErrorKind::usage, "--{}: expected one of {}, found \"{}\"", flag, names, text);
}

// ---- the grid of ranks ----

struct Grid {
  int64_t tp, pp, vpp, dp;
};

std::string stage_fault(const ModelSpec& m, int64_t pp, int64_t vpp) {
  if (m.layers >= pp * vpp) return "";
  return fmt::format("--pp {} x --vpp {} = {} stages are more than the model's {} layers; each needs at least one", pp,
                     vpp, pp * vpp, m.layers);
}

std::string ranks_fault(const Grid& g, int64_t ranks) {
  if (g.dp == 0)
    return ranks % (g.tp * g.pp) == 0 ? ""
                                      : fmt::format("--tp {} x --pp {} = {} does not divide the number of ranks, {}",
                                                    g.tp, g.pp, g.tp * g.pp, ranks);
  if (g.tp * g.pp * g.dp == ranks) return "";
  return fmt::format(
      "--tp {} x --pp {} x --dp {} = {}, but there are {} ranks; expected as many (--dp auto takes what is left)", g.tp,
      g.pp, g.dp, g.tp * g.pp * g.dp, ranks);
}

// How far two grids are apart: factors of two in each direction.
double distance(const Grid& a, const Grid& b) {
  const auto apart = [](int64_t x, int64_t y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return apart(a.tp, b.tp) + apart(a.pp, b.pp) + apart(a.vpp, b.vpp) + (a.dp > 0 ? apart(a.dp, b.dp) : 0);
}

// "tp 2 x pp 4 x dp 2 or ...": the nearest grids of so many ranks that the model can have. A batch that was asked for
// is kept where that is possible.
std::string nearest_grids(const TrainSpec& spec, const ModelSpec& model, int64_t ranks, const Grid& asked) {
  constexpr size_t kShown = 3;
  std::vector<Grid> fits, fits_batch;
  const bool interleaved = spec.schedule == "interleaved";
  for (const int64_t tp : divisors(ranks)) {
    if (!tp_fault(model, tp).empty() || (spec.sp && tp == 1)) continue;
    for (const int64_t pp : divisors(ranks / tp)) {
      const int64_t vpp = std::min(asked.vpp, model.layers / pp);
      if (vpp < (interleaved ? 2 : 1)) continue;
      const Grid g{tp, pp, vpp, ranks / tp / pp};
      fits.push_back(g);
      if (spec.global_batch % (spec.micro_batch * g.dp * (interleaved ? pp : 1)) == 0) fits_batch.push_back(g);
    }
  }
  if (!fits_batch.empty()) fits = fits_batch;
  std::stable_sort(fits.begin(), fits.end(),
                   [&](const Grid& a, const Grid& b) { return distance(asked, a) < distance(asked, b); });
  if (fits.empty()) return fmt::format("no layout of {} ranks fits this model with these flags", ranks);
  std::string text = fmt::format("the nearest layouts that work on {} ranks: ", ranks);
  for (size_t i = 0; i < std::min(fits.size(), kShown); ++i) {
    const Grid& g = fits[i];
    text += fmt::format("{}tp {} x pp {}{} x dp {}", i == 0 ? "" : ", ", g.tp, g.pp,
                        asked.vpp > 1 ? fmt::format(" x vpp {}", g.vpp) : "", g.dp);
  }
  return text;
}

Grid settle_grid(const TrainSpec& spec, const ModelSpec& model, int64_t ranks) {
  Grid grid{spec.tp, spec.pp, spec.vpp, asked_dp(spec)};
  std::string fault = tp_fault(model, grid.tp);
  if (fault.empty()) fault = stage_fault(model, grid.pp, grid.vpp);
  if (fault.empty()) fault = ranks_fault(grid, ranks);
  if (!fault.empty()) fail(ErrorKind::usage, "{}; {}", fault, nearest_grids(spec, model, ranks, grid));
  grid.dp = ranks / (grid.tp * grid.pp);
  return grid;
}

// ---- options of one direction ----

void check_options(const TrainSpec& spec, const Layout& layout) {
  if (spec.sp && spec.tp == 1)
    fail(ErrorKind::usage,
         "--sp shards over the tensor-parallel ranks, but --tp is 1; give --tp 2 or more, or leave --sp out");
  if (layout.schedule == ScheduleKind::interleaved && spec.vpp == 1)
    fail(
        ErrorKind::usage,
        "--schedule interleaved runs several chunks a stage, but --vpp is 1; give --vpp 2 or more, or --schedule 1f1b");
  if (layout.zero_group == ZeroGroup::node && spec.zero == 0)
    fail(ErrorKind::usage, "--zero-group node says where --zero shards, but --zero is 0; give --zero 1, 2 or 3");
  if (spec.recompute_layers > 0 && layout.recompute == Recompute::none)
    fail(ErrorKind::usage,
         "--recompute-layers {} says where --recompute applies, but that is none; give --recompute selective or full",
         spec.recompute_layers);
}

// ---- batch ----

int64_t settle_seq_len(const TrainSpec& spec, const ModelSpec& model) {
  if (spec.seq_len > model.max_position)
    fail(ErrorKind::usage, "--seq-len = {} is longer than the model's longest sequence, {} (max_position_embeddings)",
         spec.seq_len, model.max_position);
  return spec.seq_len > 0 ? spec.seq_len : std::min<int64_t>(model.max_position, 1024);
}

constexpr int64_t kMostSamples = 1 << 24;  // of --global-batch

int64_t settle_global_batch(const TrainSpec& spec, const Layout& layout) {
  const int64_t pass = layout.micro_batch * layout.dp;
  if (spec.global_batch == 0) {  // as many micro-batches as stages
    if (pass * layout.pp > kMostSamples)
      fail(ErrorKind::usage,
           "--micro-batch x dp x pp = {} samples is more than --global-batch may be, {}; use a smaller "
           "--micro-batch",
           pass * layout.pp, kMostSamples);
    return pass * layout.pp;
  }
  const auto refuse = [&](const std::string& fault, int64_t unit) {
    const int64_t below = spec.global_batch / unit * unit;
    const std::string fit = below == 0 ? fmt::format("the least that fits is {}", unit)
                                       : fmt::format("the nearest that fit are {} and {}", below, below + unit);
    fail(ErrorKind::usage, "--global-batch = {} {}; {}", spec.global_batch, fault, fit);
  };
  const bool interleaved = layout.schedule == ScheduleKind::interleaved;
  if (spec.global_batch % pass != 0)
    refuse(fmt::format("is not divisible by --micro-batch x dp = {} x {} = {}", layout.micro_batch, layout.dp, pass),
           interleaved ? pass * layout.pp : pass);
  const int64_t micro_batches = spec.global_batch / pass;
  if (interleaved && micro_batches % layout.pp != 0)
    refuse(fmt::format("makes {} micro-batches of a pipeline (micro-batch {} x dp {}), but --schedule interleaved "
                       "needs a multiple of --pp {}",
                       micro_batches, layout.micro_batch, layout.dp, layout.pp),
           pass * layout.pp);
  return spec.global_batch;
}

// ---- layers ----

std::vector<int64_t> asked_stage_layers(const TrainSpec& spec, const ModelSpec& model) {
  std::vector<int64_t> layers;
  for (std::string_view rest = spec.stage_layers;;) {
    const size_t comma = rest.find(',');
    layers.push_back(to_count(rest.substr(0, comma), "stage-layers", "numbers of layers of at least 1, like 5,6,6,5"));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  const auto n = static_cast<int64_t>(layers.size()), sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (n != spec.pp * spec.vpp || sum != model.layers) {
    std::string dealt;
    for (const int64_t l : deal_layers(model, spec.pp * spec.vpp, settle_seq_len(spec, model)))
      dealt += (dealt.empty() ? "" : ",") + std::to_string(l);
    fail(
        ErrorKind::usage,
        "--stage-layers {} has {} entries with {} layers in all; expected --pp x --vpp = {} x {} = {} entries that add "
        "up to the model's {} layers, like {}",
        spec.stage_layers, n, sum, spec.pp, spec.vpp, spec.pp * spec.vpp, model.layers, dealt);
  }
  return layers;
}

}  // namespace

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d * d <= n; ++d)
    if (n % d == 0) {
      found.push_back(d);
      if (d != n / d) found.push_back(n / d);
    }
  std::sort(found.begin(), found.end());
  return found;
}

const char* recompute_name(Recompute r) {
  switch (r) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
  }
  return "?";
}

PipelineShape Layout::pipeline() const {
  return {.kind = schedule,
          .stages = static_cast<int>(pp),
          .chunks = static_cast<int>(vpp),
          .micro_batches = static_cast<int>(micro_batches())};
}

Layout::Layers Layout::layers_of(int64_t stage, int64_t chunk) const {
  const int64_t v = chunk * pp + stage;
  CHECK(stage >= 0 && stage < pp && v >= 0 && v < static_cast<int64_t>(stage_layers.size()), "stage %lld, chunk %lld",
        static_cast<long long>(stage), static_cast<long long>(chunk));
  const auto first = stage_layers.begin();
  const int64_t begin = std::accumulate(first, first + v, int64_t{0});
  return {begin, begin + stage_layers[static_cast<size_t>(v)]};
}

int64_t largest_stage(const Layout& layout) {
  int64_t most = 0;
  for (int64_t stage = 0; stage < layout.pp; ++stage) {
    int64_t sum = 0;
    for (int64_t chunk = 0; chunk < layout.vpp; ++chunk) {
      const Layout::Layers l = layout.layers_of(stage, chunk);
      sum += l.end - l.begin;
    }
    most = std::max(most, sum);
  }
  return most;
}

std::string Layout::text() const {
  std::string out = fmt::format("tp {} x pp {}", tp, pp);
  if (vpp > 1) out += fmt::format(" x vpp {}", vpp);
  if (pp * vpp > 1) out += fmt::format(" ({})", schedule_name(schedule));
  out += fmt::format(" x dp {}", dp);
  if (sp) out += ", sp";
  if (zero > 0) out += fmt::format(", zero {}{}", zero, zero_group == ZeroGroup::node ? " within nodes" : "");
  if (recompute != Recompute::none) {
    out += fmt::format(", recompute {}", recompute_name(recompute));
    const bool settled = static_cast<int64_t>(stage_layers.size()) == pp * vpp;
    if (settled && recompute_layers > 0 && recompute_layers < largest_stage(*this))
      out += fmt::format(" in {} of a stage's {} layers", recompute_layers, largest_stage(*this));
  }
  return out;
}

int64_t ranks_needed(const TrainSpec& spec) { return spec.tp * spec.pp * std::max<int64_t>(1, asked_dp(spec)); }

int64_t zero_ranks(const Layout& layout, int64_t ranks_per_node) {
  if (layout.zero == 0) return 1;
  if (layout.zero_group == ZeroGroup::all) return layout.dp;
  const int64_t per_node = ranks_per_node / layout.tp;
  if (ranks_per_node < 1 || ranks_per_node % layout.tp != 0 || (layout.dp % per_node != 0 && per_node % layout.dp != 0))
    fail(
        ErrorKind::usage,
        "--zero-group node: nodes of {} ranks do not hold whole groups of tp {} x dp {} ranks; expected --tp to divide "
        "a node's ranks, and what is left of a node to divide dp or be a multiple of it (or --zero-group all)",
        ranks_per_node, layout.tp, layout.dp);
  return std::min(per_node, layout.dp);
}

Layout settle_layout(const TrainSpec& spec, const ModelSpec& model, int64_t ranks) {
  CHECK(ranks >= 1 && spec.tp >= 1 && spec.pp >= 1 && spec.vpp >= 1 && spec.micro_batch >= 1,
        "every size is at least 1, as the fields' bounds say");
  Layout layout{.tp = spec.tp,
                .pp = spec.pp,
                .vpp = spec.vpp,
                .sp = spec.sp,
                .zero = spec.zero,
                .zero_group = choice<ZeroGroup>(spec.zero_group, "zero-group",
                                                {{"all", ZeroGroup::all}, {"node", ZeroGroup::node}}),
                .recompute = choice<Recompute>(
                    spec.recompute, "recompute",
                    {{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}}),
                .schedule = choice<ScheduleKind>(spec.schedule, "schedule",
                                                 {{"gpipe", ScheduleKind::gpipe},
                                                  {"1f1b", ScheduleKind::one_f_one_b},
                                                  {"interleaved", ScheduleKind::interleaved},
                                                  {"zb-h1", ScheduleKind::zb_h1}}),
                .micro_batch = spec.micro_batch,
                .seq_len = settle_seq_len(spec, model)};
  check_options(spec, layout);
  layout.dp = settle_grid(spec, model, ranks).dp;
  layout.global_batch = settle_global_batch(spec, layout);
  layout.stage_layers = spec.stage_layers.empty() ? deal_layers(model, spec.pp * spec.vpp, layout.seq_len)
                                                  : asked_stage_layers(spec, model);
  if (layout.recompute != Recompute::none) {
    const int64_t most = largest_stage(layout);
    layout.recompute_layers = spec.recompute_layers == 0 ? most : std::min(spec.recompute_layers, most);
  }
  return layout;
}

}  // namespace rw
