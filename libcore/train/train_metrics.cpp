#include "libcore/train/train_metrics.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/version.h"
#include "libcore/device/arena.h"
#include "libcore/net/http_server.h"
#include "libcore/telemetry/prometheus.h"
#include "libcore/telemetry/resources.h"

namespace rw {
namespace {

constexpr double kTicksPerS = 100;  // of /proc/stat: USER_HZ, which Linux fixes for programs (man 7 time)

std::string series(const std::string& name) { return "rankwright_train_" + name; }

// 1 ms to 1000 s, three a decade.
std::vector<double> step_bounds() {
  std::vector<double> bounds;
  for (double decade = 1e-3; decade < 999; decade *= 10)
    for (const double part : {1.0, 2.0, 5.0}) bounds.push_back(decade * part);
  return bounds;
}

// A missing or null number is no number.
double number_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : std::nan("");
}

bool is_owner(const std::string& name) {
  for (int o = 0; o < static_cast<int>(MemoryOwner::n_owners); ++o)
    if (name == memory_owner_name(static_cast<MemoryOwner>(o))) return true;
  return false;
}

// A counter whose total somebody else keeps.
void raise_to(MetricCounter& counter, double total) {
  if (total > counter.value()) counter.add(total - counter.value());
}

}  // namespace

struct TrainMetrics::Impl {
  MetricRegistry registry;
  std::atomic<bool> is_training = false;
  mutable std::mutex host_mutex;  // one scrape at a time reads the host
  std::optional<ResourceOptions> host;
  int port = 0;
  std::unique_ptr<HttpServer> server;  // last: its threads use what is above

  void gauge(const char* name, const char* help, double value) { registry.gauge(series(name), help).set(value); }
  void add(const char* name, const char* help, double amount, const MetricLabels& labels = {}) {
    if (amount >= 0) registry.counter(series(name), help, labels).add(amount);
  }
  void total(const char* name, const char* help, double value) {
    if (value >= 0) raise_to(registry.counter(series(name), help), value);
  }

  void add_communication(const Json& communication) {
    add("communication_exposed_seconds_total", "Seconds in which rank 0 did nothing but communicate or wait.",
        number_of(communication, "exposed_s"));
    add("communication_seconds_total", "Seconds between the start and the end of rank 0's communication.",
        number_of(communication, "total_s"));
    const auto by_op = [&](const char* key, const char* name, const char* help) {
      const auto counts = communication.find(key);
      if (counts == communication.end()) return;
      for (const auto& [group_op, n] : counts->items()) {
        const size_t dot = group_op.rfind('.');
        const std::string group = group_op.substr(0, dot);
        const std::string op = dot == std::string::npos ? "" : group_op.substr(dot + 1);
        add(name, help, n.get<double>(), {{"group", group}, {"op", op}});
      }
    };
    by_op("calls", "communication_calls_total", "Collectives and messages that rank 0 took part in.");
    by_op("bytes", "communication_bytes_total", "Bytes of them.");
  }

  void show_memory(const Json& memory) {
    for (const auto& [name, bytes] : memory.items())
      if (is_owner(name))
        registry.gauge(series("memory_bytes"), "The arena of rank 0, by owner.", {{"owner", name}})
            .set(bytes.get<double>());
      else
        registry
            .gauge(series("memory_other_bytes"), "Memory of rank 0 that is no owner's: sums, and what is outside.",
                   {{"what", name}})
            .set(bytes.get<double>());
  }

  // What the host has counted since it started, and how it stands.
  void read_host() {
    const std::lock_guard lock(host_mutex);
    if (!host) return;
    const HostCounters now = read_host_counters(*host);
    const auto count = [&](const char* name, const char* help, double value, const MetricLabels& labels) {
      raise_to(registry.counter(series(name), help, labels), value);
    };
    if (now.cpu) {
      const auto cpu = [&](const char* mode, int64_t ticks) {
        count("host_cpu_seconds_total", "CPU time of rank 0's host, all CPUs.", static_cast<double>(ticks) / kTicksPerS,
              {{"mode", mode}});
      };
      cpu("busy", now.cpu->busy);
      cpu("idle", now.cpu->idle);
      cpu("io_wait", now.cpu->io_wait);
      cpu("steal", now.cpu->steal);
    }
    if (now.load) gauge("host_load_1m", "Load average of a minute.", now.load->one_minute);
    if (now.memory)
      gauge("host_memory_available_bytes", "What programs may still take.", static_cast<double>(now.memory->available));
    if (now.clock_mhz_mean > 0) gauge("host_clock_hertz", "Mean of the CPUs' clocks.", 1e6 * now.clock_mhz_mean);
    if (now.tcp_retransmits)
      count("host_tcp_retransmits_total", "TCP segments sent again.", static_cast<double>(*now.tcp_retransmits), {});
    for (const auto& [name, i] : now.interfaces) {
      count("host_network_received_bytes_total", "By interface.", static_cast<double>(i.received_bytes),
            {{"interface", name}});
      count("host_network_sent_bytes_total", "By interface.", static_cast<double>(i.sent_bytes), {{"interface", name}});
    }
    for (const auto& [name, d] : now.disks) {
      count("host_disk_read_bytes_total", "By disk.", static_cast<double>(d.read_bytes), {{"disk", name}});
      count("host_disk_written_bytes_total", "By disk.", static_cast<double>(d.written_bytes), {{"disk", name}});
    }
    for (const auto& [pid, bytes] : now.resident_bytes)
      registry
          .gauge(series("resident_bytes"), "Resident memory of the ranks of rank 0's host.",
                 {{"pid", std::to_string(pid)}})
          .set(static_cast<double>(bytes));
  }

  std::string health() const { return Json{{"status", "ok"}, {"state", is_training ? "training" : "starting"}}.dump(); }
};

TrainMetrics::TrainMetrics(const std::string& host, int port) : impl_(std::make_unique<Impl>()) {
  Impl* impl = impl_.get();
  impl->server = std::make_unique<HttpServer>(
      HttpServerSpec{.host = host, .port = port, .io_threads = 1, .workers = 1, .max_connections = 64});
  impl->server->route("GET", "/metrics", HttpWhere::worker, [impl](const HttpRequest&, const HttpReply& reply) {
    impl->read_host();
    reply.send(200, impl->registry.text(), MetricRegistry::kContentType);
  });
  impl->server->route("GET", "/health", HttpWhere::io,
                      [impl](const HttpRequest&, const HttpReply& reply) { reply.send(200, impl->health()); });
  try {
    impl->port = impl->server->start();
  } catch (const Error& e) {
    fail(ErrorKind::usage, "--metrics-port {}: {}; give another port, or auto", port, e.what());
  }
}

TrainMetrics::~TrainMetrics() { impl_->server->stop(1.0); }

int TrainMetrics::port() const { return impl_->port; }

void TrainMetrics::begin(const Json& identity) {
  const auto text = [](const Json& of, const char* key) {
    const auto at = of.find(key);
    return at != of.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const Json none = Json::object();
  const auto part = [&](const char* key) -> const Json& {
    const auto at = identity.find(key);
    return at != identity.end() && at->is_object() ? *at : none;
  };
  const std::string named = text(part("config"), "model");
  impl_->registry
      .gauge(series("info"), "The run.",
             {{"run_id", text(identity, "run_id")},
              {"model", named.empty() ? text(part("config"), "init_from") : named},
              {"layout", text(part("layout"), "text")},
              {"precision", text(identity, "precision")},
              {"version", version()}})
      .set(1);
}

void TrainMetrics::add_step(const Json& line) {
  Impl& m = *impl_;
  m.is_training = true;
  m.gauge("step", "The last step that is done.", number_of(line, "step"));
  m.gauge("loss", "Mean loss of the last step's tokens, in nats.", number_of(line, "loss"));
  m.gauge("lr", "Learning rate of the last step.", number_of(line, "lr"));
  m.gauge("grad_norm", "The gradient's norm before clipping.", number_of(line, "grad_norm"));
  m.gauge("tokens_per_s", "Of the last step, all ranks.", number_of(line, "tokens_per_s"));
  if (line.contains("loss_scale"))
    m.gauge("loss_scale", "With f16: what the loss was scaled by.", number_of(line, "loss_scale"));
  m.add("steps_total", "Steps since this start.", 1);
  m.total("tokens_total", "Tokens of the run.", number_of(line, "tokens"));
  m.total("samples_total", "Samples of the run.", number_of(line, "samples"));
  m.total("skipped_total", "Updates of the run that were skipped.", number_of(line, "skipped_total"));
  m.add("spikes_total", "Jumps of the loss or of the gradient's norm.", 0);
  m.add("model_flops_total", "FLOPs of the model, attention counted causally.", number_of(line, "model_flops"));
  m.registry.histogram(series("step_seconds"), "Seconds of a step.", step_bounds()).observe(number_of(line, "step_s"));
  if (const auto seconds = line.find("seconds"); seconds != line.end())
    for (const auto& [category, s] : seconds->items())
      m.add("seconds_total", "Seconds of rank 0 by category.", std::max(0.0, s.get<double>()),
            {{"category", category}});
  if (const auto mfu = line.find("mfu"); mfu != line.end())
    for (const auto& [convention, share] : mfu->items())
      m.registry
          .gauge(series("mfu"), "FLOPs of the last step over what the ranks could do, by convention.",
                 {{"convention", convention}})
          .set(share.is_number() ? share.get<double>() : std::nan(""));
  if (const auto communication = line.find("communication"); communication != line.end())
    m.add_communication(*communication);
  if (const auto memory = line.find("memory_bytes"); memory != line.end()) m.show_memory(*memory);
}

void TrainMetrics::add_event(const Json& line) {
  Impl& m = *impl_;
  const std::string event = line.value("event", std::string());
  m.add("events_total", "Lines of events.jsonl.", 1, {{"event", event}});
  if (event == "spike") m.add("spikes_total", "Jumps of the loss or of the gradient's norm.", 1);
  if (event == "validation")
    m.gauge("val_loss", "Of the last validation, in nats a token.", number_of(line, "val_loss"));
  const MetricLabels tier = {{"tier", line.value("tier", std::string("durable"))}};
  if (event == "checkpoint") {
    m.add("checkpoints_total", "Checkpoints that were committed.", 1, tier);
    m.add("checkpoint_bytes_total", "Bytes of them.", number_of(line, "bytes"), tier);
    m.add("checkpoint_blocking_seconds_total", "Seconds in which they kept training waiting.",
          number_of(line, "blocking_s"), tier);
  }
  if (event == "checkpoint_failed") m.add("checkpoints_failed_total", "Checkpoints that came to nothing.", 1, tier);
}

void TrainMetrics::show_host(const ResourceOptions& options) {
  const std::lock_guard lock(impl_->host_mutex);
  impl_->host = options;
}

std::string TrainMetrics::text() const { return impl_->registry.text(); }

}  // namespace rw
