#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "libcore/base/units.h"
#include "libcore/bench/preflight/judge.h"

namespace rw {
namespace {

constexpr const char* kLayer = "resources";
constexpr int64_t kLeastProcesses = 1024;
constexpr double kBusyLoad = 0.5;  // of a host's cores, before the job began
constexpr double kMuchSteal = 0.02;

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::vector<const RankFacts*> ranks_of(const JobFacts& job, const std::string& host) {
  std::vector<const RankFacts*> ranks;
  for (const RankFacts& f : job.ranks)
    if (f.host == host) ranks.push_back(&f);
  return ranks;
}

// Something of each host that there must be enough of.
struct Enough {
  const char* id;
  std::string expected, fix;
  std::string (*text)(int64_t);
  int64_t (*value)(const RankFacts&);  // -1: not known, or without limit
  int64_t warn_below, fail_below;
};
CheckResult check_enough(const JobFacts& job, const Enough& e) {
  Judgement j(e.id, kLayer, e.expected);
  int64_t least = -1;
  for (const RankFacts* f : first_of_hosts(job)) {
    const int64_t v = e.value(*f);
    if (v < 0) continue;
    if (least < 0 || v < least) least = v;
    if (v >= e.warn_below) continue;
    j.find(v < e.fail_below ? CheckStatus::fail : CheckStatus::warn, {f->rank},
           fmt::format("{} has {}", f->host, e.text(v)));
  }
  return j.done(least < 0 ? "no limit" : e.text(least) + " or more", e.fix);
}

std::string count_text(int64_t n) { return fmt::format("{}", n); }

CheckResult check_memory(const JobFacts& job, const PreflightNeeds& needs) {
  Judgement j("resources.memory", kLayer, size_text(needs.min_memory) + " free for each rank of a host (--min-memory)");
  int64_t least = -1;
  for (const RankFacts* f : first_of_hosts(job)) {
    if (f->memory_available < 0) continue;
    const auto n = static_cast<int64_t>(ranks_of(job, f->host).size());
    const int64_t each = f->memory_available / n;
    if (least < 0 || each < least) least = each;
    if (each < needs.min_memory)
      j.find(CheckStatus::fail, {f->rank},
             fmt::format("{} has {} free for {} ranks", f->host, size_text(f->memory_available), n));
  }
  return j.done(least < 0 ? "unknown" : size_text(least) + " a rank or more",
                "end what else runs there, start fewer ranks a host, or split the model further (dplan memory)");
}

CheckResult check_memlock(const JobFacts& job, const PreflightNeeds& needs) {
  Judgement j("resources.memlock", kLayer,
              size_text(needs.min_memlock) + " that may be locked, where there are GPUs or RDMA (--min-memlock)");
  for (const RankFacts* f : first_of_hosts(job))
    if ((f->has_rdma || !f->gpus.empty()) && f->memlock_bytes >= 0 && f->memlock_bytes < needs.min_memlock)
      j.find(CheckStatus::warn, {f->rank}, fmt::format("{} has {}", f->host, size_text(f->memlock_bytes)));
  return j.done("enough, or nothing there needs it",
                "ulimit -l unlimited before mpirun, in limits.conf or the batch system's service file");
}

bool is_full(const std::string& error) { return error == std::strerror(ENOSPC) || error == std::strerror(EDQUOT); }

CheckResult check_disk(const JobFacts& job, const PreflightNeeds& needs) {
  Judgement j("resources.disk", kLayer, size_text(needs.min_disk) + " free where the run writes (--min-disk, --out)");
  int64_t least = -1;
  bool is_short = false, is_refused = false;
  for (const RankFacts* f : first_of_hosts(job)) {
    if (!f->disk_error.empty()) {
      (is_full(f->disk_error) ? is_short : is_refused) = true;
      j.find(CheckStatus::fail, {f->rank},
             fmt::format("{} cannot write {}: {}", rank_name(*f), f->disk_dir, f->disk_error));
    }
    if (f->disk_free < 0) continue;
    if (least < 0 || f->disk_free < least) least = f->disk_free;
    if (f->disk_free < needs.min_disk) {
      is_short = true;
      j.find(CheckStatus::fail, {f->rank},
             fmt::format("{} has {} free in {}", f->host, size_text(f->disk_free), f->disk_dir));
    }
  }
  const std::string room = "free some, or point --out to another disk; keep room for two checkpoints";
  const std::string folder = "point --out to a folder, made or to be made, that this user may write on every host";
  return j.done(least < 0 ? "unknown" : size_text(least) + " free or more", is_short && is_refused
                                                                                ? folder + "; " + room
                                                                            : is_refused ? folder
                                                                                         : room);
}

CheckResult check_disk_speed(const JobFacts& job, const PreflightNeeds& needs) {
  Judgement j("resources.disk_speed", kLayer,
              fmt::format("{:.4g} MB/s with fsync where the run writes (--min-disk-mb-s)", needs.min_disk_mb_per_s));
  double least = kUnknown;
  for (const RankFacts* f : first_of_hosts(job)) {
    if (std::isnan(f->disk_mb_per_s)) continue;
    least = std::isnan(least) ? f->disk_mb_per_s : std::min(least, f->disk_mb_per_s);
    if (f->disk_mb_per_s < needs.min_disk_mb_per_s)
      j.find(CheckStatus::warn, {f->rank}, fmt::format("{} writes {:.3g} MB/s", f->host, f->disk_mb_per_s));
  }
  return j.done(std::isnan(least) ? "not tried" : fmt::format("{:.4g} MB/s or more", least),
                "use a faster disk for checkpoints, or save more seldom (dplan ckpt says how often)");
}

// Ranks whose cores overlap need as many cores together as they have threads.
CheckResult check_cores(const JobFacts& job) {
  Judgement j("resources.cores", kLayer, "a core for each thread of a host's ranks");
  for (const std::string& host : host_names(job)) {
    const auto ranks = ranks_of(job, host);
    for (const RankFacts* a : ranks) {
      if (a->cores.empty()) continue;
      std::set<int64_t> cores(a->cores.begin(), a->cores.end());
      int64_t threads = 0;
      std::vector<int64_t> sharing;
      for (const RankFacts* b : ranks)
        if (std::any_of(b->cores.begin(), b->cores.end(), [&](int64_t c) { return cores.contains(c); })) {
          threads += b->threads;
          sharing.push_back(b->rank);
        }
      // The same cores for all that share, or the lowest of them speaks.
      if (sharing.front() != a->rank || sharing.size() < 2) continue;
      for (const RankFacts* b : ranks)
        if (std::find(sharing.begin(), sharing.end(), b->rank) != sharing.end())
          cores.insert(b->cores.begin(), b->cores.end());
      if (threads > static_cast<int64_t>(cores.size()))
        j.find(CheckStatus::warn, sharing,
               fmt::format("{}: {} ranks with {} threads share {} cores", host, sharing.size(), threads, cores.size()));
    }
  }
  const RankFacts& first = job.ranks.at(0);
  return j.done(fmt::format("rank 0 has {} core{} for {} thread{}", first.cores.size(),
                            first.cores.size() == 1 ? "" : "s", first.threads, first.threads == 1 ? "" : "s"),
                "start fewer ranks or threads a host (OMP_NUM_THREADS), or bind them apart: mpirun --map-by slot:PE=N "
                "--bind-to core");
}

CheckResult check_quota(const JobFacts& job) {
  Judgement j("resources.quota", kLayer, "a CPU quota, if any, of a core a rank or more");
  for (const RankFacts* f : first_of_hosts(job)) {
    const auto n = static_cast<double>(ranks_of(job, f->host).size());
    if (f->quota_cores < n)
      j.find(CheckStatus::warn, {f->rank},
             fmt::format("{}: a quota of {:.2g} cores for {:.0f} ranks", f->host, f->quota_cores, n));
  }
  return j.done("none that limits", "raise the container's CPU limit (cpu.max); throttled ranks stall all others");
}

CheckResult check_governor(const JobFacts& job) {
  Judgement j("resources.governor", kLayer,
              "the same frequency governor and huge page setting on every host, none that saves power");
  expect_agreement(j, job, {"governor", CheckStatus::warn, [](const RankFacts& f) { return f.governor; }});
  expect_agreement(j, job,
                   {"transparent huge pages", CheckStatus::warn, [](const RankFacts& f) { return f.huge_pages; }});
  for (const RankFacts* f : first_of_hosts(job))
    if (f->governor == "powersave" || f->governor == "conservative")
      j.find(CheckStatus::warn, {f->rank}, fmt::format("{}: {}", f->host, f->governor));
  const RankFacts& first = job.ranks.at(0);
  return j.done(fmt::format("governor {}, huge pages {}", first.governor.empty() ? "not readable" : first.governor,
                            first.huge_pages.empty() ? "not readable" : first.huge_pages),
                "cpupower frequency-set -g performance on every host");
}

CheckResult check_load(const JobFacts& job) {
  Judgement j("resources.load", kLayer, fmt::format("hosts that do nothing else: load below {:.1f} a core", kBusyLoad));
  double most = 0;
  for (const RankFacts* f : first_of_hosts(job)) {
    if (std::isnan(f->load) || f->host_cores < 1) continue;
    most = std::max(most, f->load);
    if (f->load > kBusyLoad * static_cast<double>(f->host_cores))
      j.find(CheckStatus::warn, {f->rank},
             fmt::format("{}: load {:.2f} on {} cores before the job began", f->host, f->load, f->host_cores));
  }
  return j.done(fmt::format("load {:.2f} or less", most), "end what else runs there (top), or leave that host out");
}

CheckResult check_steal(const JobFacts& job) {
  Judgement j("resources.steal", kLayer, fmt::format("at most {:.0f} % of CPU time stolen", 100 * kMuchSteal));
  double most = 0;
  for (const RankFacts* f : first_of_hosts(job)) {
    if (std::isnan(f->steal)) continue;
    most = std::max(most, f->steal);
    if (f->steal > kMuchSteal)
      j.find(CheckStatus::warn, {f->rank}, fmt::format("{}: {:.1f} % stolen", f->host, 100 * f->steal));
  }
  return j.done(fmt::format("{:.1f} % or less", 100 * most),
                "the hypervisor gives this guest's cores to others: ask for dedicated ones");
}

}  // namespace

std::vector<CheckResult> resource_checks(const JobFacts& job, const PreflightNeeds& needs) {
  const Enough shm{"resources.shm",
                   size_text(needs.min_shm) + " free in /dev/shm (--min-shm)",
                   "mount -o remount,size=8G /dev/shm; docker run --shm-size=8g or --ipc=host",
                   size_text,
                   [](const RankFacts& f) { return f.shm_free; },
                   needs.min_shm,
                   needs.min_shm / 8};
  const Enough files{"resources.open_files",
                     fmt::format("{} files a process (--min-open-files)", needs.min_open_files),
                     "ulimit -n 65536 before mpirun, in limits.conf or the batch system's service file",
                     count_text,
                     [](const RankFacts& f) { return f.open_files; },
                     needs.min_open_files,
                     needs.min_open_files / 4};
  const Enough processes{"resources.processes",
                         fmt::format("{} processes and threads a user", kLeastProcesses),
                         "ulimit -u unlimited before mpirun, in limits.conf or the batch system's service file",
                         count_text,
                         [](const RankFacts& f) { return f.processes; },
                         kLeastProcesses,
                         kLeastProcesses / 8};
  std::vector<CheckResult> results{check_memory(job, needs),
                                   check_enough(job, shm),
                                   check_memlock(job, needs),
                                   check_enough(job, files),
                                   check_enough(job, processes),
                                   check_disk(job, needs),
                                   check_disk_speed(job, needs),
                                   check_cores(job),
                                   check_quota(job),
                                   check_governor(job),
                                   check_load(job),
                                   check_steal(job)};
  for (CheckResult& result : gpu_checks(job)) results.push_back(std::move(result));
  for (CheckResult& result : nic_checks(job)) results.push_back(std::move(result));
  return results;
}

}  // namespace rw
