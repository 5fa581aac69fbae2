#include "libcore/api/vllm_metrics.h"

#include <algorithm>

namespace rw {
namespace {

using Bounds = std::vector<double>;
const Bounds kTtft = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                      1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Bounds kGap = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
const Bounds kRequest = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Bounds kN = {1, 2, 5, 10, 20};

// 1, 2, 5, 10, ... up to max.
Bounds one_two_five(int64_t max) {
  Bounds bounds;
  for (double ten = 1;; ten *= 10)
    for (const double step : {1.0, 2.0, 5.0}) {
      if (step * ten > static_cast<double>(max)) return bounds.empty() ? Bounds{1} : bounds;
      bounds.push_back(step * ten);
    }
}

size_t index_of(FinishReason reason) { return static_cast<size_t>(reason) - static_cast<size_t>(FinishReason::stop); }

}  // namespace

VllmMetrics::VllmMetrics(const MetricsModel& model, int64_t block_size)
    : registry_({{"model_name", model.name}, {"engine", "0"}}),
      ttft_(registry_.histogram("vllm:time_to_first_token_seconds", "Time to first token.", kTtft)),
      itl_(registry_.histogram("vllm:inter_token_latency_seconds", "Time between tokens.", kGap)),
      tpot_(registry_.histogram("vllm:request_time_per_output_token_seconds", "Time per output token.", kGap)),
      e2e_(registry_.histogram("vllm:e2e_request_latency_seconds", "End-to-end latency.", kRequest)),
      queue_(registry_.histogram("vllm:request_queue_time_seconds", "Time in the queue.", kRequest)),
      inference_(registry_.histogram("vllm:request_inference_time_seconds", "Time in steps.", kRequest)),
      prefill_(registry_.histogram("vllm:request_prefill_time_seconds", "Time of prefill.", kRequest)),
      decode_(registry_.histogram("vllm:request_decode_time_seconds", "Time of decode.", kRequest)),
      prompt_(registry_.histogram("vllm:request_prompt_tokens", "Prompt tokens.", one_two_five(model.max_model_len))),
      generation_(registry_.histogram("vllm:request_generation_tokens", "Generated tokens.",
                                      one_two_five(model.max_model_len))),
      params_n_(registry_.histogram("vllm:request_params_n", "The parameter n.", kN)),
      params_max_tokens_(registry_.histogram("vllm:request_params_max_tokens", "The parameter max_tokens.",
                                             one_two_five(model.max_model_len))),
      max_generation_(registry_.histogram("vllm:request_max_num_generation_tokens",
                                          "The most tokens of a request's choices.",
                                          one_two_five(model.max_model_len))),
      rejected_(registry_.counter("vllm:admission_rejections_total", "Requests refused at the door.")) {
  for (const FinishReason reason :
       {FinishReason::stop, FinishReason::length, FinishReason::cancelled, FinishReason::error})
    success_[index_of(reason)] = &registry_.counter("vllm:request_success_total", "Finished requests.",
                                                    {{"finished_reason", finish_reason_name(reason)}});
  struct Read {
    const char *name, *help;
    int64_t EngineStats::*field;
  };
  for (const Read& r : {Read{"vllm:num_requests_running", "Requests in the batch.", &EngineStats::running},
                        Read{"vllm:num_requests_waiting", "Requests in the queue.", &EngineStats::waiting}})
    registry_.gauge_of(r.name, r.help, [this, f = r.field] { return static_cast<double>(stats_.*f); });
  registry_.gauge_of("vllm:num_requests_waiting_by_reason", "Requests in the queue, by why.",
                     [this] { return static_cast<double>(stats_.waiting); }, {{"reason", "capacity"}});
  registry_.gauge_of("vllm:num_requests_waiting_by_reason", "Requests in the queue, by why.", [] { return 0.0; },
                     {{"reason", "deferred"}});
  registry_.gauge_of("vllm:kv_cache_usage_perc", "Share of the cache in use, 0 to 1.",
                     [this] { return kv_usage(stats_); });
  for (const Read& r :
       {Read{"vllm:prompt_tokens_total", "Prompt tokens.", &EngineStats::prompt_tokens},
        Read{"vllm:generation_tokens_total", "Generated tokens.", &EngineStats::generated_tokens},
        Read{"vllm:prompt_tokens_cached_total", "Prompt tokens out of the cache.", &EngineStats::cached_tokens},
        Read{"vllm:prefix_cache_queries_total", "Tokens asked of the prefix cache.", &EngineStats::prefix_queries},
        Read{"vllm:prefix_cache_hits_total", "Tokens found in it.", &EngineStats::prefix_hits},
        Read{"vllm:num_preemptions_total", "Preemptions.", &EngineStats::preemptions}})
    registry_.counter_of(r.name, r.help, [this, f = r.field] { return static_cast<double>(stats_.*f); });
  registry_
      .gauge("vllm:cache_config_info", "The cache's settings.",
             {{"block_size", std::to_string(block_size)}, {"num_gpu_blocks", std::to_string(model.pages)}})
      .set(1);
}

void VllmMetrics::admitted(const AdmittedRequest& request) {
  params_n_.observe(static_cast<double>(request.n));
  params_max_tokens_.observe(static_cast<double>(request.max_tokens));
}

void VllmMetrics::token_gaps(double gap_s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) itl_.observe(gap_s);
}

void VllmMetrics::finished(const FinishedSequence& s) {
  success_[index_of(s.reason)]->add();
  if (s.reason != FinishReason::stop && s.reason != FinishReason::length) return;
  prompt_.observe(static_cast<double>(s.prompt_tokens));
  generation_.observe(static_cast<double>(s.completion_tokens));
  max_generation_.observe(static_cast<double>(s.completion_tokens));
  e2e_.observe(s.timings.total_s);
  queue_.observe(s.timings.queue_s);
  inference_.observe(s.timings.prefill_s + s.timings.decode_s);
  prefill_.observe(s.timings.prefill_s);
  decode_.observe(s.timings.decode_s);
  if (s.completion_tokens > 1) tpot_.observe(s.timings.decode_s / static_cast<double>(s.completion_tokens - 1));
}

std::string VllmMetrics::text(const EngineStats& stats) {
  stats_ = stats;
  return registry_.text();
}

}  // namespace rw
