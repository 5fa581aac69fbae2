#include "libcore/bench/train/train_bench_spec.h"

#include <algorithm>
#include <charconv>

#include "libcore/base/error.h"

namespace rw {

FieldList fields(TrainBenchSpec& s) {
  FieldList list = fields(s.train);
  std::erase_if(list, [](const Field& f) { return f.group == "Dry run" || f.name == "layout"; });
  for (Field& f : list) {
    if (f.name == "data") f.help = "token files to read; without any, random tokens are made";
    if (f.name == "cluster")
      f.help =
          "what steps are predicted with: a name under configs/clusters or a .toml file; without it this host is "
          "measured after the training, for some seconds";
    if (f.name == "steps" || f.name == "out" || f.name == "resume" || f.name == "val-data" ||
        f.name == "val-fraction" || f.name == "eval-every" || f.name.starts_with("verify-"))
      f.help = "not used here: taken so that dtrain's configurations can be given";
  }
  const FieldList own = {
      {.name = "warmup",
       .value = &s.warmup,
       .help = "first steps, which are not measured",
       .min = 0,
       .max = 1e6,
       .group = "Measurement"},
      {.name = "measure",
       .value = &s.measure,
       .help = "steps after them",
       .min = 1,
       .max = 1e6,
       .group = "Measurement"},
      {.name = "repeats",
       .value = &s.repeats,
       .help = "rounds over all that is measured, each from new weights",
       .min = 1,
       .max = 1000,
       .group = "Measurement"},
      {.name = "ladder",
       .value = &s.ladder,
       .help = "add one strategy at a time to data parallelism and say what each gains and costs",
       .group = "Measurement"},
      {.name = "sweep-ranks",
       .value = &s.sweep_ranks,
       .help = "numbers of ranks to measure, like 1,2,4, and the scaling law through them",
       .group = "Measurement"},
      {.name = "scaling",
       .value = &s.scaling,
       .help = "with --sweep-ranks: the same batch for all (strong), or the same batch a rank (weak)",
       .choices = {"strong", "weak"},
       .group = "Measurement"},
      {.name = "predict",
       .value = &s.predict,
       .help = "set a prediction beside what is measured",
       .group = "Measurement"},
      {.name = "keep",
       .value = &s.keep,
       .help = "a new folder, which all hosts share, to keep the run directories in",
       .group = "Measurement"},
  };
  list.insert(list.begin(), own.begin(), own.end());
  return list;
}

void check_train_bench(const TrainBenchSpec& s) {
  if (s.train.model.empty() && s.train.init_from.empty())
    fail(ErrorKind::usage, "--model is missing: expected a model name, a config.json or a directory");
  if (s.ladder && !s.sweep_ranks.empty())
    fail(ErrorKind::usage, "--ladder and --sweep-ranks exclude each other: expected one of them");
  const TrainSpec plain;
  const TrainSpec& t = s.train;
  if (s.ladder && (t.tp != plain.tp || t.pp != plain.pp || t.zero != plain.zero || t.sp || t.recompute != "none" ||
                   t.schedule != plain.schedule || t.vpp != plain.vpp || t.dp != plain.dp))
    fail(ErrorKind::usage,
         "--ladder chooses --tp, --pp, --vpp, --dp, --sp, --zero, --recompute and --schedule; leave them out");
}

std::vector<int> sweep_ranks(const TrainBenchSpec& s, int ranks) {
  std::vector<int> found;
  if (s.sweep_ranks.empty()) return found;
  const char* at = s.sweep_ranks.data();
  const char* const end = at + s.sweep_ranks.size();
  while (true) {
    int n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 1 || (next != end && *next != ','))
      fail(ErrorKind::usage, "--sweep-ranks {}: expected numbers of ranks, like 1,2,4", s.sweep_ranks);
    if (n > ranks)
      fail(ErrorKind::usage, "--sweep-ranks {}: {} ranks are more than this job's {}; start it with mpirun -n {}",
           s.sweep_ranks, n, ranks, n);
    found.push_back(n);
    if (next == end) break;
    at = next + 1;
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace rw
