#include "libcore/bench/preflight/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace rw {
namespace {

constexpr size_t kToldFindings = 4;

std::string shown(const std::string& value) {
  constexpr size_t kLongest = 48;
  return value.size() <= kLongest ? value : value.substr(0, kLongest - 3) + "...";
}

}  // namespace

Judgement::Judgement(std::string id, std::string layer, std::string expected) {
  result_.id = std::move(id);
  result_.layer = std::move(layer);
  result_.expected = std::move(expected);
}

void Judgement::find(CheckStatus status, const std::vector<int64_t>& ranks, const std::string& found) {
  result_.status = std::max(result_.status, status);
  ranks_.insert(ranks.begin(), ranks.end());
  result_.found += (result_.found.empty() ? "" : "; ") + found;
}

CheckResult Judgement::done(const std::string& all_well, const std::string& fix) const {
  CheckResult result = result_;
  result.ranks.assign(ranks_.begin(), ranks_.end());
  if (result.status == CheckStatus::pass) result.found = all_well;
  else result.fix = fix;
  return result;
}

std::string rank_name(const RankFacts& f) { return fmt::format("rank {} ({})", f.rank, f.host); }

std::set<std::string> host_names(const JobFacts& job) {
  std::set<std::string> names;
  for (const RankFacts& f : job.ranks) names.insert(f.host);
  return names;
}

std::vector<const RankFacts*> first_of_hosts(const JobFacts& job) {
  std::vector<const RankFacts*> first;
  std::set<std::string> seen;
  for (const RankFacts& f : job.ranks)
    if (seen.insert(f.host).second) first.push_back(&f);
  return first;
}

void expect_agreement(Judgement& judgement, const JobFacts& job, const Agreement& a) {
  std::map<std::string, size_t> counts;
  std::string most;
  for (const RankFacts& f : job.ranks)
    if (const std::string v = a.value(f); !v.empty()) {
      ++counts[v];
      if (most.empty()) most = v;  // rank 0's, where it knows
    }
  for (const auto& [value, n] : counts)
    if (n > counts[most]) most = value;
  std::vector<int64_t> unlike;
  std::string told;
  for (const RankFacts& f : job.ranks) {
    const std::string v = a.value(f);
    if (v.empty() || v == most) continue;
    unlike.push_back(f.rank);
    if (unlike.size() <= kToldFindings)
      told += fmt::format("{}{} has {}", told.empty() ? "" : ", ", rank_name(f), shown(v));
  }
  if (unlike.empty()) return;
  if (unlike.size() > kToldFindings) told += fmt::format(", {} more", unlike.size() - kToldFindings);
  judgement.find(a.status, unlike, fmt::format("{}: {}; the others {}", a.what, told, shown(most)));
}

}  // namespace rw
