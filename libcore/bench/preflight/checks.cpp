#include "libcore/bench/preflight/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/bench/preflight/judge.h"

namespace rw {

const char* check_status_name(CheckStatus status) {
  switch (status) {
    case CheckStatus::pass: return "pass";
    case CheckStatus::warn: return "warn";
    case CheckStatus::fail: return "fail";
  }
  return "?";
}

FieldList fields(PreflightNeeds& n) {
  return {
      {.name = "min-memory",
       .value = &n.min_memory,
       .help = "memory free for each rank of a host",
       .min = 0,
       .is_size = true},
      {.name = "min-shm", .value = &n.min_shm, .help = "free in /dev/shm of a host", .min = 0, .is_size = true},
      {.name = "min-disk",
       .value = &n.min_disk,
       .help = "disk free where the run will write",
       .min = 0,
       .is_size = true},
      {.name = "min-disk-mb-s",
       .value = &n.min_disk_mb_per_s,
       .help = "MB/s of 16 MiB written and fsynced there",
       .min = 0},
      {.name = "min-memlock",
       .value = &n.min_memlock,
       .help = "memory that may be locked, on hosts with GPUs or RDMA",
       .min = 0,
       .is_size = true},
      {.name = "min-open-files", .value = &n.min_open_files, .help = "files that a rank may open", .min = 0},
      {.name = "max-skew-ms", .value = &n.max_skew_ms, .help = "ms that a clock may differ from rank 0's", .min = 0},
      {.name = "min-pair-ratio",
       .value = &n.min_pair_ratio,
       .help = "of a pair's bandwidth to the median pair's: below it warns, below 5/8 of it fails",
       .min = 0,
       .max = 1},
      {.name = "min-gemm-ratio",
       .value = &n.min_gemm_ratio,
       .help = "of a rank's matrix products to the median rank's: below it warns, below 3/4 of it fails",
       .min = 0,
       .max = 1},
  };
}

std::vector<CheckResult> run_checks(const JobFacts& job, const PreflightNeeds& needs) {
  std::vector<CheckResult> all;
  for (auto* checks : {software_checks, network_checks, resource_checks, speed_checks})
    for (CheckResult& result : checks(job, needs)) all.push_back(std::move(result));
  return all;
}

CheckStatus worst_status(const std::vector<CheckResult>& results) {
  CheckStatus worst = CheckStatus::pass;
  for (const CheckResult& r : results) worst = std::max(worst, r.status);
  return worst;
}

std::string checks_text(const std::vector<CheckResult>& results) {
  std::string out;
  int64_t count[3] = {};
  for (const CheckResult& r : results) {
    ++count[static_cast<size_t>(r.status)];
    out += fmt::format("{}  {:<22} {}\n", check_status_name(r.status), r.id, r.found);
    if (r.status == CheckStatus::pass) continue;
    out += fmt::format("      {:<22} expected: {}\n      {:<22} fix: {}\n", "", r.expected, "", r.fix);
  }
  return out + fmt::format("{} passed, {} warned, {} failed\n", count[0], count[1], count[2]);
}

Json checks_json(const std::vector<CheckResult>& results) {
  Json checks = Json::array();
  for (const CheckResult& r : results)
    checks.push_back({{"id", r.id},
                      {"layer", r.layer},
                      {"status", check_status_name(r.status)},
                      {"ranks", r.ranks},
                      {"found", r.found},
                      {"expected", r.expected},
                      {"fix", r.fix}});
  return checks;
}

}  // namespace rw
