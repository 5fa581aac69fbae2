#include "tests/support/layout_matrix.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>
#include <tuple>

#include "libcore/base/rng.h"

namespace rw::parallel {
namespace {

constexpr std::array kFamilies = {"gpt2", "llama", "qwen2"};
constexpr std::array<int64_t, 3> kSizes = {1, 2, 4};
constexpr std::array kSchedules = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                   ScheduleKind::zb_h1};
constexpr std::array kRecomputes = {Recompute::none, Recompute::selective, Recompute::full};
constexpr int kChoices[Combination::n_parameters] = {3, 3, 3, 4, 2, 3, 4, 2, 3};
constexpr int64_t kMostRanks = 8;

bool valid(const Layout& l, const ModelSpec& model) {
  if (l.ranks() > kMostRanks || (l.sp && l.tp == 1) || model.layers < l.pp * l.vpp) return false;
  // One stage has one order of forwards and backwards; only the split backward is another way to run.
  if (l.pp == 1 && l.schedule != ScheduleKind::one_f_one_b && l.schedule != ScheduleKind::zb_h1) return false;
  return l.schedule != ScheduleKind::interleaved || (l.vpp > 1 && l.micro_batches() % l.pp == 0);
}

using Pair = std::tuple<int, int, int, int>;  // parameter and choice, twice

std::vector<Pair> pairs_of(const Combination& c) {
  std::vector<Pair> pairs;
  for (int a = 0; a < Combination::n_parameters; ++a)
    for (int b = a + 1; b < Combination::n_parameters; ++b) pairs.emplace_back(a, c.choice[a], b, c.choice[b]);
  return pairs;
}

}  // namespace

std::string Combination::family_name() const { return kFamilies[static_cast<size_t>(choice[family])]; }

Layout Combination::layout() const {
  const auto pick = [&](const auto& choices, Parameter p) { return choices[static_cast<size_t>(choice[p])]; };
  Layout l = base_layout();
  l.tp = pick(kSizes, tp);
  l.pp = pick(kSizes, pp);
  l.schedule = pick(kSchedules, schedule);
  l.vpp = pick(kSizes, vpp);
  l.dp = pick(kSizes, dp);
  // Pipelines of 8 micro-batches, 4 with dp 4: more than stages, so that memory of one serves another.
  l.micro_batch = l.dp == 1 ? 2 : 1;
  l.zero = choice[zero];
  l.sp = choice[sp] == 1;
  l.recompute = pick(kRecomputes, recompute);
  return l;
}

std::vector<Combination> layout_matrix() {
  std::vector<Combination> all;
  for (Combination c;;) {
    if (valid(c.layout(), family_model(c.family_name()))) all.push_back(c);
    int p = Combination::n_parameters - 1;
    while (p >= 0 && ++c.choice[p] == kChoices[p]) c.choice[p--] = 0;
    if (p < 0) return all;
  }
}

std::vector<Combination> pairwise_cover(const std::vector<Combination>& all) {
  std::set<Pair> missing;
  for (const Combination& c : all)
    for (const Pair& p : pairs_of(c)) missing.insert(p);
  std::vector<Combination> cover;
  while (!missing.empty()) {
    const auto adds = [&](const Combination& c) {
      const std::vector<Pair> pairs = pairs_of(c);
      return std::count_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return missing.contains(p); });
    };
    const Combination* best = nullptr;
    int64_t most = 0;
    for (const Combination& c : all)
      if (const int64_t n = adds(c); n > most) best = &c, most = n;
    for (const Pair& p : pairs_of(*best)) missing.erase(p);
    cover.push_back(*best);
  }
  return cover;
}

std::vector<Combination> random_part(const std::vector<Combination>& all, int64_t k, int64_t n) {
  const Permutation place(all.size(), rng_key(0, "layout matrix"));
  const auto total = static_cast<int64_t>(all.size());
  std::vector<Combination> part;
  for (int64_t i = total * k / n; i < total * (k + 1) / n; ++i) part.push_back(all[place(static_cast<uint64_t>(i))]);
  return part;
}

std::vector<Combination> combinations_to_run() {
  constexpr int64_t kParts = 60;
  const std::vector<Combination> all = layout_matrix();
  const char *full = std::getenv("RANKWRIGHT_FULL"), *seed = std::getenv("RANKWRIGHT_SEED");
  if (full != nullptr && std::string_view(full) == "1") return all;
  std::vector<Combination> some = pairwise_cover(all);
  if (seed != nullptr && std::string_view(seed) == "none") return some;
  const int64_t k = seed == nullptr ? 0 : std::strtoll(seed, nullptr, 10);
  for (const Combination& c : random_part(all, (k % kParts + kParts) % kParts, kParts)) some.push_back(c);
  return some;
}

}  // namespace rw::parallel
