#include "libcore/train/run_dir.h"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/ckpt/intact.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/comm/agree.h"

namespace rw {
namespace fs = std::filesystem;

fs::path checkpoints_dir(const TrainSpec& spec) {
  return spec.checkpoint_dir.empty() ? fs::path(spec.out) / "checkpoints" : fs::path(spec.checkpoint_dir);
}

namespace {

// A path to a checkpoint, or to a run or a checkpoints folder whose newest is meant.
fs::path checkpoint_at(const fs::path& path, std::vector<std::string>& notes) {
  if (fs::exists(path / "manifest.json")) return path;
  const fs::path folder = fs::exists(path / "checkpoints") ? path / "checkpoints" : path;
  std::vector<std::string> ignored;
  const auto entries = list_checkpoints(folder, &ignored);
  for (const std::string& reason : ignored) notes.push_back("ignored " + reason);
  if (entries.empty())
    fail(ErrorKind::usage,
         "--resume {}: expected a checkpoint (a folder with manifest.json) or a run that holds one, found neither",
         path.string());
  return entries.back().dir;
}

// Collective. The steps that every rank can read: a mount or a disk may fail one of them alone, and ranks that go on
// from different steps would train nonsense.
std::vector<CheckpointEntry> listed_by_all(const fs::path& dir, Comm& comm, std::vector<std::string>& notes) {
  std::vector<CheckpointEntry> entries;
  Json mine = {{"steps", Json::array()}, {"ignored", Json::array()}};
  agree(comm, [&] {
    std::vector<std::string> ignored;
    entries = list_checkpoints(dir, &ignored);
    for (const CheckpointEntry& e : entries) mine["steps"].push_back(e.step);
    mine["ignored"] = ignored;
  });
  std::set<std::string> told;
  const std::vector<std::string> all = comm.gather_text(mine.dump(-1, ' ', false, Json::error_handler_t::replace));
  for (const std::string& text : all) {
    const Json heard = Json::parse(text);
    const auto steps = heard["steps"].get<std::set<int64_t>>();
    std::erase_if(entries, [&](const CheckpointEntry& e) { return !steps.contains(e.step); });
    for (const auto& reason : heard["ignored"].get<std::vector<std::string>>())
      if (told.insert(reason).second) notes.push_back("ignored " + reason);
  }
  return entries;
}

// The newest commit that events.jsonl tells of; step -1: none.
struct Committed {
  int64_t step = -1;
  std::string tier;
};
Committed last_committed(const fs::path& out) {
  Committed last;
  std::ifstream file(out / "events.jsonl");
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"event\":\"checkpoint\"") == std::string::npos) continue;
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_discarded()) last = {event.value("step", int64_t{-1}), event.value("tier", std::string("durable"))};
  }
  return last;
}

int64_t generation_of(const Checkpoint& checkpoint) { return checkpoint.identity().value("generation", int64_t{0}); }

// Whether a folder that was once committed (step-N, not step-N.tmp) is there, in whatever state.
bool holds_committed(const fs::path& dir) {
  if (!fs::is_directory(dir)) return false;
  for (const auto& entry : fs::directory_iterator(dir))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("step-") && name.find('.') == std::string::npos)
      return true;
  return false;
}

// A checkpoint that --resume names.
void plan_named(ResumePlan& plan, const TrainSpec& spec, bool used, const fs::path& local, Comm& comm) {
  std::string chosen;  // by one rank: a mount that fails another must not make it choose an older one
  agree(comm, [&] {
    if (comm.rank() == 0) chosen = checkpoint_at(spec.resume, plan.notes).string();
  });
  const fs::path dir = comm.broadcast_text(chosen, 0);
  agree(comm, [&] {
    if (used && fs::weakly_canonical(dir).parent_path() != fs::weakly_canonical(checkpoints_dir(spec)))
      fail(ErrorKind::usage,
           "--resume {} is not a checkpoint of --out {}, which holds a run of its own; choose another --out",
           spec.resume, spec.out);
  });
  plan.checkpoint = intact_checkpoint(dir, comm);
  // Two histories in one folder would be mixed up by the next resume.
  agree(comm, [&] {
    if (const auto all = list_checkpoints(checkpoints_dir(spec)); used && all.back().step > plan.checkpoint->step())
      fail(ErrorKind::usage,
           "--resume {}: --out {} holds newer checkpoints, up to step {}; move or remove those, or go on in another "
           "--out",
           spec.resume, spec.out, all.back().step);
  });
  if (local.empty()) return;
  const LocalStep newer = find_local_step(local, plan.checkpoint->step(), comm, plan.notes);
  if (newer.step >= 0)
    throw SharedError(
        ErrorKind::usage,
        fmt::format("--resume {}: {} holds a newer checkpoint, of step {}; go on with --resume auto, or remove it",
                    spec.resume, local.string(), newer.step));
}

void plan_newest(ResumePlan& plan, const TrainSpec& spec, const fs::path& local, Comm& comm) {
  const std::vector<CheckpointEntry> entries = listed_by_all(checkpoints_dir(spec), comm, plan.notes);
  const int64_t newest_durable = entries.empty() ? -1 : entries.back().step;
  const auto take_local = [&](int64_t newer_than) {
    if (local.empty()) return false;
    plan.local = find_local_step(local, newer_than, comm, plan.notes);
    if (plan.local.step < 0) return false;
    plan.local_dir = local;
    int64_t later = -1;  // step of a durable one that a later start has saved
    agree(comm, [&] {
      plan.checkpoint = std::make_unique<Checkpoint>(local / step_name(plan.local.step), Checkpoint::Files::those_here);
      if (!entries.empty() && generation_of(Checkpoint(entries.back().dir)) > generation_of(*plan.checkpoint))
        later = entries.back().step;
    });
    if (later < 0) return true;
    plan.notes.push_back(fmt::format(
        "ignored the local checkpoint of step {}: it is of an earlier start, and a later one went on to step {}",
        plan.local.step, later));
    plan.checkpoint.reset();
    plan.local = {};
    return false;
  };
  if (take_local(newest_durable)) return;
  for (auto entry = entries.rbegin(); entry != entries.rend() && plan.checkpoint == nullptr; ++entry) {
    try {
      plan.checkpoint = intact_checkpoint(entry->dir, comm);
    } catch (const SharedError& e) {
      plan.notes.push_back(fmt::format("passed over a damaged checkpoint: {}", e.what()));
      plan.damaged.push_back(entry->dir);
    }
  }
  // Older local steps than a damaged durable one are better than still older durable ones.
  const int64_t durable = plan.checkpoint == nullptr ? -1 : plan.checkpoint->step();
  if (durable < newest_durable && take_local(durable)) return;
  // A save that was interrupted before its first commit leaves a .tmp folder only; anything else held training that
  // must not be silently begun anew.
  agree(comm, [&] {
    if (plan.checkpoint == nullptr && holds_committed(checkpoints_dir(spec)))
      fail(ErrorKind::verdict,
           "--resume auto: none of the checkpoints in {} is usable: {}; repair or remove them, or start a new --out",
           checkpoints_dir(spec).string(), plan.notes.empty() ? "no manifest was found" : plan.notes.front());
  });
}

// Whoever committed checkpoints and finds none must not begin anew as if nothing had been; one that finds an older one
// is told.
void miss_committed(ResumePlan& plan, const TrainSpec& spec, Comm& comm) {
  agree(comm, [&] {
    if (comm.rank() != 0) return;
    const Committed last = last_committed(spec.out);
    if (plan.checkpoint == nullptr && last.step >= 0)
      fail(ErrorKind::input,
           "--resume auto: the run in {} committed a {} checkpoint of step {}, and none is found; {}start a new --out "
           "to begin anew",
           spec.out, last.tier, last.step,
           last.tier == "local" ? "give --local-checkpoint-dir and ranks on the nodes that hold it, or " : "");
    if (plan.checkpoint != nullptr && plan.checkpoint->step() < last.step)
      plan.notes.push_back(
          fmt::format("the run committed a {} checkpoint of step {} that is not found or not whole; "
                      "going on from step {}",
                      last.tier, last.step, plan.checkpoint->step()));
  });
}

}  // namespace

EarlierStarts earlier_starts(const fs::path& out) {
  const fs::path file = out / "run.json";
  if (!fs::exists(file)) return {};
  const Json run = read_json(file);
  EarlierStarts found{.generation = run.value("generation", int64_t{0}) + 1, .local_checkpoint_dir = ""};
  if (const auto config = run.find("config"); config != run.end())
    found.local_checkpoint_dir = config->value("local_checkpoint_dir", std::string());
  return found;
}

ResumePlan plan_resume(const TrainSpec& spec, const fs::path& local, Comm& comm) {
  ResumePlan plan;
  bool used = false;
  agree(comm, [&] {
    used = fs::exists(fs::path(spec.out) / "run.json");
    if (fs::exists(spec.out) && !fs::is_directory(spec.out))
      fail(ErrorKind::usage, "--out {}: expected a directory or a new name, found a file", spec.out);
    if (spec.resume == "none" && used)
      fail(ErrorKind::usage,
           "--out {} already holds a run; continue it with --resume auto, or choose another directory", spec.out);
    if (spec.resume == "none" && !spec.checkpoint_dir.empty() && holds_committed(spec.checkpoint_dir))
      fail(ErrorKind::usage,
           "--checkpoint-dir {} holds checkpoints of another run; give each run a folder of its own, or go on from "
           "these with --resume auto",
           spec.checkpoint_dir);
  });
  if (spec.resume == "none") return plan;
  if (spec.resume == "auto") {
    plan_newest(plan, spec, local, comm);
    miss_committed(plan, spec, comm);
  } else {
    plan_named(plan, spec, used, local, comm);
  }
  return plan;
}

void set_aside(const ResumePlan& plan) {
  if (plan.checkpoint == nullptr) return;
  for (const fs::path& dir : plan.damaged) set_aside_damaged(dir);
}

std::string run_id_of(const fs::path& out) {
  const fs::path file = out / "run.json";
  if (fs::exists(file)) return json_string(read_json(file), "run_id", file.string());
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return hex64(hash64(fmt::format("{} {} {} {}", utc_timestamp(), now_s(), ::getpid(), host))).substr(0, 12);
}

namespace {

void make_named_directories(const char* flag, const fs::path& dir) {
  std::error_code error;
  make_directories(dir, error);
  if (error) fail(ErrorKind::runtime, "{} {}: cannot be created: {}", flag, dir.string(), error.message());
}

// So that whoever knows the run finds its checkpoints.
void link_checkpoints(const TrainSpec& spec) {
  const fs::path link = fs::path(spec.out) / "checkpoints", target = fs::canonical(spec.checkpoint_dir);
  std::error_code error;
  if (fs::exists(fs::symlink_status(link))) {
    if (fs::weakly_canonical(link, error) == target) return;
    if (fs::is_symlink(link) || !fs::is_empty(link, error))
      fail(ErrorKind::usage,
           "--checkpoint-dir {}: the checkpoints of --out {} are in {}; leave the flag out, or move them there first",
           spec.checkpoint_dir, spec.out, fs::weakly_canonical(link, error).string());
    fs::remove(link, error);
  }
  fs::create_directory_symlink(target, link, error);
  if (error)
    fail(ErrorKind::runtime, "{}: linking it to {} failed: {}", link.string(), target.string(), error.message());
}

}  // namespace

std::vector<FileLock> lock_run(const TrainSpec& spec) {
  const fs::path out = spec.out;
  std::vector<FileLock> locks;
  make_named_directories("--out", out);
  locks.emplace_back(out / ".lock",
                     fmt::format("--out {}: another process is training in it; wait for it or choose another directory",
                                 out.string()));
  make_named_directories(spec.checkpoint_dir.empty() ? "--out" : "--checkpoint-dir", checkpoints_dir(spec));
  if (spec.checkpoint_dir.empty()) return locks;
  link_checkpoints(spec);
  locks.emplace_back(fs::path(spec.checkpoint_dir) / ".lock",
                     fmt::format("--checkpoint-dir {}: another run saves in it; give each run a folder of its own",
                                 spec.checkpoint_dir));
  return locks;
}

void write_run_json(const fs::path& out, Json run) {
  const fs::path file = out / "run.json";
  if (fs::exists(file))
    run["created"] = json_string(read_json(file), "created", file.string(), run["created"].get<std::string>());
  write_file_atomic(out / "run.json", run.dump(2) + "\n");
}

}  // namespace rw
