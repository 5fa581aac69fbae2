#include "libcore/bench/record/baseline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/bench/record/compare.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr size_t kWidestLine = 160;

// JSON for people and for diffs: what fits stands on one line.
std::string readable(const Json& value, size_t indent) {
  std::string flat = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!value.is_structured() || value.empty() || flat.size() + indent <= kWidestLine) return flat;
  // A list of numbers is one thing, however long.
  const bool is_list = value.is_array();
  if (is_list && std::none_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured(); })) return flat;
  const std::string inside(indent + 1, ' ');
  std::string out = is_list ? "[\n" : "{\n";
  bool first = true;
  for (const auto& item : value.items()) {
    out += (first ? "" : ",\n") + inside;
    first = false;
    if (!is_list) out += Json(item.key()).dump(-1, ' ', false, Json::error_handler_t::replace) + ": ";
    out += readable(item.value(), indent + 1);
  }
  return out + "\n" + std::string(indent, ' ') + (is_list ? "]" : "}");
}

// Letters, digits and dots stay; runs of anything else are one hyphen.
std::string slug_of(const std::string& name) {
  constexpr size_t kLongest = 100;
  std::string slug;
  for (const char c : name) {
    const bool keeps =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (keeps && !(c == '.' && slug.empty())) slug += c;
    else if (!slug.empty() && slug.back() != '-') slug += '-';
  }
  while (slug.ends_with('-')) slug.pop_back();
  if (slug.size() > kLongest) slug.resize(kLongest);
  return slug.empty() ? "unnamed" : slug;
}

const Baseline* find_case(const std::vector<Baseline>& baselines, const BenchRecord& r,
                          const std::string& fingerprint) {
  for (const Baseline& b : baselines)
    if (b.fingerprint == fingerprint && b.runs.front().bench == r.bench && b.runs.front().name == r.name) return &b;
  return nullptr;
}

std::string fingerprint_of(const BenchRecord& r) {
  const std::string found = machine_of(r, "fingerprint");
  if (found.empty() || slug_of(found) != found)
    fail(ErrorKind::input, "{}: expected a record that names its machine (key machine.fingerprint), found \"{}\"",
         case_name(r), found);
  return found;
}

// Two names may have one slug: then the second one's file has its digest in its name too.
fs::path file_of(const BenchRecord& r, const SaveBaseline& save, const std::set<fs::path>& taken) {
  const fs::path folder = save.dir / fingerprint_of(r) / slug_of(r.bench);
  const fs::path file = folder / (slug_of(r.name) + ".json");
  if (!taken.contains(file)) return file;
  return folder / (slug_of(r.name) + "-" + hex64(hash64(r.name)).substr(0, 8) + ".json");
}

std::string machine_text(const BenchRecord& r) {
  return fmt::format("{} ({}, {} CPUs)", machine_of(r, "fingerprint"), machine_of(r, "cpu_model"),
                     machine_of(r, "cpus"));
}

// Metrics of one name are one thing in all runs of a case.
void check_one_meaning(const std::vector<BenchRecord>& runs) {
  std::map<std::string, const BenchMetric*> seen;
  for (const BenchRecord& r : runs)
    for (const BenchMetric& m : r.metrics) {
      const BenchMetric* first = seen.try_emplace(m.name, &m).first->second;
      if (first->unit == m.unit && first->kind == m.kind && first->better == m.better) continue;
      fail(
          ErrorKind::input,
          "{}, metric \"{}\": expected one unit, kind and better way in all runs, found \"{}\", {}, {} and \"{}\", {}, "
          "{}; --as keeps them under another name",
          case_name(r), m.name, first->unit, metric_kind_name(first->kind), better_name(first->better), m.unit,
          metric_kind_name(m.kind), better_name(m.better));
    }
}

// Held while a directory is read and written: what two save at once is kept of both. A file system that cannot lock a
// directory does without.
class DirectoryLock {
 public:
  explicit DirectoryLock(const fs::path& dir) {
    std::error_code error;
    make_directories(dir, error);
    if (error) fail(ErrorKind::usage, "{}: cannot be made: {}", dir.string(), error.message());
    fd_ = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  int fd_ = -1;
};

void write_runs(const fs::path& file, const std::vector<BenchRecord>& runs) {
  Json json = Json::array();
  for (const BenchRecord& r : runs) json.push_back(record_json(r));
  std::error_code error;
  make_directories(file.parent_path(), error);
  if (error) fail(ErrorKind::usage, "{}: cannot be made: {}", file.parent_path().string(), error.message());
  try {
    write_file_atomic(file, readable(json, 0) + "\n");
  } catch (const Error&) {
    // Folders that were made for it do not stay behind; one that holds something does.
    if (fs::remove(file.parent_path(), error)) fs::remove(file.parent_path().parent_path(), error);
    throw;
  }
}

}  // namespace

std::vector<Baseline> read_baselines(const fs::path& dir) {
  if (std::error_code none; !fs::is_directory(dir, none))
    fail(ErrorKind::input, "{}: expected a directory of baselines, found {}; dbench baseline save FILE makes one",
         dir.string(), fs::exists(dir, none) ? "a file" : "none");
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(dir))
    if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Baseline> found;
  for (const fs::path& file : files) {
    Baseline b{.file = file, .fingerprint = {}, .runs = read_records(file.string())};
    b.fingerprint = fingerprint_of(b.runs.front());
    for (const BenchRecord& r : b.runs)
      if (r.bench != b.runs.front().bench || r.name != b.runs.front().name || fingerprint_of(r) != b.fingerprint)
        fail(ErrorKind::input, "{}: expected runs of one case on one machine, found {} of {} and {} of {}",
             file.string(), case_name(b.runs.front()), b.fingerprint, case_name(r), fingerprint_of(r));
    found.push_back(std::move(b));
  }
  return found;
}

std::vector<fs::path> save_baseline(std::vector<BenchRecord> records, const SaveBaseline& save) {
  std::map<std::pair<std::string, std::string>, std::vector<BenchRecord>> cases;  // by machine and case
  std::set<std::string> names;
  for (BenchRecord& r : records) {
    names.insert(case_name(r));
    if (!save.as.empty()) r.name = save.as;
    cases[{fingerprint_of(r), case_name(r)}].push_back(std::move(r));
  }
  if (!save.as.empty() && names.size() > 1)
    fail(ErrorKind::usage, "--as names one case, found {}: {}", names.size(), listed({names.begin(), names.end()}));
  for (const auto& [key, runs] : cases)
    for (const BenchRecord& r : runs)
      if (!r.quiet && !save.noisy)
        fail(
            ErrorKind::input,
            "{} of {}: the machine was not quiet while it was measured: as a baseline it would judge later runs by the "
            "noise of that hour; measure again on a quiet machine, or say --noisy",
            case_name(r), r.time);
  const DirectoryLock lock(save.dir);
  std::error_code none;
  const std::vector<Baseline> old =
      fs::is_directory(save.dir, none) ? read_baselines(save.dir) : std::vector<Baseline>();
  std::set<fs::path> taken;
  for (const Baseline& b : old) taken.insert(b.file);
  // All is known before anything is written.
  std::vector<std::pair<fs::path, std::vector<BenchRecord>>> writes;
  for (auto& [key, runs] : cases) {
    const Baseline* there = find_case(old, runs.front(), key.first);
    if (there != nullptr && !save.replace && !save.append)
      fail(ErrorKind::input,
           "{}: there is a baseline of {} already ({} runs, of {}); --replace gives it up, --append adds these runs to "
           "it",
           there->file.string(), key.second, there->runs.size(), there->runs.back().time);
    std::vector<BenchRecord> all = there != nullptr && save.append ? there->runs : std::vector<BenchRecord>();
    all.insert(all.end(), std::make_move_iterator(runs.begin()), std::make_move_iterator(runs.end()));
    check_one_meaning(all);
    const fs::path file = there != nullptr ? there->file : file_of(all.front(), save, taken);
    taken.insert(file);
    writes.emplace_back(file, std::move(all));
  }
  std::vector<fs::path> files;
  for (const auto& [file, runs] : writes) {
    write_runs(file, runs);
    files.push_back(file);
  }
  return files;
}

std::vector<BenchRecord> matching_baselines(const std::vector<Baseline>& baselines, const std::vector<BenchRecord>& now,
                                            bool any_machine) {
  std::vector<BenchRecord> found;
  std::set<const Baseline*> used;
  std::set<std::string> elsewhere;
  for (const BenchRecord& r : now) {
    const Baseline* match = find_case(baselines, r, fingerprint_of(r));
    if (match == nullptr) {
      std::vector<const Baseline*> others;
      for (const Baseline& b : baselines)
        if (b.runs.front().bench == r.bench && b.runs.front().name == r.name) {
          others.push_back(&b);
          elsewhere.insert(machine_text(b.runs.front()));
        }
      if (any_machine && others.size() > 1)
        fail(ErrorKind::input,
             "{}: expected a baseline of one other machine, found {}: name its file in the place of --baseline",
             case_name(r), listed({elsewhere.begin(), elsewhere.end()}));
      if (any_machine && others.size() == 1) match = others.front();
    }
    if (match == nullptr || !used.insert(match).second) continue;
    found.insert(found.end(), match->runs.begin(), match->runs.end());
  }
  if (found.empty())
    fail(ErrorKind::input, "{}: expected a baseline of machine {}, found {}", case_name(now.front()),
         machine_text(now.front()),
         elsewhere.empty() ? "none of this case; dbench baseline save keeps one"
                           : fmt::format("only of {}; --any-machine compares with that",
                                         listed({elsewhere.begin(), elsewhere.end()})));
  return found;
}

std::string baselines_text(const std::vector<Baseline>& baselines) {
  std::string out = fmt::format("{:<16}  {:<24} {:>5} {:>5}  {:<20} {:<8} {:<6} {}\n", "machine", "CPU", "CPUs", "runs",
                                "last", "version", "quiet", "case");
  for (const Baseline& b : baselines) {
    const BenchRecord& last = b.runs.back();
    const bool quiet = std::all_of(b.runs.begin(), b.runs.end(), [](const BenchRecord& r) { return r.quiet; });
    out += fmt::format("{:<16}  {:<24} {:>5} {:>5}  {:<20} {:<8} {:<6} {}\n", b.fingerprint,
                       machine_of(last, "cpu_model"), machine_of(last, "cpus"), b.runs.size(), last.time,
                       last.tool_version, quiet ? "yes" : "no", case_name(last));
  }
  return out;
}

Json baselines_json(const std::vector<Baseline>& baselines) {
  Json out = Json::array();
  for (const Baseline& b : baselines) {
    const BenchRecord& last = b.runs.back();
    const bool quiet = std::all_of(b.runs.begin(), b.runs.end(), [](const BenchRecord& r) { return r.quiet; });
    out.push_back({{"file", b.file.string()},
                   {"fingerprint", b.fingerprint},
                   {"machine", parse_json(last.machine, b.file.string())},
                   {"bench", last.bench},
                   {"name", last.name},
                   {"runs", b.runs.size()},
                   {"time", last.time},
                   {"tool_version", last.tool_version},
                   {"quiet", quiet},
                   {"metrics", last.metrics.size()}});
  }
  return out;
}

}  // namespace rw
