// The set-up of a run.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/node_folders.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/nccl_comm.h"
#include "libcore/comm/rank_cores.h"
#include "libcore/data/duplicates.h"
#include "libcore/formats/model_source.h"
#include "libcore/net/url.h"
#include "libcore/text/tokenizer.h"
#include "libcore/train/device_peak.h"
#include "libcore/train/dry_run.h"
#include "libcore/train/local_dirs.h"
#include "libcore/train/lr_schedule.h"
#include "libcore/train/signals.h"
#include "libcore/train/trainer_run.h"

namespace rw {
namespace {

constexpr double kPeakMeasureS = 0.3;
constexpr int64_t kLeastStaging = int64_t{32} << 20;

// What this rank is about to take, by owner, against what there is.
void check_fits(const DryRun& plan, const std::string& who, int64_t needed, int64_t available) {
  if (needed <= available) return;
  std::string owners;
  for (size_t o = 0; o < plan.bytes.size(); ++o)
    if (plan.bytes[o] > 0)
      owners += fmt::format("{}{} {}", owners.empty() ? "" : ", ", memory_owner_name(static_cast<MemoryOwner>(o)),
                            format_bytes(static_cast<double>(plan.bytes[o])));
  fail(ErrorKind::runtime,
       "out of memory: {} needs {} ({}), {} in all are available, {} too little; use more --tp, --pp or --zero, "
       "--recompute full, or a smaller --micro-batch, --seq-len or model",
       who, format_bytes(static_cast<double>(plan.total_bytes)), owners, format_bytes(static_cast<double>(available)),
       format_bytes(static_cast<double>(needed - available)));
}

}  // namespace

void Trainer::phase(const std::string& name, const std::function<void()>& body) {
  const double start = now_s();
  agree(world_, body);
  if (first_rank()) observer_.phase(name, now_s() - start);
}

void Trainer::open_inputs() {
  check_train_spec(spec_);
  traced_ = parse_trace_steps(spec_.trace_steps);
  if (!spec_.init_from.empty()) {
    ModelSource source = open_model_source(spec_.init_from);
    init_weights_ = std::move(source.weights);
    init_tokenizer_ = source.tokenizer_json;
    model_ = source.spec;
  }
  if (!spec_.model.empty()) {
    const ModelSpec named = load_model_spec(spec_.model);
    if (init_weights_ != nullptr && model_identity(named) != model_identity(model_))
      fail(ErrorKind::usage, "--model {} is not the model of --init-from {}; leave --model out to take it from there",
           spec_.model, spec_.init_from);
    model_ = named;
  }
  layout_ = settle_layout(spec_, model_, world_.size());
  spec_.seq_len = layout_.seq_len;
  spec_.global_batch = layout_.global_batch;
  data_ = open_data(spec_, model_);
  if (!init_tokenizer_.empty()) {
    const std::string theirs = parse_tokenizer(init_tokenizer_, spec_.init_from)->identity();
    if (theirs != data_.files[0]->tokenizer_identity())
      warn(
          fmt::format("--init-from {} was trained with tokenizer {}, the data was prepared with {}: unless these are "
                      "the same tokens its weights mean nothing here",
                      spec_.init_from, theirs, data_.files[0]->tokenizer_identity()));
  }
  order_ = std::make_unique<DataOrder>(data_.parts, spec_.seq_len, static_cast<uint64_t>(spec_.seed));
  if (spec_.verify_data) {
    for (const auto& file : data_.files) {
      if (!file->verify())
        fail(ErrorKind::input, "{}: its tokens do not match the recorded fingerprint {}; prepare it again",
             file->path().string(), file->fingerprint());
      note(duplicates_text(find_duplicates(*file, 5)));
    }
  }
}

// Where the run goes on from.
void Trainer::plan_start() {
  EarlierStarts earlier;
  agree(world_, [&] {
    if (!first_rank()) return;
    // A run that another process trains in is not even looked at: what it saves just now would look damaged.
    if (std::filesystem::exists(std::filesystem::path(spec_.out) / "run.json") && spec_.resume != "none")
      locks_ = lock_run(spec_);
    run_id_ = run_id_of(spec_.out);
    earlier = earlier_starts(spec_.out);
  });
  run_id_ = world_.broadcast_text(run_id_, 0);
  generation_ = world_.all_reduce_value(earlier.generation, ReduceOp::max);
  const std::string told = world_.broadcast_text(earlier.local_checkpoint_dir, 0);
  std::string pattern = spec_.local_checkpoint_dir;
  if (pattern.empty() && !told.empty() && spec_.resume == "auto") {
    pattern = told;
    warn(
        fmt::format("this run had its local checkpoints in --local-checkpoint-dir {}: they are looked for there, and "
                    "without the flag no new ones are saved",
                    told));
  }
  local_ = node_folder(spec_.local_checkpoint_dir, run_id_, world_.nodes()[static_cast<size_t>(world_.rank())]);
  resume_ = plan_resume(spec_, local_dir_to_read(pattern, run_id_, world_), world_);
  resume_notes_ = resume_.notes;
  if (resume_.checkpoint != nullptr) {
    agree(world_, [&] {
      state_ = parse_state(resume_.checkpoint->state(), resume_.checkpoint->where());
      if (state_.step != resume_.checkpoint->step())
        fail(ErrorKind::verdict, "{}: its state is of step {}, its manifest of step {}", resume_.checkpoint->where(),
             state_.step, resume_.checkpoint->step());
      for (std::string& line : check_resume(*resume_.checkpoint, state_, spec_, model_, data_))
        resume_notes_.push_back(std::move(line));
    });
    first_step_ = state_.step;
    if (resume_.local.step < 0) saved_step_ = state_.step;
  }
  for (const std::string& line : resume_notes_) warn(line);
  state_.seq_len = spec_.seq_len;
  state_.seed = spec_.seed;
  state_.global_batch = spec_.global_batch;
  state_.data_fingerprint = data_.fingerprint;
}

void Trainer::open_own_device() {
  threads_ = threads_per_rank(spec_.threads, world_);
  device_ = open_device({.device = spec_.device, .local_rank = rank_on_host(world_), .threads = threads_});
  check_head_size(*device_, model_.head_dim);
  if (device_->memory() != nullptr && spec_.allreduce != "auto")
    warn(fmt::format(
        "--allreduce {} is about the host's memory: what lies on {} goes through NCCL, which chooses itself",
        spec_.allreduce, device_->name()));
}

// What every rank of this host is about to take, against what the host, or the rank's device, has: all refuse together,
// before anything is taken.
void Trainer::check_memory() {
  start_rss_ = resident_bytes();
  if (const int idle = idle_cores(threads_, world_); spec_.threads == 0 && idle > 0)
    warn(
        fmt::format("{} cores of this host are left out because mpirun binds its ranks; give it --bind-to none or "
                    "--map-by slot:PE=N",
                    idle));
  const std::vector<Placement> places = world_.places();
  const int32_t node = places[static_cast<size_t>(world_.rank())].node;
  ranks_per_node_ = std::count_if(places.begin(), places.end(), [&](const Placement& p) { return p.node == node; });
  const DryRun plan =
      dry_run({.step = step_settings(spec_, model_, layout_),
               .backend = {.ops = device_->ops(), .stream = device_->stream(), .t = precision_type(spec_)},
               .ranks_per_node = ranks_per_node_},
              world_.rank());
  for (const char* op : {"gemm", "attention_fwd", "attention_bwd"})
    if (const auto count = plan.ops.find(op); count != plan.ops.end()) hardware_flops_ += count->second.cost.flops;
  const int64_t here = ranks_of_host(world_);
  const int64_t available = available_bytes();
  if (const DeviceMemory* memory = device_->memory()) {
    check_fits(plan, fmt::format("each rank, on {},", memory->name()), plan.total_bytes, memory->free_bytes());
    // NCCL takes its buffers with the first collective of each communicator.
    constexpr int64_t kReserve = int64_t{1} << 30;
    const int64_t left = memory->free_bytes() - plan.total_bytes;
    if (world_.size() > 1 && left < kReserve)
      warn(
          fmt::format("{} is left on {} beside the plan's {}, and NCCL takes some hundred MiB: should it run out, use "
                      "more --tp, --pp or --zero, --recompute full, or a smaller --micro-batch",
                      format_bytes(static_cast<double>(left)), memory->name(),
                      format_bytes(static_cast<double>(plan.total_bytes))));
    return plan_staging(plan.checkpoint_bytes, available / here);
  }
  check_fits(plan, fmt::format("each of the {} ranks on this host", here), plan.total_bytes * here, available);
  plan_staging(plan.checkpoint_bytes, available / here - plan.total_bytes);
}

// Staging a save at once takes as much memory as its file. Where that is not left, it goes in waves.
void Trainer::plan_staging(int64_t file_bytes, int64_t free_bytes) {
  if (spec_.checkpoint_memory > 0 || file_bytes <= free_bytes / 2) return;
  spec_.checkpoint_memory = std::max(kLeastStaging, free_bytes / 2);
  log_warning("a checkpoint of {} a rank is staged in waves of {}, all that memory allows",
              format_bytes(static_cast<double>(file_bytes)),
              format_bytes(static_cast<double>(spec_.checkpoint_memory)));
}

void Trainer::build_step() {
  comm_record_ = std::make_shared<CommRecord>();
  comm_record_->rank = world_.rank();
  comm_record_->host = world_.hosts()[static_cast<size_t>(world_.rank())];
  device_world_ = device_comm(world_, *device_);
  mesh_ = make_mesh(device_world_ != nullptr ? *device_world_ : world_, mesh_shape(layout_, model_, ranks_per_node_),
                    comm_record_);
  arena_.emplace(device_->memory());
  op_log_.backend = &device_->ops();
  op_log_.look = false;
  Stream stream = device_->stream();
  if (spec_.nan_trace) stream.log = &op_log_;
  const Exec exec{
      .ops = spec_.nan_trace ? checked_ops() : device_->ops(), .stream = stream, .t = precision_type(spec_)};
  step_ = std::make_unique<TrainStep>(step_settings(spec_, model_, layout_), exec, *mesh_, comm_record_, *arena_);
  if (spec_.val_fraction > 0 && data_.validation.empty())
    warn(fmt::format("--val-fraction {} holds out no token of this data: there is no validation", spec_.val_fraction));
  validation_.emplace(data_.validation, spec_.seq_len, spec_.micro_batch);
  flops_ = training_flops_per_token(model_, spec_.seq_len);
  peak_lr_ = batch_scaled_lr(spec_, spec_.global_batch);
  guard_.emplace(GuardSettings{.policy = spike_policy(spec_.on_spike), .threshold = spec_.spike_threshold});
  if (spec_.precision == "f16") loss_scale_.emplace(spec_.loss_scale, spec_.loss_scale_window);
  std::vector<int64_t> stages;
  for (int r = 0; r < world_.size(); ++r) stages.push_back(MeshPlace(mesh_->shape, r).pp);
  stragglers_.emplace(stages);
}

// Weights, moments and what else goes on from state_, the state of the plan's checkpoint. Collective.
void Trainer::take_up(ResumePlan& plan) {
  if (plan.local.step >= 0) {
    std::vector<int64_t> needed;
    agree(world_, [&] { needed = files_of(plan.checkpoint->manifest(), boxes_to_load(*step_)); });
    const int64_t bytes = fetch_files(plan.local_dir, plan.local, needed, world_);
    fetched_bytes_ = bytes;
    if (bytes > 0)
      note(fmt::format("{} of the checkpoint of step {} came from other nodes",
                       format_bytes(static_cast<double>(bytes)), plan.local.step));
    agree(world_, [&] {
      plan.checkpoint = std::make_unique<Checkpoint>(plan.checkpoint->where(), Checkpoint::Files::those_here);
    });
  }
  agree(world_, [&] {
    const Checkpoint& checkpoint = *plan.checkpoint;
    load_params(*step_, checkpoint, Load::weights_and_moments);
    step_->optimizer().set_steps_taken(state_.updates);
    if (!state_.guard.empty()) guard_->restore(Json::parse(state_.guard), checkpoint.where());
    if (loss_scale_ && !state_.loss_scale.empty())
      loss_scale_->restore(Json::parse(state_.loss_scale), checkpoint.where());
  });
}

void Trainer::load_weights() {
  if (resume_.checkpoint != nullptr) {
    take_up(resume_);
    note(fmt::format("resumed {} at step {}", resume_.checkpoint->where(), state_.step));
  } else if (init_weights_ != nullptr) {
    load_params(*step_, *init_weights_, Load::weights);
  } else {
    init_weights(*step_, static_cast<uint64_t>(spec_.seed));
  }
  init_weights_.reset();
}

void Trainer::measure_peak() {
  // On the CPU f16 is a storage type: products run in f32.
  const DType t = spec_.precision == "bf16" ? DType::bf16 : DType::f32;
  const char* source = "given by --peak-flops";
  peak_flops_ = spec_.peak_flops;
  if (spec_.peak_flops <= 0 && device_->memory() != nullptr) {
    source = "a large product";
    peak_flops_ = measure_device_peak(*device_, precision_type(spec_), kPeakMeasureS);
  } else if (spec_.peak_flops <= 0) {
    peak_flops_ = measure_peak_flops(t, {.threads = threads_}, kPeakMeasureS, &source);
  }
  peak_source_ = source;
}

void Trainer::start_run_dir() {
  const std::filesystem::path out = spec_.out;
  identity_ = run_identity({.spec = spec_, .model = model_, .data = data_, .layout = layout_}, world_, run_id_);
  identity_["tokenizer_json"] = data_.files[0]->tokenizer_json();
  identity_["peak_flops_per_rank"] = peak_flops_;
  identity_["peak_flops_source"] = peak_source_;
  identity_["threads_per_rank"] = threads_;
  identity_["backend"] = device_->ops().name;
  identity_["device"] = device_->name();
  if (device_->kind() != DeviceKind::cpu && world_.size() > 1) identity_["devices"] = device_names_;  // by rank
  identity_["params"] = n_params(model_);
  identity_["generation"] = generation_;
  if (!spec_.plan_table.empty()) identity_["plan"] = Json::parse(spec_.plan_table);
  if (!spec_.predicted_table.empty()) identity_["predicted"] = Json::parse(spec_.predicted_table);
  if (resume_.checkpoint != nullptr && resume_.checkpoint->identity().value("run_id", std::string()) != run_id_)
    identity_["resumed_from"] = {{"run_id", resume_.checkpoint->identity().value("run_id", std::string())},
                                 {"step", first_step_},
                                 {"path", resume_.checkpoint->where()}};
  if (!first_rank()) return;
  Json run = identity_;
  run.erase("tokenizer_json");
  if (locks_.empty()) locks_ = lock_run(spec_);
  set_aside(resume_);
  write_run_json(out, run);
  std::error_code ignored;  // what an earlier start left says nothing about this one
  std::filesystem::remove_all(out / "watchdog", ignored);
  drop_lines_after(out / "metrics.jsonl", state_.step);
  metrics_ = JsonLines(out / "metrics.jsonl");
  events_ = JsonLines(out / "events.jsonl");
  Json details = {{"ranks", world_.size()}, {"layout", layout_.text()}, {"samples", state_.samples}};
  if (resume_.checkpoint != nullptr) {
    details["from"] = resume_.checkpoint->where();
    details["tier"] = resume_.local.step >= 0 ? "local" : "durable";
    details["fetched_bytes"] = fetched_bytes_;
    details["notes"] = resume_notes_;
  }
  if (prometheus_) prometheus_->begin(run);
  event(first_step_ > 0 ? "resume" : "start", details);
}

// Early: a taken port ends the run before it has cost anything.
void Trainer::open_metrics_port() {
  if (!first_rank()) return;
  prometheus_.emplace(spec_.metrics_host, metrics_port(spec_));
  observer_.note(fmt::format("metrics: http://{}/metrics (Prometheus), /health",
                             HttpUrl{.host = spec_.metrics_host, .port = prometheus_->port(), .path = ""}.authority()));
}

// The first rank of each host records what the host does.
void Trainer::start_sampler() {
  const std::vector<std::string> hosts = world_.hosts();
  const auto me = static_cast<size_t>(world_.rank());
  const auto first = static_cast<size_t>(std::find(hosts.begin(), hosts.end(), hosts[me]) - hosts.begin());
  const std::vector<std::string> pids = world_.gather_text(std::to_string(::getpid()));
  if (first != me) return;
  ResourceOptions options{
      .file = std::filesystem::path(spec_.out) / (me == 0 ? "resources.jsonl" : "resources-" + hosts[me] + ".jsonl"),
      .host = hosts[me]};
  for (size_t r = 0; r < hosts.size(); ++r)
    if (r != me && hosts[r] == hosts[me] && pids[r] != pids[me]) options.pids.push_back(std::stoll(pids[r]));
  sampler_.emplace(options, &sampled_step_);
  if (prometheus_) prometheus_->show_host(options);
}

void Trainer::start() {
  catch_stop_signals();  // a signal during the start ends the run after its first step
  world_.set_timeout(spec_.comm_timeout);
  phase("model and data", [&] {
    open_inputs();
    open_own_device();
  });
  device_names_ = devices_of_ranks(world_, *device_);
  if (metrics_port(spec_) >= 0) phase("metrics port", [&] { open_metrics_port(); });
  phase("resume", [&] { plan_start(); });
  phase("plan", [&] { check_memory(); });
  phase("machine peak", [&] { measure_peak(); });  // while a device's memory is free
  phase("memory", [&] { build_step(); });
  phase("weights", [&] { load_weights(); });
  peak_flops_ = world_.all_reduce_value(peak_flops_, ReduceOp::sum) / world_.size();
  most_planned_bytes_ = world_.all_reduce_value(arena_->total_bytes(), ReduceOp::max);
  const std::string other = plan_mismatch(spec_.plan_table, model_, world_.size());
  if (!other.empty() && !spec_.predicted_table.empty())
    warn(fmt::format("[plan]: {}; its prediction is not compared with this run", other));
  predicted_.emplace(other.empty() ? spec_.predicted_table : "");
  hardware_flops_ = world_.all_reduce_value(hardware_flops_, ReduceOp::sum);
  phase("run directory", [&] { start_run_dir(); });
  phase("sampler", [&] { start_sampler(); });
  phase("checkpoints", [&] {
    claim_local_dir(local_, world_);
    start_saver();
  });
  if (layout_.zero > 0 && layout_.dp == 1)
    warn(fmt::format("--zero {} shards over data-parallel ranks and there is one: nothing is sharded", layout_.zero));
  if (spec_.threads > 0 && threads_ > online_cores())
    warn(fmt::format("--threads {} is more than this host's {} cores", threads_, online_cores()));
  note(
      fmt::format("{} parameters, {} ranks x {} threads ({}), {}, {}; peak {} FLOP/s a rank ({}); {} planned on rank 0",
                  format_count(static_cast<double>(n_params(model_))), world_.size(), threads_, layout_.text(),
                  device_->name(), spec_.precision, format_count(peak_flops_), peak_source_,
                  format_bytes(static_cast<double>(arena_->total_bytes()))));
}

}  // namespace rw
