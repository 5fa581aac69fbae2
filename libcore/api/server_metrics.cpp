#include "libcore/api/server_metrics.h"

#include <atomic>
#include <mutex>

#include "libcore/api/request_series.h"
#include "libcore/api/vllm_metrics.h"
#include "libcore/base/version.h"
#include "libcore/telemetry/prometheus.h"

namespace rw {

double kv_usage(const EngineStats& s) {
  if (s.pages == 0) return 0;
  return static_cast<double>(s.used_pages) / static_cast<double>(s.pages);
}

namespace {

struct EngineRead {
  const char *name, *help;
  int64_t EngineStats::*field;
};

constexpr EngineRead kEngineGauges[] = {
    {"rankwright_sequences_running", "Sequences in the batch.", &EngineStats::running},
    {"rankwright_sequences_waiting", "Sequences in the queue, preempted ones included.", &EngineStats::waiting},
    {"rankwright_waiting_tokens", "Prompt tokens that have not been fed yet.", &EngineStats::waiting_tokens},
    {"rankwright_kv_pages", "Pages of the cache.", &EngineStats::pages},
    {"rankwright_kv_free_pages", "Pages that are nobody's.", &EngineStats::free_pages},
    {"rankwright_kv_cached_pages", "Pages that the prefix cache holds.", &EngineStats::cached_pages},
    {"rankwright_kv_pinned_pages", "Of them, pages of the warm-up.", &EngineStats::pinned_pages},
    {"rankwright_kv_used_pages_high_water", "Pages in use, at most so far.", &EngineStats::used_pages_high_water},
    {"rankwright_prefill_chunk_tokens", "Prefill tokens that the last step had room for.", &EngineStats::chunk_tokens},
};
constexpr EngineRead kEngineCounters[] = {
    {"rankwright_prompt_tokens_total", "Prompt tokens.", &EngineStats::prompt_tokens},
    {"rankwright_prompt_tokens_cached_total", "Prompt tokens out of the prefix cache.", &EngineStats::cached_tokens},
    {"rankwright_generation_tokens_total", "Generated tokens.", &EngineStats::generated_tokens},
    {"rankwright_prefix_cache_queries_total", "Tokens asked of the prefix cache.", &EngineStats::prefix_queries},
    {"rankwright_prefix_cache_hits_total", "Tokens found in it.", &EngineStats::prefix_hits},
    {"rankwright_kv_evicted_pages_total", "Pages taken from the prefix cache.", &EngineStats::evicted_pages},
    {"rankwright_preemptions_total", "Sequences put back into the queue for want of pages.", &EngineStats::preemptions},
    {"rankwright_engine_steps_total", "Steps of the engine.", &EngineStats::steps},
};

// All that is labelled with the model.
struct ModelSeries {
  ModelSeries(const MetricsModel& model, const ServeSpec& spec)
      : registry({{"model_name", model.name}, {"model_identity", model.identity}}),
        requests(registry, spec.slo_ttft_ms / 1000, spec.slo_itl_ms / 1000) {
    registry.gauge("rankwright_device_info", "What the first rank computes on.", {{"device", model.device}}).set(1);
    for (const EngineRead& r : kEngineGauges)
      registry.gauge_of(r.name, r.help, [this, f = r.field] { return static_cast<double>(stats.*f); });
    for (const EngineRead& r : kEngineCounters)
      registry.counter_of(r.name, r.help, [this, f = r.field] { return static_cast<double>(stats.*f); });
    registry.gauge_of("rankwright_kv_usage_ratio", "Share of the cache's pages in use, 0 to 1.",
                      [this] { return kv_usage(stats); });
    registry.gauge_of("rankwright_engine_step_seconds", "The last step.", [this] { return stats.step_s; });
    registry.gauge_of("rankwright_engine_heartbeat_age_seconds", "Since the last turn of the engine's loop.",
                      [this] { return now - stats.heartbeat_s; });
    registry.gauge_of("rankwright_estimated_prefill_seconds_per_token",
                      "What the scheduler expects of a prompt's token.", [this] { return stats.prefill_s_per_token; });
    registry.gauge_of("rankwright_estimated_decode_step_seconds", "What the scheduler expects of a step of decodes.",
                      [this] { return stats.decode_step_s; });
    if (spec.metrics_compat == "vllm") vllm = std::make_unique<VllmMetrics>(model, spec.block_size);
  }

  EngineStats stats;  // of the text that is being made
  double now = 0;
  MetricRegistry registry;
  RequestSeries requests;
  std::unique_ptr<VllmMetrics> vllm;  // null: not asked for
};

}  // namespace

struct ServerMetrics::Impl {
  explicit Impl(const ServeSpec& s) : spec(s) {
    registry.gauge("rankwright_info", "The server.", {{"version", version()}}).set(1);
    registry.gauge_of("rankwright_healthy", "1 when /health says so.", [this] { return reading.healthy ? 1.0 : 0.0; });
    registry.gauge_of("rankwright_requests_live", "Requests for text whose reply is not over.",
                      [this] { return static_cast<double>(reading.live); });
    registry.gauge_of("rankwright_http_connections", "Open connections.",
                      [this] { return static_cast<double>(reading.http.connections); });
    registry.gauge_of("rankwright_http_worker_queue_seconds", "Age of the oldest request that waits for a worker.",
                      [this] { return reading.http.worker_queue_s; });
    struct Read {
      const char *name, *help;
      int64_t HttpServer::Counts::*field;
    };
    using Counts = HttpServer::Counts;
    for (const Read& r :
         {Read{"rankwright_http_connections_accepted_total", "Connections taken.", &Counts::accepted},
          Read{"rankwright_http_connections_refused_total", "Connections beyond --max-connections.", &Counts::refused},
          Read{"rankwright_http_bad_requests_total", "Requests that were no HTTP, or too large.",
               &Counts::bad_requests},
          Read{"rankwright_http_timeouts_total", "Connections closed because their peer was slow.", &Counts::timeouts},
          Read{"rankwright_http_cut_off_total", "Peers that did not take what was sent.", &Counts::cut_off}})
      registry.counter_of(r.name, r.help, [this, f = r.field] { return static_cast<double>(reading.http.*f); });
  }

  ModelSeries* model() const { return ready.load(std::memory_order_acquire); }

  const ServeSpec spec;
  std::mutex mutex;  // one text at a time
  Reading reading;
  MetricRegistry registry;
  std::unique_ptr<ModelSeries> owned;
  std::atomic<ModelSeries*> ready{nullptr};
  std::atomic<double> worst_gap_s{-1};
};

ServerMetrics::ServerMetrics(const ServeSpec& spec) : impl_(std::make_unique<Impl>(spec)) {}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::set_model(const MetricsModel& model) {
  impl_->owned = std::make_unique<ModelSeries>(model, impl_->spec);
  impl_->ready.store(impl_->owned.get(), std::memory_order_release);
}

void ServerMetrics::http(const std::string& route, int status) {
  impl_->registry
      .counter("rankwright_http_requests_total", "Requests by route and status.",
               {{"route", route}, {"status", std::to_string(status)}})
      .add();
}

void ServerMetrics::rejected(const std::string& reason) {
  ModelSeries* m = impl_->model();
  m->requests.rejected(reason);
  if (m->vllm != nullptr) m->vllm->rejected();
}

void ServerMetrics::admitted(const AdmittedRequest& request) {
  ModelSeries* m = impl_->model();
  m->requests.admitted(request);
  if (m->vllm != nullptr) m->vllm->admitted(request);
}

void ServerMetrics::first_token(double ttft_s) {
  ModelSeries* m = impl_->model();
  m->requests.first_token(ttft_s);
  if (m->vllm != nullptr) m->vllm->first_token(ttft_s);
}

void ServerMetrics::token_gaps(double gap_s, int64_t n) {
  if (n == 0) return;
  double worst = impl_->worst_gap_s.load();
  while (gap_s > worst && !impl_->worst_gap_s.compare_exchange_weak(worst, gap_s)) {
  }
  ModelSeries* m = impl_->model();
  m->requests.token_gaps(gap_s, n);
  if (m->vllm != nullptr) m->vllm->token_gaps(gap_s, n);
}

void ServerMetrics::finished(const FinishedSequence& sequence) {
  ModelSeries* m = impl_->model();
  m->requests.finished(sequence);
  if (m->vllm != nullptr) m->vllm->finished(sequence);
}

double ServerMetrics::take_worst_gap_s() { return impl_->worst_gap_s.exchange(-1); }

std::string ServerMetrics::text(const Reading& reading) {
  const std::lock_guard lock(impl_->mutex);
  impl_->reading = reading;
  std::string text = impl_->registry.text();
  ModelSeries* m = impl_->model();
  if (m == nullptr || reading.engine == nullptr) return text;
  m->stats = *reading.engine;
  m->now = reading.now;
  text += m->registry.text();
  if (m->vllm != nullptr) text += m->vllm->text(*reading.engine);
  return text;
}

}  // namespace rw
