// One training run on one rank: what the parts of the trainer share. Set-up is in trainer_start.cpp, what a step leaves
// behind in trainer_record.cpp, the loop in trainer.cpp.
#pragma once
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/op_log.h"
#include "libcore/base/clock.h"
#include "libcore/base/files.h"
#include "libcore/ckpt/async_save.h"
#include "libcore/data/data_order.h"
#include "libcore/device/device.h"
#include "libcore/model/model_flops.h"
#include "libcore/spec/layout.h"
#include "libcore/telemetry/json_lines.h"
#include "libcore/telemetry/resources.h"
#include "libcore/train/guard.h"
#include "libcore/train/loss_scale.h"
#include "libcore/train/predicted.h"
#include "libcore/train/run_dir.h"
#include "libcore/train/setup.h"
#include "libcore/train/step.h"
#include "libcore/train/straggler.h"
#include "libcore/train/train_metrics.h"
#include "libcore/train/train_state.h"
#include "libcore/train/trainer.h"
#include "libcore/train/validation.h"
#include "libcore/train/verify_parallel.h"

namespace rw {

class Trainer {
 public:
  Trainer(const TrainSpec& spec, Comm& world, const TrainObserver& observer)
      : spec_(spec), world_(world), observer_(observer) {}
  TrainSummary run();
  // After an error that is not all ranks' own: writes what this rank's communicators did to the run directory; what the
  // files of all ranks come to, on one rank, "" on the others.
  std::string watchdog_report(const std::string& error);

 private:
  bool first_rank() const { return world_.rank() == 0; }
  // Once there is a mesh: a rank that is missed here has a name.
  Comm& watched_world() { return *mesh_->world; }
  void note(const std::string& line) const {
    if (first_rank()) observer_.note(line);
  }
  void warn(const std::string& line) const {
    if (first_rank()) observer_.warning(line);
  }
  // Runs a part of the set-up on all ranks, reports its time, and makes one rank's error everybody's.
  void phase(const std::string& name, const std::function<void()>& body);
  void event(const char* kind, Json details);

  // trainer_start.cpp
  void start();
  void open_inputs();
  void open_own_device();
  void check_memory();
  void plan_staging(int64_t file_bytes, int64_t free_bytes);
  void build_step();
  void plan_start();
  void take_up(ResumePlan& plan);
  void load_weights();
  void measure_peak();
  void start_run_dir();
  void open_metrics_port();
  void start_sampler();

  // trainer_record.cpp
  void record_step(const StepResult& result);
  Json metrics_line(const StepResult& result) const;
  void report_guard(const GuardReport& report);
  void watch_stragglers(Json& line);
  void check_replicas();
  void verify_parallel(const StepInputs& inputs, const StepResult& result);
  void trace_nan();

  // trainer.cpp
  ReadSamples reader();
  StepInputs step_inputs();
  StepResult train_step(StepInputs inputs);
  void draw_step(const StepTrace& trace);
  void validate();
  [[noreturn]] void give_up();
  TrainSummary summary(bool interrupted) const;

  // trainer_checkpoint.cpp
  void start_saver();
  void finish_staging();
  void count_stall();
  std::string standing() const;  // which checkpoint there is
  void save_if_due();
  bool request_save(bool durable, bool local);
  std::string saved_identity() const;
  void heed(const std::vector<SaveNews>& news);
  void warn_unchanged(const SaveNews& news);
  void choose_interval(const SaveNews& news);
  void prune();
  bool save_last();
  bool rewind();
  // Of the seconds since the first step, those in which a save kept training waiting.
  double stall_share() const { return train_s_ + stall_s_ > 0 ? stall_s_ / (train_s_ + stall_s_) : 0; }

  TrainSpec spec_;
  Comm& world_;
  const TrainObserver& observer_;
  double start_s_ = now_s();

  ModelSpec model_;
  Layout layout_;
  std::unique_ptr<TensorSource> init_weights_;
  ResumePlan resume_;
  TrainData data_;
  std::unique_ptr<DataOrder> order_;
  std::unique_ptr<Device> device_;
  std::vector<std::string> device_names_;  // by rank
  std::unique_ptr<Comm> device_world_;     // the world for what lies on the device; null: world_ serves
  std::optional<Arena> arena_;
  OpLog op_log_;
  std::shared_ptr<CommRecord> comm_record_;
  std::optional<Mesh> mesh_;
  std::unique_ptr<TrainStep> step_;
  std::optional<Validation> validation_;
  std::optional<Guard> guard_;
  std::optional<LossScale> loss_scale_;  // f16
  std::optional<PredictedStep> predicted_;
  int64_t most_planned_bytes_ = 0;  // of any rank
  std::optional<StragglerWatch> stragglers_;
  std::optional<ParallelCheck> parallel_check_;  // until --verify-parallel steps are through
  TrainState state_;
  Json identity_;
  std::vector<FileLock> locks_;
  JsonLines metrics_, events_;
  std::atomic<int64_t> sampled_step_ = 0;
  std::optional<ResourceSampler> sampler_;
  std::optional<TrainMetrics> prometheus_;  // on rank 0, when --metrics-port asks for it
  StepClock clock_;
  TraceSteps traced_;
  std::unique_ptr<ChromeTrace> trace_file_;  // on rank 0, once a step is drawn
  ModelFlops flops_{};
  double hardware_flops_ = 0;  // of a step, all ranks: products and attention as they run, what is made again included
  int threads_ = 1;
  int64_t ranks_per_node_ = 1;
  double peak_flops_ = 0, peak_lr_ = 0, train_s_ = 0;
  int64_t first_step_ = 0, steps_run_ = 0, start_rss_ = 0, saved_step_ = -1, failed_save_step_ = -1,
          skips_in_a_row_ = 0, last_validated_ = -1;
  double last_loss_ = std::nan("");          // until a step has run
  std::optional<GuardReport> guard_report_;  // of the running step
  double scale_used_ = 1;                    // f16: the loss scale of the running step
  bool update_overflowed_ = false;           // f16: the running step's gradients left the range of the scale
  ValidationResult last_validation_;
  bool metrics_full_ = false, peak_doubted_ = false;
  std::map<std::pair<std::string, CommKind>, CommCount> counted_;  // before the running step
  double exposed_before_ = 0, total_before_ = 0;
  int64_t rewinds_ = 0;  // since the last checkpoint

  std::vector<std::string> resume_notes_;  // what was passed over and what changed
  int64_t generation_ = 0;                 // starts of this run before this one
  int64_t fetched_bytes_ = 0;              // of the checkpoint, from other nodes
  std::filesystem::path local_;            // this node's folder of the local tier; empty: none
  std::optional<AsyncSaver> saver_;
  struct Mean {
    double sum = 0;
    int64_t n = 0;
    void add(double v) { sum += v, ++n; }
    double mean() const { return n > 0 ? sum / static_cast<double>(n) : 0; }
  };
  Mean quiet_, busy_;  // seconds of a step, without and with a save under way
  // Seconds in which saves kept this rank's training waiting, with what they wait for at the end of a run: in all,
  // since the last metrics line, since the last request.
  double stall_s_ = 0, step_stall_s_ = 0, save_stall_s_ = 0;
  std::vector<Json> saves_;  // committed since the last metrics line
  int64_t every_ = 0;        // steps between durable checkpoints
  int64_t next_auto_ = -1;   // --checkpoint-every auto: the step of the next one; -1: not auto
  int64_t said_interval_ = -1, requested_step_ = -1, skipped_saves_ = 0, local_step_ = -1;
  bool owes_durable_ = false;       // one was due that could not begin: the next local save is uploaded
  bool requested_durable_ = false;  // the save under way is to become durable
  bool local_failed_ = false;       // the last local save did
  bool must_differ_ = false;        // the weights were updated since the last save
  std::string peak_source_, run_id_, init_tokenizer_;
};

// JSON has no NaN and no infinity.
Json json_or_null(double v);

}  // namespace rw
