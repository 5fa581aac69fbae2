// What `dbench serve` was asked: which server, which requests, when, what is checked, what is promised.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/bench/load/arrivals.h"
#include "libcore/bench/load/datasets.h"
#include "libcore/bench/load/latency.h"

namespace rw {

// Tokens; less where the model's context is shorter (fit_model.h).
constexpr int64_t kDefaultInputLen = 512, kDefaultOutputLen = 128;

struct ServeLoadSpec {
  std::string url, endpoint = "completions", model, api_key;
  // When
  std::string request_rate, ramp_up = "none";
  double burstiness = 1, ramp_from = 0, ramp_to = 0, duration = 0, trace_speed = 1;
  int64_t max_concurrency = 0, num_prompts = 0, warmup_requests = 1, repeats = 1;
  // What
  std::string dataset = "random", dataset_file, trace, input_len, output_len, prompt_form = "auto", ignore_eos = "auto",
              extra_body = "{}";
  int64_t prefix_len = 256, prefixes = 4, turns = 3, vocab_size = 256, seed = 1;
  double think_s = 1, tokens_per_word = 1.3, temperature = 0;
  bool plain = false;
  double timeout = 600;
  int64_t retries = 0;
  // Promised
  double slo_ttft_ms = 0, slo_itl_ms = 0, slo_tpot_ms = 0, slo_e2e_ms = 0, attainment = 0.95;
  bool find_rate = false;
  double rate_tolerance = 0.05, probe_duration = 20, price = 0;
  // Checked
  bool strict = false, leak_check = true;
  double leak_wait = 10;
  int64_t golden = 0, disconnect_after = 0;
  double disconnect_share = 0.1;
  // Told
  std::string server_spans, vllm_json;
  bool save_detailed = false;
};
FieldList fields(ServeLoadSpec& spec);

// What the fields say together.
struct ServeLoadPlan {
  ArrivalPlan arrivals;  // n = 0: as many as the file has
  DatasetSpec dataset;
  LoadObjective objective;
  bool chat = false, exact_length = true, closed_loop = false, by_trace = false;
  // Nothing but the clock decides when a request goes: a finite rate or a trace, and no bound on how many run.
  bool open_loop = false;
  int64_t max_concurrency = 0;
};
// Error{usage} names the flags that contradict each other. Fills what was left open (trace -> dataset).
ServeLoadPlan plan_serve_load(const ServeLoadSpec& spec);
// Without the key: what a record may hold.
Json public_config(ServeLoadSpec spec);

}  // namespace rw
