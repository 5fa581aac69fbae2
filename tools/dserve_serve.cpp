#include "tools/dserve_serve.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "libcore/api/server.h"
#include "libcore/api/warmup_file.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/base/version.h"
#include "libcore/serve/model_engine.h"
#include "libcore/spec/serve_spec.h"
#include "libcore/telemetry/json_lines.h"
#include "tools/drain_signals.h"
#include "tools/job_command_line.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Subcommands:\n"
    "  dserve generate    continue one prompt; see dserve generate --help\n"
    "  dserve replay      ask the scheduler again for the plans of a log; see dserve replay --help\n"
    "\n"
    "Examples:\n"
    "  dserve --model runs/kjv --port 8000\n"
    "  mpirun -n 2 dserve --model Llama-3.2-1B/ --tp 2 --itl-budget-ms 50 --out serving\n"
    "  dserve --model runs/kjv --device cuda\n"
    "  curl http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"In the beginning\", \"max_tokens\": 32}'\n"
    "\n"
    "SIGTERM or SIGINT: no new requests, running ones are finished within --drain-timeout, exit 0 (1: some were cut "
    "off). A second one ends at once.";

constexpr std::chrono::milliseconds kLook{20};
constexpr double kWriteS = 2;  // for replies to reach their clients at the end

std::unique_ptr<ChatTemplate> chat_template_of(const ServeSpec& spec, const ModelSource& source) {
  if (!spec.chat_template.empty()) return named_chat_template(spec.chat_template, source.tokenizer_config_json);
  auto own = model_chat_template(source.tokenizer_config_json, spec.model + " (tokenizer_config.json)");
  if (own == nullptr) log_info("{} has no chat template: /v1/chat/completions needs --chat-template", spec.model);
  return own;
}

std::string url_of(const ServeSpec& spec, int port) {
  const bool v6 = spec.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", spec.host, v6 ? "]" : "", port);
}

// Until a signal, or until the engine has failed.
void run_until_told(Engine& engine) {
  while (drain_signals() == 0 && engine.state() != EngineState::failed) std::this_thread::sleep_for(kLook);
}

// For whoever looks at /health meanwhile.
void show_failure(const ServeSpec& spec) {
  log_error("/health tells of the failure for {} (--drain-timeout), then this ends",
            format_seconds(spec.drain_timeout));
  const double deadline = now_s() + spec.drain_timeout;
  while (now_s() < deadline && drain_signals() == 0) std::this_thread::sleep_for(kLook);
}

// How many requests were cut off.
int64_t drain(const ServeSpec& spec, ApiServer& server, Engine& engine) {
  log_info("draining: requests under way ({}) have {} (--drain-timeout); a second signal ends at once",
           server.live_requests(), format_seconds(spec.drain_timeout));
  server.drain();
  engine.drain();
  const double deadline = now_s() + spec.drain_timeout;
  while (server.live_requests() > 0 && now_s() < deadline && drain_signals() < 2 &&
         engine.state() != EngineState::failed)
    std::this_thread::sleep_for(kLook);
  const int64_t cut = server.live_requests();
  if (cut > 0) log_warning("requests cut off: {}", cut);
  return cut;
}

// A server's life in events.jsonl of --out.
class Events {
 public:
  explicit Events(const ServeSpec& spec) {
    if (!spec.out.empty()) lines_ = JsonLines(std::filesystem::path(spec.out) / "events.jsonl");
  }
  void write(const char* event, const Json& what) {
    Json line = {{"time", utc_timestamp()}, {"event", event}};
    line.update(what);
    lines_.write(line);
  }

 private:
  JsonLines lines_;
};

int lead(const ServeSpec& spec, Comm& world) {
  const ServingDevice on = open_serving_device(spec, world);
  ApiServer server(spec);
  const int port = server.start();
  const std::string url = url_of(spec, port);
  if (spec.port == 0) fmt::print(stderr, "listening on {}\n", url);

  const ServingModel model = open_serving_model(spec, world);
  const auto chat_template = chat_template_of(spec, model.source);
  ServedModel served{.name = model.name,
                     .identity = model.identity,
                     .path = spec.model,
                     .tokenizer = model.tokenizer.get(),
                     .chat_template = chat_template.get(),
                     .tokenizer_config = model.source.tokenizer_config_json,
                     .spec = model.source.spec,
                     .max_model_len = model.max_model_len,
                     .created = model.created,
                     .device = on.device->name()};
  std::vector<WarmPrompt> warmup = read_warmup_file(spec.warmup, served);
  // Goes out before the weights are read: a script can watch /health.
  const Json line = {{"url", url}, {"port", port}, {"model", model.name}};
  fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
  const std::unique_ptr<Engine> engine = make_engine(spec, model, std::move(warmup), on, world);
  Events events(spec);
  events.write("start", {{"version", version()},
                         {"url", url},
                         {"model", model.name},
                         {"identity", model.identity},
                         {"ranks", world.size()},
                         {"device", on.device->name()},
                         {"max_model_len", model.max_model_len}});
  server.serve(std::move(served), *engine);
  serving_began();
  while (engine->state() == EngineState::loading && drain_signals() == 0) std::this_thread::sleep_for(kLook);
  if (engine->state() == EngineState::ready) {
    events.write("ready", Json::object());
    fmt::print(stderr, "ready: {} on {}, sequences of up to {} tokens\n", model.name, url, model.max_model_len);
  }
  run_until_told(*engine);
  bool failed = engine->state() == EngineState::failed;
  if (failed) show_failure(spec);
  else events.write("drain", {{"requests", server.live_requests()}});
  const int64_t cut = failed ? 0 : drain(spec, server, *engine);
  server.stopping();
  engine->stop("the server is shutting down");
  server.stop(kWriteS);
  failed |= engine->state() == EngineState::failed;
  events.write("end", {{"failed", failed}, {"cut_off", cut}});
  const int code = failed || cut > 0 ? exit_code(ErrorKind::runtime) : 0;
  if (failed && world.size() > 1) abort_world(code);  // the other ranks may hang, and would be waited for
  return code;
}

// An empty key would leave the server open to those who meant to close it.
bool asks_for_key(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [](const char* a) { return std::string_view(a).starts_with("--api-key"); });
}

int run_rank(int argc, const char* const* argv, Comm& world) {
  ServeSpec spec;
  const CommandLine command{.name = "dserve",
                            .description = "Serves a language model over HTTP, with OpenAI's API.",
                            .fields = fields(spec),
                            .required = {"model"},
                            .footer = kFooter};
  if (const auto code = parse_job_command_line(command, argc, argv, world)) return *code;
  check_serve_spec(spec);
  if (spec.api_key.empty() && asks_for_key(argc, argv))
    fail(ErrorKind::usage, "--api-key: expected a key, found an empty one (a variable that is not set?)");
  if (const char* key = std::getenv("RANKWRIGHT_API_KEY"); key != nullptr && spec.api_key.empty()) spec.api_key = key;
  if (world.rank() != 0) {
    serving_began();  // the first rank says when it ends
    serve_other_rank(spec, world);
    return 0;
  }
  if (!spec.out.empty()) std::filesystem::create_directories(spec.out);
  return lead(spec, world);
}

}  // namespace

int dserve_serve(int argc, const char* const* argv) {
  catch_drain_signals();
  const std::unique_ptr<Comm> world = make_world_comm();
  set_log_rank(world->rank(), world->size());
  return run_job("dserve", *world, [&] { return run_rank(argc, argv, *world); });
}

}  // namespace rw
