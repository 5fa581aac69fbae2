// Fields of requests that nothing reads are accepted, and told once each.
#pragma once
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace rw {

class UnknownFields {
 public:
  // Those of `names` that were not seen before; of the first few hundred different ones alone, so that clients cannot
  // fill memory or log.
  std::vector<std::string> fresh(const std::vector<std::string>& names);
  void tell(const std::vector<std::string>& names);  // a line of the log for each that is fresh

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> seen_;
};

}  // namespace rw
