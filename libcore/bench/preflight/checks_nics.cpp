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
// NCCL: "mlx5" (all that start so), "=mlx5_0:1,mlx5_1" (whole names), "^mlx5_3", "^=mlx5_3" (all but). UCX:
// "mlx5_0:1,eth0", "all", "^mlx5_0:1".
constexpr CardChoice kChoices[] = {{"NCCL_IB_HCA", CardChoice::Match::start},
                                   {"UCX_NET_DEVICES", CardChoice::Match::whole}};

// What a rank's variable says.
struct NamedCards {
  std::vector<std::string> names;  // none: the choice is the library's
  bool is_whole = false;           // names, not the starts of names
  bool excludes = false;
  bool match(const std::string& card) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return is_whole ? card == name : card.starts_with(name); });
  }
};

NamedCards named_cards(const RankFacts& f, const CardChoice& choice) {
  NamedCards named{.names = {}, .is_whole = choice.match == CardChoice::Match::whole};
  const auto it = f.environment.find(choice.variable);
  if (it == f.environment.end() || it->second == "all") return named;
  std::string text = it->second;
  if (text.starts_with("^")) named.excludes = true, text.erase(0, 1);
  if (text.starts_with("=")) named.is_whole = true, text.erase(0, 1);
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');)
    if (const std::string name = part.substr(0, part.find(':')); !name.empty())
      named.names.push_back(name);  // a port follows
  return named;
}

// The host's cards that it leaves to the library, by their place.
std::vector<size_t> chosen_cards(const RankFacts& f, const NamedCards& named) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < f.topology.nics.size(); ++i)
    if (named.match(f.topology.nics[i]) != named.excludes) chosen.push_back(i);
  return chosen;
}

// All devices that a rank's variable may name: cards of the bus, those with counters ("mlx5_0/1 link_downed"),
// interfaces (UCX).
std::set<std::string> devices_of(const RankFacts& f) {
  std::set<std::string> devices(f.topology.nics.begin(), f.topology.nics.end());
  for (const auto& [name, count] : f.link_counters)
    if (const size_t slash = name.find('/'); slash != std::string::npos) devices.insert(name.substr(0, slash));
  for (const InterfaceFacts& i : f.interfaces) devices.insert(i.name);
  return devices;
}

// "NIC0" stands for a card whose name nvidia-smi does not tell.
bool knows_names(const GpuTopology& t) {
  return !t.nics.empty() &&
         std::none_of(t.nics.begin(), t.nics.end(), [](const auto& n) { return n.starts_with("NIC"); });
}

// The names that no device of the host has. Exceptions need not be there, and patterns ("mlx5_[0-3]") are passed over.
std::vector<std::string> missing_cards(const RankFacts& f, const NamedCards& named) {
  if (named.excludes || !knows_names(f.topology)) return {};
  std::vector<std::string> missing;
  const std::set<std::string> devices = devices_of(f);
  for (const std::string& name : named.names) {
    if (name.find_first_of("[]*?") != std::string::npos) continue;
    const NamedCards one{.names = {name}, .is_whole = named.is_whole};
    if (std::none_of(devices.begin(), devices.end(), [&](const std::string& d) { return one.match(d); }))
      missing.push_back(name);
  }
  return missing;
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

std::string list_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// A job script that names one card for all ranks sends those of the other socket across it; one that names a card that
// is not there, or excludes all, leaves a library without any.
CheckResult check_nic_cores(const JobFacts& job) {
  Judgement j("resources.nic_cores", "resources", "ranks that are told to use a card have it, on cores near it");
  int64_t told = 0, naming = 0;
  for (const RankFacts& f : job.ranks) {
    const bool knows_cores = !f.cores.empty() && knows_all(f.topology);
    if (!f.topology.nics.empty()) ++told;
    for (const CardChoice& choice : kChoices) {
      const NamedCards named = named_cards(f, choice);
      if (named.names.empty() || f.topology.nics.empty()) continue;
      ++naming;
      const std::string has =
          fmt::format("{} has {}={}", rank_name(f), choice.variable, f.environment.at(choice.variable));
      if (const std::vector<std::string> missing = missing_cards(f, named); !missing.empty()) {
        const bool is_none = missing.size() == named.names.size();
        j.find(is_none ? CheckStatus::fail : CheckStatus::warn, {f.rank},
               fmt::format("{}, but its host has no {}: its cards are {}", has, list_text(missing),
                           list_text(f.topology.nics)));
        if (is_none) continue;
      }
      const std::vector<size_t> chosen = chosen_cards(f, named);
      if (named.excludes && chosen.empty()) {
        j.find(CheckStatus::warn, {f.rank},
               fmt::format("{}, which leaves it none of {}", has, list_text(f.topology.nics)));
        continue;
      }
      const auto near = [&](size_t card) { return is_near(f, card); };
      if (!knows_cores || chosen.empty() || std::any_of(chosen.begin(), chosen.end(), near)) continue;
      std::vector<size_t> others;
      for (size_t i = 0; i < f.topology.nics.size(); ++i)
        if (near(i)) others.push_back(i);
      if (others.empty()) continue;
      j.find(CheckStatus::warn, {f.rank},
             fmt::format("{}, but {} is near its cores", has, f.topology.nics[others.front()]));
    }
  }
  return j.done(told == 0     ? "no RDMA card is told"
                : naming == 0 ? "no card is named: the libraries choose"
                              : "the named cards are there, none of them far from its rank where that is told",
                "leave the choice to the library (unset NCCL_IB_HCA, UCX_NET_DEVICES), or name for each rank the card "
                "near it, or all of them, as ls /sys/class/infiniband lists them");
}

}  // namespace

std::vector<CheckResult> nic_checks(const JobFacts& job) { return {check_nic_cores(job)}; }

}  // namespace rw
