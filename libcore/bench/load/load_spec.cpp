#include "libcore/bench/load/load_spec.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/plan/serve/workload.h"

namespace rw {
namespace {

constexpr double kAll = std::numeric_limits<double>::infinity();
constexpr const char *kWhen = "Load", *kWhat = "Requests", *kPromised = "Objective", *kChecked = "Checks",
                     *kTold = "Output";

void append(FieldList& list, const FieldList& more) { list.insert(list.end(), more.begin(), more.end()); }

FieldList server_fields(ServeLoadSpec& s) {
  return {
      {.name = "url", .value = &s.url, .help = "of an OpenAI-compatible server, without /v1"},
      {.name = "endpoint", .value = &s.endpoint, .help = "which of its routes", .choices = {"completions", "chat"}},
      {.name = "model", .value = &s.model, .help = "the name it serves (default: the first of /v1/models)"},
      {.name = "api-key", .value = &s.api_key, .help = "also from OPENAI_API_KEY, which ps does not show"},
      {.name = "timeout", .value = &s.timeout, .help = "seconds of a request", .min = 0.1, .max = 1e6},
      {.name = "retries", .value = &s.retries, .help = "of a 429 or 503, after its Retry-After", .min = 0, .max = 1000},
  };
}

FieldList when_fields(ServeLoadSpec& s) {
  return {
      {.name = "request-rate",
       .value = &s.request_rate,
       .help = "requests a second, sent whether or not earlier ones have ended; inf: all at once (the default "
               "without --max-concurrency)",
       .or_number = true,
       .group = kWhen},
      {.name = "burstiness",
       .value = &s.burstiness,
       .help = "shape of the gamma distributed gaps: 1 Poisson, below in bursts, above steadier",
       .min = 0.001,
       .max = 1e6,
       .group = kWhen},
      {.name = "ramp-up",
       .value = &s.ramp_up,
       .help = "the rate goes from --ramp-from to --ramp-to",
       .choices = {"none", "linear", "exponential"},
       .group = kWhen},
      {.name = "ramp-from", .value = &s.ramp_from, .help = "requests a second", .min = 0, .max = 1e6, .group = kWhen},
      {.name = "ramp-to", .value = &s.ramp_to, .help = "requests a second", .min = 0, .max = 1e6, .group = kWhen},
      {.name = "max-concurrency",
       .value = &s.max_concurrency,
       .help = "requests under way at most; without a rate the next one goes when one ends (closed loop)",
       .min = 0,
       .max = 1e6,
       .group = kWhen},
      {.name = "num-prompts",
       .value = &s.num_prompts,
       .help = "requests; 0: 100, or as many as the file has, or as --duration takes",
       .min = 0,
       .max = static_cast<double>(kMostRequests),
       .group = kWhen},
      {.name = "duration",
       .value = &s.duration,
       .help = "seconds of sending, instead of --num-prompts",
       .min = 0,
       .max = 1e6,
       .group = kWhen},
      {.name = "warmup-requests",
       .value = &s.warmup_requests,
       .help = "sent alone before, not measured",
       .min = 0,
       .max = 1e4,
       .group = kWhen},
      {.name = "repeats",
       .value = &s.repeats,
       .help = "of the whole run, with other prompts of the same lengths",
       .min = 1,
       .max = 1000,
       .group = kWhen},
  };
}

FieldList what_fields(ServeLoadSpec& s) {
  return {
      {.name = "dataset",
       .value = &s.dataset,
       .help = "where prompts come from",
       .choices = {"random", "shared-prefix", "jsonl", "multi-turn", "trace"},
       .group = kWhat},
      {.name = "dataset-file",
       .value = &s.dataset_file,
       .help = "of jsonl: a line {\"prompt\" or \"messages\", \"max_tokens\"?, \"golden\"?} for each request",
       .group = kWhat},
      {.name = "trace",
       .value = &s.trace,
       .help = "a file of lines {timestamp, input_length, output_length, hash_ids}, replayed; means --dataset trace",
       .group = kWhat},
      {.name = "trace-speed",
       .value = &s.trace_speed,
       .help = "2: in half its time",
       .min = 1e-3,
       .max = 1e6,
       .group = kWhat},
      {.name = "input-len",
       .value = &s.input_len,
       .help = "prompt tokens, a number or 100..2000 (default: 512, or what the model's context has room for)",
       .or_number = true,
       .group = kWhat},
      {.name = "output-len",
       .value = &s.output_len,
       .help = "answer tokens, likewise (default: 128)",
       .or_number = true,
       .group = kWhat},
      {.name = "prefix-len",
       .value = &s.prefix_len,
       .help = "of shared-prefix: tokens of --input-len that are shared",
       .min = 1,
       .max = 1 << 24,
       .group = kWhat},
      {.name = "prefixes",
       .value = &s.prefixes,
       .help = "of shared-prefix: how many different ones",
       .min = 1,
       .max = 1e6,
       .group = kWhat},
      {.name = "turns",
       .value = &s.turns,
       .help = "of multi-turn: requests of a conversation",
       .min = 1,
       .max = 1000,
       .group = kWhat},
      {.name = "think-s",
       .value = &s.think_s,
       .help = "of multi-turn: seconds between an answer and the next request",
       .min = 0,
       .max = 1e5,
       .group = kWhat},
      {.name = "prompt-form",
       .value = &s.prompt_form,
       .help = "drawn prompts as token ids (exact lengths) or as English words; auto: ids for completions",
       .choices = {"auto", "ids", "text"},
       .group = kWhat},
      {.name = "vocab-size",
       .value = &s.vocab_size,
       .help = "drawn token ids are from 10 to this less 1; the default is one that small models have too",
       .min = 11,
       .max = 1 << 24,
       .group = kWhat},
      {.name = "tokens-per-word",
       .value = &s.tokens_per_word,
       .help = "estimate for prompts of words",
       .min = 0.1,
       .max = 100,
       .group = kWhat},
      {.name = "temperature", .value = &s.temperature, .help = "of sampling", .min = 0, .max = 10, .group = kWhat},
      {.name = "ignore-eos",
       .value = &s.ignore_eos,
       .help = "answers have exactly the planned length (ignore_eos, min_tokens); auto: unless prompts are read",
       .choices = {"auto", "on", "off"},
       .group = kWhat},
      {.name = "plain",
       .value = &s.plain,
       .help = "send OpenAI's own fields alone, for servers that refuse others",
       .group = kWhat},
      {.name = "extra-body",
       .value = &s.extra_body,
       .help = "a JSON object merged into every body (null removes)",
       .group = kWhat},
      {.name = "seed",
       .value = &s.seed,
       .help = "of lengths, prompts and arrivals",
       .min = 0,
       .max = 9e15,
       .group = kWhat},
  };
}

FieldList promised_fields(ServeLoadSpec& s) {
  FieldList list;
  struct Limit {
    const char* name;
    double* value;
    const char* help;
  };
  for (const Limit& l : {Limit{"slo-ttft-ms", &s.slo_ttft_ms, "first token, from the intended send time; 0: none"},
                         Limit{"slo-itl-ms", &s.slo_itl_ms, "a request's worst gap between tokens; 0: none"},
                         Limit{"slo-tpot-ms", &s.slo_tpot_ms, "a request's mean time per output token; 0: none"},
                         Limit{"slo-e2e-ms", &s.slo_e2e_ms, "the whole request; 0: none"}})
    list.push_back({.name = l.name, .value = l.value, .help = l.help, .min = 0, .max = 1e9, .group = kPromised});
  append(list, {{.name = "find-rate",
                 .value = &s.find_rate,
                 .help = "search the highest rate at which --attainment of the requests keep the objective",
                 .group = kPromised},
                {.name = "attainment",
                 .value = &s.attainment,
                 .help = "share of the requests",
                 .min = 0.01,
                 .max = 1,
                 .group = kPromised},
                {.name = "rate-tolerance",
                 .value = &s.rate_tolerance,
                 .help = "of --find-rate, relative",
                 .min = 0.001,
                 .max = 1,
                 .group = kPromised},
                {.name = "probe-duration",
                 .value = &s.probe_duration,
                 .help = "seconds of sending at each rate, and 20 requests at least",
                 .min = 0.1,
                 .max = 1e5,
                 .group = kPromised},
                {.name = "price",
                 .value = &s.price,
                 .help = "of the server, an hour: gives the cost of a million tokens",
                 .min = 0,
                 .max = 1e9,
                 .group = kPromised}});
  return list;
}

FieldList checked_fields(ServeLoadSpec& s) {
  return {
      {.name = "leak-check",
       .value = &s.leak_check,
       .help = "where there is /metrics: afterwards the server must be back where it was (exit code 3)",
       .group = kChecked},
      {.name = "leak-wait",
       .value = &s.leak_wait,
       .help = "seconds it has for that",
       .min = 0,
       .max = 3600,
       .group = kChecked},
      {.name = "golden",
       .value = &s.golden,
       .help = "send so many of the prompts alone first; under load their texts must be the same",
       .min = 0,
       .max = 1e5,
       .group = kChecked},
      {.name = "disconnect-after",
       .value = &s.disconnect_after,
       .help = "hang up on some requests after so many tokens; 0: never",
       .min = 0,
       .max = 1e6,
       .group = kChecked},
      {.name = "disconnect-share",
       .value = &s.disconnect_share,
       .help = "of the requests",
       .min = 0,
       .max = 1,
       .group = kChecked},
      {.name = "strict",
       .value = &s.strict,
       .help = "exit code 3 also for a void run (the client was slow or kept waiting) and for texts that differ",
       .group = kChecked},
      {.name = "server-spans",
       .value = &s.server_spans,
       .help = "spans.jsonl of a dserve on this host (--out, --log-spans): joined by request id",
       .group = kTold},
      {.name = "vllm-json",
       .value = &s.vllm_json,
       .help = "write the flat object of vllm bench serve to this file",
       .group = kTold},
      {.name = "save-detailed",
       .value = &s.save_detailed,
       .help = "with arrays of every request in it",
       .group = kTold},
  };
}

double parse_rate(const std::string& text) {
  if (text.empty() || text == "inf") return kAll;
  double rate = 0;
  const Field field = {.name = "request-rate", .value = &rate, .help = {}, .min = 1e-6, .max = 1e6};
  set_field(field, text, "--");
  return rate;
}

void check_file(const std::string& path, const char* flag) {
  if (!std::filesystem::exists(path)) fail(ErrorKind::usage, "{} {}: expected a file, found none", flag, path);
}

// Before minutes of measuring, not after.
void check_output(const std::string& path, const char* flag) {
  const std::filesystem::path file(path), folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code none;
  if (std::filesystem::is_directory(file, none))
    fail(ErrorKind::usage, "{} {}: expected a file, found a directory", flag, path);
  if (!std::filesystem::is_directory(folder, none) || ::access(folder.c_str(), W_OK) != 0)
    fail(ErrorKind::usage, "{} {}: expected a folder that can be written, found {}", flag, path,
         std::filesystem::is_directory(folder, none) ? "one that cannot" : "none");
}

void check_together(const ServeLoadSpec& s, const ServeLoadPlan& p) {
  if (p.arrivals.ramp != "none" && !(s.ramp_from > 0 && s.ramp_to > 0))
    fail(ErrorKind::usage, "--ramp-up: expected --ramp-from and --ramp-to above 0, found {} and {}", s.ramp_from,
         s.ramp_to);
  if (p.arrivals.ramp == "none" && (s.ramp_from > 0 || s.ramp_to > 0))
    fail(ErrorKind::usage, "--ramp-from, --ramp-to: expected --ramp-up linear or exponential beside them");
  if (p.arrivals.ramp != "none" && !s.request_rate.empty())
    fail(ErrorKind::usage, "--ramp-up: expected no --request-rate beside it, found {}", s.request_rate);
  if (s.num_prompts > 0 && s.duration > 0)
    fail(ErrorKind::usage, "--duration: expected no --num-prompts beside it, found {}", s.num_prompts);
  if (s.find_rate && !p.objective.any())
    fail(ErrorKind::usage,
         "--find-rate: expected --slo-ttft-ms, --slo-itl-ms, --slo-tpot-ms or --slo-e2e-ms beside "
         "it, found none");
  if (s.find_rate && (p.by_trace || p.arrivals.ramp != "none" || s.repeats > 1 || s.num_prompts > 0 || s.duration > 0))
    fail(ErrorKind::usage,
         "--find-rate: expected rates of its own and --probe-duration; leave out --trace, --ramp-up, "
         "--repeats, --num-prompts and --duration");
  if (p.by_trace && (!s.request_rate.empty() || p.arrivals.ramp != "none" || s.duration > 0))
    fail(ErrorKind::usage,
         "--trace: expected no --request-rate, --ramp-up or --duration beside it (it says when "
         "requests are due); --trace-speed changes its pace");
  const bool drawn = p.dataset.kind != "jsonl";
  if (p.chat && drawn && s.prompt_form == "ids")
    fail(ErrorKind::usage, "--prompt-form ids: expected --endpoint completions, found chat");
  if (p.dataset.kind == "jsonl" && s.dataset_file.empty())
    fail(ErrorKind::usage, "--dataset jsonl: expected --dataset-file, found none");
  if (p.by_trace && s.trace.empty()) fail(ErrorKind::usage, "--dataset trace: expected --trace FILE, found none");
  if (!s.dataset_file.empty()) {
    if (drawn) fail(ErrorKind::usage, "--dataset-file: expected --dataset jsonl beside it, found {}", p.dataset.kind);
    check_file(s.dataset_file, "--dataset-file");
  }
  if (p.by_trace) check_file(s.trace, "--trace");
  if (p.dataset.kind == "shared-prefix" && p.dataset.prefix_len > p.dataset.input.low)
    fail(ErrorKind::usage, "--prefix-len {}: expected at most --input-len, which counts it, found {}", s.prefix_len,
         p.dataset.input.low);
  if (!s.vllm_json.empty()) check_output(s.vllm_json, "--vllm-json");
  if (s.url.starts_with("https:"))
    fail(ErrorKind::usage, "--url {}: expected http://HOST:PORT (TLS is a proxy's work), found https", s.url);
  if (s.golden > 0 && s.temperature > 0)
    fail(ErrorKind::usage, "--golden: expected --temperature 0, found {}: drawn texts differ", s.temperature);
  if (!parse_json(s.extra_body, "--extra-body").is_object())
    fail(ErrorKind::usage, "--extra-body: expected a JSON object, found {}", s.extra_body);
  if (!s.server_spans.empty()) check_file(s.server_spans, "--server-spans");
}

}  // namespace

FieldList fields(ServeLoadSpec& s) {
  FieldList list = server_fields(s);
  append(list, when_fields(s));
  append(list, what_fields(s));
  append(list, promised_fields(s));
  append(list, checked_fields(s));
  return list;
}

ServeLoadPlan plan_serve_load(const ServeLoadSpec& s) {
  ServeLoadPlan p;
  p.chat = s.endpoint == "chat";
  p.objective.ttft_ms = s.slo_ttft_ms;
  p.objective.itl_ms = s.slo_itl_ms;
  p.objective.tpot_ms = s.slo_tpot_ms;
  p.objective.e2e_ms = s.slo_e2e_ms;

  p.dataset.kind = s.trace.empty() ? s.dataset : "trace";
  p.by_trace = p.dataset.kind == "trace";
  const auto length = [](const std::string& text, int64_t normal, const char* flag) {
    return text.empty() ? LengthRange{normal, normal} : parse_length_range(text, flag);
  };
  p.dataset.input = length(s.input_len, kDefaultInputLen, "--input-len");
  p.dataset.output = length(s.output_len, kDefaultOutputLen, "--output-len");
  p.dataset.prefix_len = s.prefix_len;
  p.dataset.prefixes = s.prefixes;
  p.dataset.turns = s.turns;
  p.dataset.think_s = s.think_s;
  p.dataset.file = p.by_trace ? s.trace : s.dataset_file;
  p.dataset.trace_speed = s.trace_speed;
  p.dataset.ids = s.prompt_form == "auto" ? !p.chat : s.prompt_form == "ids";
  p.dataset.vocab = s.vocab_size;
  p.dataset.tokens_per_word = s.tokens_per_word;
  p.dataset.seed = static_cast<uint64_t>(s.seed);
  p.exact_length = s.ignore_eos == "auto" ? p.dataset.kind != "jsonl" : s.ignore_eos == "on";

  p.arrivals.rate = parse_rate(s.request_rate);
  p.arrivals.burstiness = s.burstiness;
  p.arrivals.ramp = s.ramp_up;
  p.arrivals.ramp_from = s.ramp_from;
  p.arrivals.ramp_to = s.ramp_to;
  p.arrivals.seed = static_cast<uint64_t>(s.seed);
  const bool by_rate = !s.request_rate.empty() || p.arrivals.ramp != "none" || p.by_trace || s.find_rate;
  p.closed_loop = s.max_concurrency > 0 && !by_rate;
  p.max_concurrency = s.max_concurrency;
  p.open_loop = s.max_concurrency == 0 && (p.by_trace || p.arrivals.ramp != "none" || std::isfinite(p.arrivals.rate));
  check_together(s, p);
  const bool from_file = p.by_trace || p.dataset.kind == "jsonl";
  if (s.duration > 0) {
    if (p.closed_loop)
      fail(ErrorKind::usage, "--duration: expected a --request-rate beside it, found a closed loop; say --num-prompts");
    p.arrivals.n = requests_within(p.arrivals, s.duration);
  } else {
    p.arrivals.n = s.num_prompts > 0 ? s.num_prompts : from_file ? 0 : 100;
  }
  p.dataset.n = p.arrivals.n;
  return p;
}

Json public_config(ServeLoadSpec spec) {
  spec.api_key.clear();
  return fields_json(fields(spec));
}

}  // namespace rw
