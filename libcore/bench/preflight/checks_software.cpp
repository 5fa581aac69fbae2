#include <fmt/format.h>

#include "libcore/bench/preflight/judge.h"

namespace rw {
namespace {

constexpr const char* kLayer = "software";

std::string value_or(const std::map<std::string, std::string>& map, const std::string& key, const char* otherwise) {
  const auto it = map.find(key);
  return it != map.end() ? it->second : otherwise;
}

CheckResult check_binary(const JobFacts& job) {
  Judgement j("software.binary", kLayer, "the same program on every rank");
  expect_agreement(j, job, {"program", CheckStatus::fail, [](const RankFacts& f) { return f.binary; }});
  return j.done(job.ranks.at(0).binary.empty() ? "unknown" : "program " + job.ranks.at(0).binary + " on every rank",
                "install the same build on every host, or start it from a shared folder");
}

CheckResult check_versions(const JobFacts& job) {
  Judgement j("software.versions", kLayer, "the same libraries on every rank");
  std::set<std::string> names;
  for (const RankFacts& f : job.ranks)
    for (const auto& [name, version] : f.versions) names.insert(name);
  std::string all;
  for (const std::string& name : names) {
    // Ranks of two MPI libraries do not understand each other, and two HDF5s may not read each other's files.
    const bool is_vital = name == "MPI" || name == "HDF5";
    expect_agreement(j, job, {name, is_vital ? CheckStatus::fail : CheckStatus::warn, [&](const RankFacts& f) {
                                return value_or(f.versions, name, "");
                              }});
    all += (all.empty() ? "" : ", ") + name + " " + value_or(job.ranks.at(0).versions, name, "?");
  }
  return j.done(all.empty() ? "unknown" : all, "install the same versions on every host, or use one container image");
}

CheckResult check_environment(const JobFacts& job) {
  Judgement j("software.environment", kLayer,
              "the same OMP_*, OMPI_MCA_*, NCCL_*, CUDA_*, RANKWRIGHT_* variables on every rank");
  std::set<std::string> names;
  for (const RankFacts& f : job.ranks)
    for (const auto& [name, value] : f.environment) names.insert(name);
  for (const std::string& name : names)
    expect_agreement(j, job, {name, CheckStatus::warn, [&](const RankFacts& f) {
                                return value_or(f.environment, name, "(not set)");
                              }});
  return j.done(fmt::format("{} variables, the same on every rank", names.size()),
                "set them for all ranks with mpirun -x NAME=VALUE, and not in a shell's start-up file of one host");
}

}  // namespace

std::vector<CheckResult> software_checks(const JobFacts& job, const PreflightNeeds&) {
  return {check_binary(job), check_versions(job), check_environment(job)};
}

}  // namespace rw
