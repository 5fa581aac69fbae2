// What several checks do alike: compare ranks, name them, keep the worst.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "libcore/bench/preflight/checks.h"

namespace rw {

// A check under way: passes until somebody finds something; the worst finding gives the status, all are told.
class Judgement {
 public:
  Judgement(std::string id, std::string layer, std::string expected);
  // `ranks` are concerned; `found` says what, in a few words.
  void find(CheckStatus status, const std::vector<int64_t>& ranks, const std::string& found);
  // The result: `all_well` is what was found when nothing was; `fix` is told otherwise.
  CheckResult done(const std::string& all_well, const std::string& fix) const;

 private:
  CheckResult result_;
  std::set<int64_t> ranks_;
};

std::string rank_name(const RankFacts& f);  // "rank 3 (host b)"
std::set<std::string> host_names(const JobFacts& job);
std::vector<const RankFacts*> first_of_hosts(const JobFacts& job);  // a rank of each host, the lowest

// The values that ranks have; those unlike most others (of two equally many, unlike rank 0's) are found.
struct Agreement {
  std::string what;  // "MTU of eth0"
  CheckStatus status;
  std::function<std::string(const RankFacts&)> value;  // ""; not known, never unlike
};
void expect_agreement(Judgement& judgement, const JobFacts& job, const Agreement& a);

}  // namespace rw
