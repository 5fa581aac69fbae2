// Baselines: records kept beside the code, so that a change of them is reviewed as code is. One file a case and
// machine: DIR/<machine fingerprint>/<bench>/<name>.json, an array of its runs.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/record/bench_record.h"

namespace rw {

struct Baseline {
  std::filesystem::path file;
  std::string fingerprint;
  std::vector<BenchRecord> runs;  // of one case; at least one
};
// All files below `dir`, sorted. Error{input}: no such directory, a file that holds something else.
std::vector<Baseline> read_baselines(const std::filesystem::path& dir);

struct SaveBaseline {
  std::filesystem::path dir;
  std::string as;        // of records of one case: the name they are kept under; "": their own
  bool replace = false;  // what is there is given up
  bool append = false;   // what is there stays; these are more runs of it
  bool noisy = true;     // records of a machine that was not quiet too
};
// The files written; savers of one directory wait for each other. Error{input} when there is a baseline already and
// neither replace nor append was said, and for records that do not name their machine, that were measured while it was
// not quiet (unless noisy), or whose metrics mean something else than those that are there.
std::vector<std::filesystem::path> save_baseline(std::vector<BenchRecord> records, const SaveBaseline& save);

// The baselines' runs of the cases of `now`: of the same machine (by fingerprint); with `any_machine`, where that has
// none, of the one other machine that has. Cases without one are left out. Error{input} when there is none at all, or
// several machines have one: which there are.
std::vector<BenchRecord> matching_baselines(const std::vector<Baseline>& baselines, const std::vector<BenchRecord>& now,
                                            bool any_machine);

std::string baselines_text(const std::vector<Baseline>& baselines);  // a table
Json baselines_json(const std::vector<Baseline>& baselines);

}  // namespace rw
