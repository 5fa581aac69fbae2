// Everything that `dserve` can be told: one field list makes its flags, config keys and --help.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/base/fields.h"

namespace rw {

struct ServeSpec {
  std::string model, served_model_name;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string api_key;  // empty: none; also from RANKWRIGHT_API_KEY

  int64_t tp = 0;  // 0: as many as there are ranks
  std::string precision = "bf16", kv_dtype = "auto", quantize = "none";
  int64_t quantize_group = 0;  // 0: 128 for int8, 32 for int4
  std::string device = "cpu";
  int64_t threads = 0, seed = 0;
  bool deterministic = false;

  int64_t memory = 0;  // bytes; 0: memory_utilization of what is available
  double memory_utilization = 0.9;
  int64_t max_model_len = 0;  // 0: the model's
  int64_t block_size = 16;
  int64_t max_num_seqs = 64, max_batch_tokens = 512;
  double itl_budget_ms = 0;
  int64_t max_preemptions = 3;

  bool prefix_cache = true;
  std::string warmup;
  int64_t max_queue = 256;
  double slo_ttft_ms = 0, slo_itl_ms = 0;
  double drain_timeout = 30, comm_timeout = 20, heartbeat_timeout = 10;

  std::string chat_template;
  bool request_chat_template = false;  // lets requests bring one
  int64_t max_body = 32 << 20, max_connections = 4096, max_choices = 128, max_logprobs = 20;
  double sse_keepalive = 0;
  std::string metrics_compat = "none";

  std::string out;  // folder for events.jsonl, spans.jsonl, step log, dumps; empty: none
  bool log_spans = false, log_steps = false, trace = false;
  double alert_kv_usage = 0.95, alert_queue_s = 10, alert_itl_ms = 1000, alert_for_s = 30;
};

FieldList fields(ServeSpec& spec);
// What no single field can say alone; Error{usage} names the flags.
void check_serve_spec(const ServeSpec& spec);

}  // namespace rw
