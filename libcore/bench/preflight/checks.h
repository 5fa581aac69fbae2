// The questions of `dbench preflight`, each a pure function of the job's facts. docs/preflight.md says for each what it
// asks, its threshold, why, and what to do.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/base/json.h"
#include "libcore/bench/preflight/rank_facts.h"

namespace rw {

enum class CheckStatus : uint8_t { pass, warn, fail };
const char* check_status_name(CheckStatus status);

struct CheckResult {
  std::string id;     // "clock.skew"
  std::string layer;  // software, network, resources, speed
  CheckStatus status = CheckStatus::pass;
  std::vector<int64_t> ranks;        // that are concerned; none when it passes
  std::string found, expected, fix;  // fix: what to do; "" when it passes
};

// What a job needs; the rest of the thresholds are constants of the checks.
struct PreflightNeeds {
  int64_t min_memory = 1 << 30;    // bytes free, for each rank of a host
  int64_t min_shm = 256 << 20;     // bytes free in /dev/shm of a host
  int64_t min_disk = 1 << 30;      // bytes free where the run will write
  double min_disk_mb_per_s = 20;   // of a write with fsync
  int64_t min_memlock = 64 << 20;  // bytes that may be locked, where there are GPUs or RDMA
  int64_t min_open_files = 1024;
  double max_skew_ms = 50;
  double min_pair_ratio = 0.8;  // of a pair's bandwidth to the median's: below it warns, below half fails
  double min_gemm_ratio = 0.8;  // of a rank's speed to the median's: below it warns, below 0.6 fails
};
FieldList fields(PreflightNeeds& needs);

// By layer: software, network, resources, speed. Always the same ids, in the same order.
std::vector<CheckResult> run_checks(const JobFacts& job, const PreflightNeeds& needs);

// The parts.
std::vector<CheckResult> software_checks(const JobFacts& job, const PreflightNeeds& needs);
std::vector<CheckResult> network_checks(const JobFacts& job, const PreflightNeeds& needs);
std::vector<CheckResult> resource_checks(const JobFacts& job, const PreflightNeeds& needs);
std::vector<CheckResult> gpu_checks(const JobFacts& job);  // of the resources
std::vector<CheckResult> nic_checks(const JobFacts& job);  // of the resources
std::vector<CheckResult> speed_checks(const JobFacts& job, const PreflightNeeds& needs);

CheckStatus worst_status(const std::vector<CheckResult>& results);
std::string checks_text(const std::vector<CheckResult>& results);  // a table for people, and what to do
Json checks_json(const std::vector<CheckResult>& results);

}  // namespace rw
