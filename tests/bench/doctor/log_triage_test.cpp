// Golden logs are our own, written in the documented formats of the programs that they are said to be from.
#include "libcore/bench/doctor/log_triage.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "libcore/base/error.h"
#include "libcore/bench/doctor/log_rules.h"
#include "libcore/bench/doctor/log_triage_line.h"
#include "libcore/bench/doctor/log_triage_read.h"
#include "libcore/bench/doctor/log_triage_scan.h"

namespace fs = std::filesystem;
using rw::Diagnosis;
using rw::Finding;
using rw::Severity;

namespace {

fs::path golden() { return fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests" / "golden" / "doctor" / "logs"; }

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("log_triage_" + std::to_string(std::random_device()()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const Finding* find(const Diagnosis& d, const std::string& id) {
  const auto at = std::find_if(d.findings.begin(), d.findings.end(), [&](const Finding& f) { return f.id == id; });
  return at == d.findings.end() ? nullptr : &*at;
}

std::string told(const Diagnosis& d) {
  std::string text;
  for (const Finding& f : d.findings) text += f.id + (f.effect_of.empty() ? "" : " <- " + f.effect_of) + "\n";
  return text;
}

// 2026-11-30 11:00:00 UTC by `date -u -d ... +%s`.
constexpr double kEleven = 1796036400;

}  // namespace

TEST_CASE("golden logs: the planted cause is the first finding, what follows it is its effect") {
  struct Case {
    std::string dir, first;
    std::vector<std::string> effects;
  };
  const std::vector<Case> cases = {
      {"oom_killer", "kernel.oom", {"node.killed", "task.peer_died", "node.ended"}},
      {"oom_cgroup", "kernel.oom", {}},
      {"nccl_link", "library.link_error", {"library.timeout"}},
      {"link_flap", "kernel.link_down", {"task.watchdog", "task.peer_late"}},
      {"xid", "kernel.xid", {"task.device_error", "library.device_error", "library.reset", "node.ended"}},
      {"slots", "node.slots", {}},
      {"lost_node", "kernel.mce", {"kernel.panic", "node.lost", "library.reset"}},
      {"nfs", "kernel.nfs", {"task.io_error", "task.hdf5", "kernel.hung"}},
      {"disk_full", "task.disk_full", {"node.ended"}},
      {"disk_dying", "kernel.io_error", {"kernel.remount_ro", "task.hdf5"}},
      {"shm", "task.shm_full", {}},
      {"device_memory", "task.device_memory", {}},
      {"traceback", "task.traceback", {"library.reset", "node.ended"}},
      {"segfault", "kernel.segfault", {"task.segfault", "node.crashed"}},
      {"throttle", "kernel.throttle", {"task.peer_late"}},
      {"serve_rank_lost", "task.peer_died", {"task.cut_off"}},
      {"mpi_missing_library", "task.library", {"node.ended"}},
      {"slurm_time", "node.slurm_time", {"node.ended"}},
      {"old_oom", "task.not_finite", {"task.peer_died"}},
  };
  for (const Case& c : cases) {
    const Diagnosis d = rw::triage_logs(golden() / c.dir);
    CAPTURE(c.dir);
    CAPTURE(told(d));
    REQUIRE(!d.findings.empty());
    CHECK(d.findings.front().id == c.first);
    CHECK(d.findings.front().effect_of.empty());
    CHECK(d.findings.front().severity == Severity::failure);
    for (const std::string& id : c.effects) {
      CAPTURE(id);
      const Finding* f = find(d, id);
      REQUIRE(f != nullptr);
      CHECK(f->effect_of == c.first);
    }
  }
}

TEST_CASE("healthy logs: nothing above info") {
  int n = 0;
  for (const auto& entry : fs::directory_iterator(golden())) {
    if (!entry.path().filename().string().starts_with("healthy")) continue;
    const Diagnosis d = rw::triage_logs(entry.path());
    CAPTURE(entry.path().string());
    CAPTURE(told(d));
    CHECK(d.findings.empty());
    ++n;
  }
  CHECK(n == 6);
}

TEST_CASE("rules: ids are unique, literals lower case, and of one depth no circle of effects") {
  std::map<std::string, const rw::LogRule*> by_id;
  for (const rw::LogRule& r : rw::log_rules()) {
    CAPTURE(r.id);
    CHECK(by_id.emplace(r.id, &r).second);
    for (const rw::LogForm& f : r.forms) {
      std::vector<const char*> all = f.also;
      all.insert(all.end(), f.without.begin(), f.without.end());
      all.push_back(f.find);
      for (const std::string text : all)
        CHECK(std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
    }
    CHECK((!r.forms.empty() || r.id == std::string(rw::kTracebackRule) || r.id == std::string(rw::kToolErrorRule)));
  }
  for (const rw::LogRule& r : rw::log_rules()) {
    CAPTURE(r.id);
    for (const char* cause : r.effect_of) {
      REQUIRE(by_id.contains(cause));
      CHECK(by_id[cause]->depth <= r.depth);  // a deeper cause is a circle with what the depth says
    }
    // Up along causes of the same depth.
    std::vector<std::string> path = {r.id};
    for (size_t i = 0; i < path.size(); ++i) {
      for (const char* cause : by_id[path[i]]->effect_of)
        if (by_id[cause]->depth == r.depth) path.emplace_back(cause);
      REQUIRE(path.size() < 50);
    }
    CHECK(std::count(path.begin(), path.end(), r.id) == 1);
  }
}

TEST_CASE("times of all formats") {
  const auto at = [](std::string_view line) { return rw::log_time(line, 2026, 11); };
  using Clock = rw::LogTime::Clock;
  for (const char* line : {"2026-11-30T11:00:00Z step", "2026-11-30 11:00:00,000 INFO", "[2026-11-30 11:00:00] x",
                           "2026-11-30T12:00:00+01:00 x", "2026-11-30T05:30:00-0530 x", "Nov 30 11:00:00 n1 kernel: x",
                           "[Mon Nov 30 11:00:00 2026] x", "E1130 11:00:00 x", "[rank3]:[E1130 11:00:00.0 a.cpp:1] x",
                           "[1,3]<stderr>:2026-11-30T11:00:00Z x", "[rank 3] 2026-11-30T11:00:00Z x",
                           "{\"a\":1,\"time\":\"2026-11-30T11:00:00Z\"}", "2026/11/30 11:00:00 x"}) {
    CAPTURE(line);
    CHECK(at(line).clock == Clock::wall);
    CHECK(at(line).s == doctest::Approx(kEleven).epsilon(1e-12));
  }
  CHECK(at("2026-11-30T11:00:00.25Z").s - kEleven == doctest::Approx(0.25));
  // A date without a year that would lie in the future is of the year before: 365 days.
  CHECK(at("Dec  1 11:00:00 n1 x").s == doctest::Approx(kEleven - 364 * 86400));
  CHECK(at("[12345.678901] x").clock == Clock::uptime);
  CHECK(at("[12345.678901] x").s == doctest::Approx(12345.678901));
  CHECK(at("[    0.000000] x").s == 0);
  for (const char* line : {"", "x", "[", "[rank3]:", "2026-13-01T00:00:00Z", "2026-02-30 00:00:00", "Nov 30", "[12345]",
                           "[1,3]<stderr>:", "{\"time\"", "{\"time\":5}", "E113", "2026-11-30T25:00:00Z"}) {
    CAPTURE(line);
    CHECK(at(line).clock == Clock::none);
  }
}

TEST_CASE("ranks and hosts") {
  using rw::log_host, rw::log_rank;
  CHECK(log_rank("[1,3]<stderr>:boom", "") == 3);
  CHECK(log_rank("[rank 12] error: x", "") == 12);
  CHECK(log_rank("[rank3]: Traceback", "") == 3);
  CHECK(log_rank("mpirun noticed that process rank 7 with PID 0 on node n2", "") == 7);
  CHECK(log_rank("frank 5 said", "job.log") == -1);
  CHECK(log_rank("nothing", "rank-31.jsonl") == 31);
  CHECK(log_rank("nothing", "out.rank2.txt") == 2);
  CHECK(log_host("process rank 7 with PID 0 on node n2.example.org exited", "") == "n2.example.org");
  CHECK(log_host("rank 3 (host n2) did", "x-rank.log") == "n2");
  CHECK(log_host("Nov 30 11:00:00 gpu-07 kernel: x", "") == "gpu-07");
  CHECK(log_host("gpu07:771:802 [3] NCCL WARN x", "") == "gpu07");
  CHECK(log_host("x", "dmesg-n3.txt") == "n3");
  CHECK(log_host("x", "node12.log") == "node12");
  CHECK(log_host("x", "train.log").empty());
  CHECK(log_host("on node ", "").empty());
}

TEST_CASE("literals: against a search of each, random texts of few letters") {
  const std::vector<std::string_view> literals = {"a", "ab", "bab", "bc", "bca", "c", "caa", "abcabc", "b"};
  const rw::LiteralSet set(literals);
  std::mt19937 random(7);
  size_t found_any = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    std::string text;
    for (size_t n = random() % 14; n > 0; --n) text += "abcABx"[random() % 6];
    std::string lower = text;
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    std::vector<int> expected(literals.size()), found(literals.size());
    for (size_t i = 0; i < literals.size(); ++i)
      for (size_t at = lower.find(literals[i]); at != std::string::npos; at = lower.find(literals[i], at + 1))
        ++expected[i];
    set.scan(text, [&](int32_t i) { ++found[static_cast<size_t>(i)]; });
    CAPTURE(text);
    CHECK(found == expected);
    found_any += static_cast<size_t>(found != std::vector<int>(literals.size()));
  }
  CHECK(found_any > 1000);
}

TEST_CASE("a line across chunks, without an end, very long, with control bytes; counts, ranks and lines") {
  const Folder folder;
  const std::string filler(1000, 'x');
  std::string text;
  while (text.size() < (1 << 20) - 30) text += filler + "\n";
  text.resize((1 << 20) - 30, 'y');  // the next line begins in the first MiB and ends in the second
  text += "\nprocess rank 3 with PID 1 on node n2 exited on signal 9 (Killed).\n";
  text += std::string(3 << 20, 'z') + " exited on signal 9\n";  // too long to be looked at to its end
  text += "process rank 5 on node n4 exited on \x1b[31msignal\x07 exited on signal 9";
  folder.write("a/mpirun.log", text);
  const Diagnosis d = rw::triage_logs(folder.path());
  REQUIRE(d.findings.size() == 1);
  const Finding& f = d.findings.front();
  CHECK(f.id == "node.killed");
  CHECK(f.evidence.front().second.value == 2);
  // Whole filler lines, then the one that resize() cut or drew out, then this.
  const int64_t line = std::count(text.begin(), text.begin() + (1 << 20), '\n') + 1;
  CHECK(f.evidence.front().second.where == "a/mpirun.log:" + std::to_string(line));
  CHECK(f.explanation.find("ranks 3, 5, hosts n2, n4") != std::string::npos);
  const rw::LogReading part = rw::read_logs(folder.path() / "a/mpirun.log", 100);
  CHECK(part.bytes == 100);
  CHECK(part.hits.empty());
  REQUIRE(part.notes.size() == 1);
  CHECK(part.notes[0].find("only its first 100") != std::string::npos);
}

TEST_CASE("what is no log: binary files are noted, nothing at all is an error") {
  const Folder folder;
  CHECK_THROWS_AS(rw::triage_logs(folder.path() / "none"), rw::Error);
  CHECK_THROWS_AS(rw::triage_logs(folder.path()), rw::Error);
  using namespace std::string_literals;  // of a text with a zero inside
  folder.write("core",
               "\x7f"
               "ELF\0Out of memory: Killed process 1"s);
  CHECK_THROWS_AS(rw::triage_logs(folder.path()), rw::Error);
  folder.write("empty.log", "");
  folder.write("train.log", "step 1\r\nstep 2\r\n");
  const Diagnosis d = rw::triage_logs(folder.path());
  CHECK(d.findings.empty());
  REQUIRE(d.notes.size() == 1);
  CHECK(d.notes[0].find("core") == 0);
  CHECK(d.facts.find("logs.lines")->value == 2);
  CHECK(rw::triage_logs(folder.path() / "train.log").facts.find("logs.files")->value == 1);
}

TEST_CASE("a cause that came later explains nothing; the earliest failure is first") {
  const Folder folder;
  folder.write("a.log",
               "2026-11-30T11:00:00Z [rank 0] error: rank 1 (host b) did not arrive at all_reduce #1\n"
               "2026-11-30T11:20:00Z kernel: Out of memory: Killed process 7 (dtrain)\n");
  Diagnosis d = rw::triage_logs(folder.path());
  REQUIRE(d.findings.size() == 2);
  CHECK(d.findings[0].id == "task.watchdog");
  CHECK(d.findings[1].id == "kernel.oom");
  CHECK(d.findings[1].effect_of.empty());
  folder.write("a.log",
               "2026-11-30T11:00:00Z [rank 0] error: rank 1 (host b) did not arrive at all_reduce #1\n"
               "2026-11-30T10:59:00Z kernel: Out of memory: Killed process 7 (dtrain)\n");
  d = rw::triage_logs(folder.path());
  CHECK(d.findings[0].id == "kernel.oom");
  CHECK(d.findings[1].effect_of == "kernel.oom");
}
