#include "libcore/bench/train/measure_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/bench/comm/job_quiet.h"
#include "libcore/bench/record/machine.h"
#include "libcore/bench/train/bench_folder.h"
#include "libcore/bench/train/synthetic_data.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/rank_cores.h"
#include "libcore/formats/model_source.h"
#include "libcore/plan/measure/cpu_speed.h"
#include "libcore/train/trainer.h"

namespace rw {
namespace {

constexpr int64_t kMostTokens = int64_t{16} << 20;  // of random data; more of it is no harder to read
constexpr int kDoneTag = 4711;

ModelSpec model_of(const TrainSpec& spec) {
  return spec.model.empty() ? open_model_source(spec.init_from).spec : load_model_spec(spec.model);
}

// The ranks that a case leaves out sleep until rank 0 says that it is over: a rank that waits in a barrier takes a
// core.
void wait_for_the_others(Comm& world, int ranks) {
  char word = 0;
  if (world.rank() == 0)
    for (int r = ranks; r < world.size(); ++r) world.send(&word, 1, r, kDoneTag);
  if (world.rank() < ranks) return;
  const Request told = world.recv_start(&word, 1, 0, kDoneTag);
  while (!world.done(told)) {
    world.progress();
    world.look_for_dead_peers();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  world.wait(told);
}

// What the caller settled, for a run of so many steps that leaves nothing but its records.
TrainSpec run_spec(const TrainBenchSpec& bench, const TrainCase& c, const std::filesystem::path& out) {
  TrainSpec spec = c.spec;
  spec.out = out.string();
  spec.resume = "none";
  spec.steps = bench.warmup + bench.measure;
  spec.val_data.clear();
  spec.val_fraction = 0;
  spec.eval_every = 0;
  spec.verify_data = false;
  spec.verify_parallel = 0;
  spec.save_at_end = false;
  return spec;
}

class Measurement {
 public:
  explicit Measurement(const TrainBenchJob& job) : job_(job), folder_(job.spec.keep, job.world) {
    for (const TrainCase& c : job.cases) {
      TrainSeries s;
      s.what = c;
      agree(job.world, [&] {
        s.model = model_of(c.spec);
        s.layout = settle_layout(c.spec, s.model, c.ranks);
      });
      series_.push_back(std::move(s));
    }
    make_comms();
    make_data();
  }

  std::vector<TrainSeries> run() {
    for (int64_t repeat = 0; repeat < job_.spec.repeats; ++repeat)
      for (size_t i = 0; i < series_.size(); ++i) run_case(repeat, i);
    return std::move(series_);
  }

 private:
  bool first_rank() const { return job_.world.rank() == 0; }
  Comm& comm_of(int ranks) { return ranks == job_.world.size() ? job_.world : *comms_.at(ranks); }

  void make_comms() {
    for (const TrainSeries& s : series_)
      if (const int n = s.what.ranks; n != job_.world.size() && comms_.count(n) == 0)
        comms_[n] = job_.world.split(job_.world.rank() < n ? 0 : 1, job_.world.rank());
  }

  void make_data() {
    agree(job_.world, [&] {
      std::map<int64_t, int64_t> tokens;  // by vocabulary
      const int64_t steps = job_.spec.warmup + job_.spec.measure;
      for (const TrainSeries& s : series_)
        if (s.what.spec.data.empty()) {
          int64_t& n = tokens[s.model.vocab_size];
          n = std::max(n, std::max(s.layout.seq_len + 1,
                                   std::min(kMostTokens, steps * s.layout.global_batch * s.layout.seq_len + 1)));
        }
      for (const auto& [vocab, n] : tokens)
        if (folder_.first_of_host()) write_random_tokens(data_file(vocab), n, vocab, 1);
    });
    for (TrainSeries& s : series_)
      if (s.what.spec.data.empty()) s.what.spec.data = {data_file(s.model.vocab_size)};
  }
  std::string data_file(int64_t vocab) const { return (folder_.path() / fmt::format("random-{}.h5", vocab)).string(); }

  void run_case(int64_t repeat, size_t i) {
    TrainSeries& s = series_[i];
    const double all = static_cast<double>(job_.spec.repeats * static_cast<int64_t>(series_.size()));
    const double done = static_cast<double>(repeat * static_cast<int64_t>(series_.size()) + static_cast<int64_t>(i));
    const std::string what = fmt::format("{}, repeat {} of {}", s.what.name, repeat + 1, job_.spec.repeats);
    if (first_rank()) job_.progress(what, done / all);
    TrainSpec spec = run_spec(job_.spec, s.what, folder_.path() / fmt::format("{:02}-{}", i, repeat));
    if (const auto known = peaks_.find(s.what.ranks); spec.peak_flops == 0 && known != peaks_.end())
      spec.peak_flops = known->second;
    std::optional<SharedError> failed;
    if (job_.world.rank() < s.what.ranks) {
      try {
        train_once(spec, s, [&](double share) { job_.progress(what, (done + share) / all); });
      } catch (const SharedError& e) {
        failed = e;
      }
    }
    wait_for_the_others(job_.world, s.what.ranks);
    agree(job_.world, [&] {
      if (failed) throw Error(*failed);
      if (first_rank()) read_back(spec, s);
      if (folder_.first_of_host() && !folder_.keeps()) std::filesystem::remove_all(spec.out);
    });
    peaks_[s.what.ranks] = job_.world.all_reduce_value(s.peak_flops_per_rank, ReduceOp::max);
    if (series_.size() > 1 || repeat > 0) is_first_ = false;
  }

  void train_once(const TrainSpec& spec, TrainSeries& s, const std::function<void(double)>& show) {
    Comm& comm = comm_of(s.what.ranks);
    // A host that does not share the folder writes its resource record there all the same.
    agree(comm, [&] {
      if (folder_.first_of_host()) std::filesystem::create_directories(spec.out);
    });
    s.threads = threads_per_rank(spec.threads, comm);
    // One rank of one thread waits for nobody: where it got less than its core, others had it.
    QuietMeter meter(s.what.ranks == 1 && s.threads == 1 ? 1 : 0);
    double begin = 0, wall_s = 0;
    TrainObserver observer;
    observer.warning = [&](const std::string& line) { job_.warning(s.what.name + ": " + line); };
    observer.rank_step = [&](int64_t step) {
      if (step == job_.spec.warmup) meter.start(), begin = now_s();
      if (step == spec.steps) meter.stop(), wall_s = now_s() - begin;
      if (first_rank()) show(static_cast<double>(step) / static_cast<double>(spec.steps));
    };
    if (job_.spec.warmup == 0) meter.start(), begin = now_s();
    const TrainSummary summary = train(spec, comm, observer);
    if (summary.interrupted) throw SharedError(ErrorKind::runtime, "stopped by a signal; nothing is reported");
    const JobQuiet quiet = judge_job_quiet(comm, meter, wall_s);
    const double share = quiet.cpu_share / static_cast<double>(s.threads);
    s.cpu_share = std::min(s.cpu_share, share);
    // Too short to know of others, and the ranks did not run all the time: nothing says that it was quiet.
    s.is_quiet = s.is_quiet && quiet.is_quiet && (std::isfinite(quiet.others_share) || share >= kQuietCpuShare);
    const std::vector<int> nodes = comm.nodes();
    s.ranks_per_node = std::count(nodes.begin(), nodes.end(), nodes[0]);
  }

  void read_back(const TrainSpec& spec, TrainSeries& s) {
    const RunRecords run = read_run_records(spec.out);
    std::vector<StepRecord> steps;
    for (const StepRecord& step : run.steps)
      if (step.step > job_.spec.warmup) steps.push_back(step);
    if (static_cast<int64_t>(steps.size()) != job_.spec.measure)
      fail(ErrorKind::runtime, "{}: expected {} measured steps in metrics.jsonl, found {}; is the disk full?",
           s.what.name, job_.spec.measure, steps.size());
    s.repeats.push_back(std::move(steps));
    const Json identity = parse_json(run.identity, spec.out + "/run.json");
    s.peak_flops_per_rank = json_number(identity, "peak_flops_per_rank", spec.out);
    s.backend = json_string(identity, "backend", spec.out);
    s.device = json_string(identity, "device", spec.out);
    s.is_first = s.is_first || (is_first_ && s.repeats.size() == 1);
  }

  const TrainBenchJob& job_;
  BenchFolder folder_;
  std::vector<TrainSeries> series_;
  std::map<int, std::unique_ptr<Comm>> comms_;
  std::map<int, double> peaks_;  // measured once for each number of ranks
  bool is_first_ = true;
};

}  // namespace

std::vector<TrainSeries> measure_training(const TrainBenchJob& job) { return Measurement(job).run(); }

}  // namespace rw
