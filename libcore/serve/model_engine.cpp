#include "libcore/serve/model_engine.h"

#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/nccl_comm.h"
#include "libcore/comm/rank_cores.h"
#include "libcore/serve/rank_plans.h"
#include "libcore/serve/serving_sizes.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

std::string folder_name(const std::string& path) {
  const fs::path p = fs::path(path).lexically_normal();
  const std::string name = (p.has_filename() ? p : p.parent_path()).filename().string();
  return name.empty() ? "model" : name;
}

int64_t file_time(const std::string& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  if (error) return 0;
  const auto age = fs::file_time_type::clock::now() - written;
  return std::chrono::duration_cast<std::chrono::seconds>((std::chrono::system_clock::now() - age).time_since_epoch())
      .count();
}

// A Hugging Face directory may name further ids that end a text (the end of a turn) in its generation_config.json
// alone.
void add_generation_ends(const fs::path& dir, int64_t vocab_size, std::vector<int32_t>& ends) {
  const fs::path file = dir / "generation_config.json";
  if (!fs::is_regular_file(file)) return;
  const Json config = read_json(file);
  if (!config.is_object() || !config.contains("eos_token_id")) return;
  const Json& eos = config["eos_token_id"];
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (id.is_null()) continue;
    if (!id.is_number_integer() || id < 0 || id >= vocab_size)
      fail(ErrorKind::input, "{}: eos_token_id: expected ids below {}, found {}", file.string(), vocab_size, id.dump());
    ends.push_back(id.get<int32_t>());
  }
}

// Warm-up prompts stay: those that would leave no room for a sequence of full length are refused before anything runs.
void check_warmup(const std::vector<WarmPrompt>& warmup, const SchedulerSpec& s, int64_t max_len) {
  const auto blocks = [&](int64_t tokens) { return (tokens + s.block_tokens - 1) / s.block_tokens; };
  int64_t left = s.n_pages - blocks(max_len);
  for (const WarmPrompt& w : warmup) {
    left -= blocks(static_cast<int64_t>(w.tokens.size()));
    if (left < 0)
      fail(ErrorKind::usage,
           "--warmup: '{}' and those before it leave no room for a sequence of {} tokens in a cache of {} pages; "
           "expected "
           "fewer or shorter prompts, more --memory, or a smaller --max-model-len",
           w.name, max_len, s.n_pages);
  }
}

MemoryBudget budget_of(const ServeSpec& spec, const RunnerSpec& runner, Comm& world) {
  const RunnerSizes sizes = runner_sizes(runner, world.rank(), world.size());
  const DeviceMemory* const device = runner.device->memory();
  const int64_t available =
      device != nullptr ? device->free_bytes() : available_bytes() / std::max(1, ranks_of_host(world));
  if (spec.memory > available)
    fail(ErrorKind::usage, "--memory {}: {} can give {} to a rank", format_bytes(static_cast<double>(spec.memory)),
         device != nullptr ? device->name() : "this machine", format_bytes(static_cast<double>(available)));
  if (spec.memory == 0 && spec.memory_utilization >= 0.97)
    log_warning("--memory-utilization {}: leaves little for the system; 0.9 is safer", spec.memory_utilization);
  return memory_budget({.memory = spec.memory,
                        .utilization = spec.memory_utilization,
                        .available = available,
                        .weights = sizes.weights,
                        // What the device's context takes is not available any more.
                        .runtime = sizes.runtime + (device != nullptr ? 0 : resident_bytes()),
                        .page_bytes = sizes.page_bytes,
                        .page_tokens = runner.page_tokens,
                        .max_len = runner.max_len,
                        .most_pages = sizes.most_pages});
}

ServingModel open_model(const ServeSpec& spec) {
  ServingModel m{.name = spec.served_model_name.empty() ? folder_name(spec.model) : spec.served_model_name,
                 .source = open_model_source(spec.model)};
  const ModelSpec& model = m.source.spec;
  if (m.source.tokenizer_json.empty())
    fail(ErrorKind::input, "{}: holds no tokenizer; expected a tokenizer.json beside config.json", spec.model);
  m.tokenizer = parse_tokenizer(m.source.tokenizer_json, spec.model + " (tokenizer)");
  if (m.tokenizer->vocab_size() > model.vocab_size)
    fail(ErrorKind::input, "{}: its tokenizer has {} tokens, the model's vocabulary {}", spec.model,
         m.tokenizer->vocab_size(), model.vocab_size);
  if (spec.max_model_len > model.max_position)
    fail(ErrorKind::usage, "--max-model-len {}: the model's longest sequence is {}", spec.max_model_len,
         model.max_position);
  m.max_model_len = spec.max_model_len > 0 ? spec.max_model_len : model.max_position;
  m.identity = hex64(
      hash64(model_identity(model) + m.tokenizer->identity() + m.source.identity + std::to_string(m.source.step)));
  if (model.eos_id >= 0) m.ends.push_back(static_cast<int32_t>(model.eos_id));
  for (const int64_t id : model.other_eos_ids) m.ends.push_back(static_cast<int32_t>(id));
  if (const int32_t id = m.tokenizer->end_of_text(); id >= 0) m.ends.push_back(id);
  add_generation_ends(spec.model, model.vocab_size, m.ends);
  std::sort(m.ends.begin(), m.ends.end());
  m.ends.erase(std::unique(m.ends.begin(), m.ends.end()), m.ends.end());
  m.created = file_time(spec.model);
  return m;
}

// Not before: ranks may load at different speeds.
void set_timeouts(const ServeSpec& spec, const ServingDevice& on, Comm& world) {
  world.set_timeout(spec.comm_timeout);
  on.ranks(world).set_timeout(spec.comm_timeout);
}

}  // namespace

ServingModel open_serving_model(const ServeSpec& spec, Comm& world) {
  ServingModel model;
  agree(world, [&] { model = open_model(spec); });
  return model;
}

ServingDevice open_serving_device(const ServeSpec& spec, Comm& world) {
  ServingDevice on;
  agree(world, [&] {
    on.device = open_device(
        {.device = spec.device, .local_rank = rank_on_host(world), .threads = threads_per_rank(spec.threads, world)});
  });
  devices_of_ranks(world, *on.device);
  if (world.size() > 1) on.on_device = device_comm(world, *on.device);
  return on;
}

ServingRunner make_serving_runner(const ServeSpec& spec, const ServingModel& model, const ServingDevice& on,
                                  Comm& world) {
  RunnerSpec runner;
  MemoryBudget budget{};
  agree(world, [&] {
    if (spec.tp != 0 && spec.tp != world.size())
      fail(ErrorKind::usage, "--tp {}: expected as many as there are ranks, {} (mpirun -n {} dserve ...)", spec.tp,
           world.size(), spec.tp);
    if (const std::string fault = tp_fault(model.source.spec, world.size()); !fault.empty())
      fail(ErrorKind::usage, "{}", fault);
    runner = runner_spec({.spec = spec,
                          .model = model.source.spec,
                          .max_len = model.max_model_len,
                          .threads = threads_per_rank(spec.threads, world)});
    runner.device = on.device.get();
    budget = budget_of(spec, runner, world);
  });
  runner.n_pages = budget.n_pages = world.all_reduce_value(budget.n_pages, ReduceOp::min);
  ServingRunner made{.runner = nullptr,
                     .budget = budget,
                     .scheduler = scheduler_spec(spec, budget.n_pages),
                     .page_bytes = budget.kv / std::max<int64_t>(budget.n_pages, 1)};
  made.runner = std::make_unique<ModelRunner>(runner, on.ranks(world));
  agree(world, [&] { made.runner->load(*model.source.weights); });
  return made;
}

std::unique_ptr<Engine> make_engine(const ServeSpec& spec, const ServingModel& model, std::vector<WarmPrompt> warmup,
                                    const ServingDevice& on, Comm& world) {
  ServingRunner made = make_serving_runner(spec, model, on, world);
  set_timeouts(spec, on, world);
  log_info("device: {}", on.device->name());
  log_info("{}", made.budget.text());
  const SchedulerSpec scheduler = made.scheduler;
  check_warmup(warmup, scheduler, model.max_model_len);
  EngineSpec engine{.scheduler = scheduler,
                    .admission = {.max_model_len = model.max_model_len,
                                  .max_seqs = spec.max_num_seqs,
                                  .max_queue = spec.max_queue,
                                  .slo_ttft_s = spec.slo_ttft_ms / 1000},
                    .ends = model.ends,
                    .warmup = std::move(warmup),
                    .weights_bytes = made.budget.weights,
                    .kv_bytes = made.budget.kv,
                    .runtime_bytes = made.budget.runtime,
                    .page_bytes = made.page_bytes};
  // The weights were packed by this thread's OpenMP team, steps run on the engine's. A team that is kept counts against
  // the cores, and with more threads than cores the OpenMP library goes to sleep at every barrier: steps took half as
  // long again.
  omp_pause_resource_all(omp_pause_soft);
  StepLog log = spec.log_steps ? StepLog(fs::path(spec.out) / "steps.jsonl", scheduler) : StepLog();
  return std::make_unique<LiveEngine>(std::move(engine), make_lead_runner(std::move(made.runner), on.ranks(world)),
                                      *model.tokenizer, std::move(log));
}

void serve_other_rank(const ServeSpec& spec, Comm& world) {
  const ServingDevice on = open_serving_device(spec, world);
  const ServingModel model = open_serving_model(spec, world);
  const ServingRunner made = make_serving_runner(spec, model, on, world);
  set_timeouts(spec, on, world);
  follow_plans(*made.runner, on.ranks(world));
}

}  // namespace rw
