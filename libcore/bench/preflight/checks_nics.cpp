#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "libcore/bench/preflight/judge.h"

namespace rw {
namespace {

// A variable that says which cards a library may use.
struct CardChoice {
  const char* variable;
  enum class Match { start, whole } match;  // of a card's name
};
// NCCL: "mlx5" (all that start so), "=mlx5_0:1,mlx5_1" (whole names), "^mlx5_3" (all but). UCX: "mlx5_0:1,eth0", "all".
constexpr CardChoice kChoices[] = {{"NCCL_IB_HCA", CardChoice::Match::start},
                                   {"UCX_NET_DEVICES", CardChoice::Match::whole}};

// The host's cards that it names, by their place; none where it leaves the choice to the library.
std::vector<size_t> chosen_cards(const RankFacts& f, const CardChoice& choice) {
  const auto it = f.environment.find(choice.variable);
  if (it == f.environment.end() || it->second.starts_with("^")) return {};
  const bool is_whole = choice.match == CardChoice::Match::whole || it->second.starts_with("=");
  std::vector<size_t> chosen;
  std::istringstream parts(it->second.substr(it->second.starts_with("=") ? 1 : 0));
  for (std::string part; std::getline(parts, part, ',');) {
    const std::string name = part.substr(0, part.find(':'));  // a port follows
    for (size_t i = 0; !name.empty() && i < f.topology.nics.size(); ++i)
      if (is_whole ? f.topology.nics[i] == name : f.topology.nics[i].starts_with(name)) chosen.push_back(i);
  }
  return chosen;
}

bool is_near(const RankFacts& f, size_t card) {
  const std::vector<int64_t>& near = f.topology.nic_cores[card];
  return std::any_of(f.cores.begin(), f.cores.end(),
                     [&](int64_t c) { return std::find(near.begin(), near.end(), c) != near.end(); });
}

bool knows_all(const GpuTopology& t) {
  return !t.nics.empty() && t.nic_cores.size() == t.nics.size() &&
         std::none_of(t.nic_cores.begin(), t.nic_cores.end(), [](const auto& cores) { return cores.empty(); });
}

// A job script that names one card for all ranks sends those of the other socket across it.
CheckResult check_nic_cores(const JobFacts& job) {
  Judgement j("resources.nic_cores", "resources", "ranks that are told to use a card on cores near it");
  int64_t n = 0;
  for (const RankFacts& f : job.ranks) {
    if (f.cores.empty() || !knows_all(f.topology)) continue;
    ++n;
    for (const CardChoice& choice : kChoices) {
      const std::vector<size_t> chosen = chosen_cards(f, choice);
      const auto near = [&](size_t card) { return is_near(f, card); };
      if (chosen.empty() || std::any_of(chosen.begin(), chosen.end(), near)) continue;
      std::vector<size_t> others;
      for (size_t i = 0; i < f.topology.nics.size(); ++i)
        if (near(i)) others.push_back(i);
      if (others.empty()) continue;
      j.find(CheckStatus::warn, {f.rank},
             fmt::format("{} has {}={}, but {} is near its cores", rank_name(f), choice.variable,
                         f.environment.at(choice.variable), f.topology.nics[others.front()]));
    }
  }
  return j.done(
      n == 0 ? "not told" : fmt::format("{} ranks", n),
      "leave the choice to the library (unset NCCL_IB_HCA, UCX_NET_DEVICES), or name for each rank the card near "
      "it, or all of them");
}

}  // namespace

std::vector<CheckResult> nic_checks(const JobFacts& job) { return {check_nic_cores(job)}; }

}  // namespace rw
