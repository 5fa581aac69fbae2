#include "libcore/plan/serve/serve_plan_spec.h"

#include <algorithm>
#include <charconv>

#include "libcore/base/error.h"

namespace rw {
namespace {

// Of the server's own flags, those that change what is planned.
constexpr const char* kServerFlags[] = {"model",           "precision",    "quantize",         "quantize-group",
                                        "kv-dtype",        "memory",       "max-model-len",    "memory-utilization",
                                        "block-size",      "max-num-seqs", "max-batch-tokens", "itl-budget-ms",
                                        "max-preemptions", "prefix-cache", "slo-ttft-ms",      "slo-itl-ms"};

int64_t whole(const std::string& text, const char* flag, const char* expected) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > 1'000'000)
    fail(ErrorKind::usage, "{}: expected auto or {}, found \"{}\"", flag, expected, text);
  return n;
}

}  // namespace

FieldList fields(ServePlanSpec& s) {
  FieldList list = {
      {.name = "cluster", .value = &s.cluster, .help = "a .toml file, or the name of one in configs/clusters"},
      {.name = "nodes", .value = &s.nodes, .help = "of the cluster; 0: as its file says", .min = 0, .max = 1e6},
      {.name = "workload",
       .value = &s.workload,
       .help = "a trace (JSON lines timestamp, input_length, output_length, hash_ids), or "
               "in=1024,out=256,rate=4[,requests=N][,burst=G][,prefix=P]"},
      {.name = "seed", .value = &s.seed, .help = "of a described workload", .min = 0, .max = 9e15},
  };
  const std::vector<Field> mine = {
      {.name = "attainment",
       .value = &s.attainment,
       .help = "share of the requests that must keep both objectives",
       .min = 0.01,
       .max = 1,
       .group = "Objective"},
      {.name = "itl-of",
       .value = &s.itl_of,
       .help = "what of a request's gaps between tokens --slo-itl-ms bounds",
       .choices = {"worst", "mean"},
       .group = "Objective"},
      {.name = "tp",
       .value = &s.tp,
       .help = "tensor-parallel degrees to compare: 1,2,4,8, or auto",
       .or_number = true,
       .group = "Search"},
      {.name = "replicas",
       .value = &s.replicas,
       .help = "servers; auto: as few as keep the objective",
       .or_number = true,
       .group = "Search"},
      {.name = "mode",
       .value = &s.mode,
       .help = "prefill and decode by the same servers, or split between two kinds",
       .choices = {"colocated", "split", "auto"},
       .group = "Search"},
      {.name = "top", .value = &s.top, .help = "options to print", .min = 1, .max = 1000, .group = "Search"},
      {.name = "step-overhead-ms",
       .value = &s.step_overhead_ms,
       .help = "of a step beside the devices' work: scheduling, drawing, messages",
       .min = 0,
       .max = 1e4,
       .group = "Search"},
  };
  const FieldList server = fields(s.serve);
  for (const char* name : kServerFlags) {
    Field field = *find_field(server, name);
    if (field.name == "model") field.help = "a config.json, a folder that holds one, or a name in configs/models";
    if (field.name == "slo-ttft-ms") field.help = "objective: milliseconds to the first token";
    if (field.name == "slo-itl-ms") field.help = "objective: milliseconds between tokens";
    if (field.name == "memory") field.help = "bytes of a device for weights, cache and run time; 0: by utilization";
    if (field.name == "memory-utilization") field.help = "share of a device's memory less its reserve";
    if (field.name.starts_with("slo-")) field.group = "Objective";
    list.push_back(field);
  }
  list.insert(list.end(), mine.begin(), mine.end());
  return list;
}

std::vector<int64_t> ServePlanSpec::tps() const {
  std::vector<int64_t> all;
  if (tp == "auto") return all;
  for (size_t at = 0; at <= tp.size();) {
    const size_t comma = std::min(tp.find(',', at), tp.size());
    all.push_back(whole(tp.substr(at, comma - at), "--tp", "degrees like 1,2,4"));
    at = comma + 1;
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

int64_t ServePlanSpec::fixed_replicas() const {
  return replicas == "auto" ? 0 : whole(replicas, "--replicas", "a number of servers");
}

ServeMode ServePlanSpec::serve_mode() const {
  return mode == "split" ? ServeMode::split : mode == "colocated" ? ServeMode::colocated : ServeMode::automatic;
}

ServeObjective ServePlanSpec::objective() const {
  return {.ttft_s = serve.slo_ttft_ms / 1000,
          .itl_s = serve.slo_itl_ms / 1000,
          .attainment = attainment,
          .gap = itl_of == "mean" ? ServeObjective::Gap::mean : ServeObjective::Gap::worst};
}

void check_serve_plan_spec(const ServePlanSpec& s) {
  check_serve_spec(s.serve);
  if (!(s.serve.slo_ttft_ms > 0) || !(s.serve.slo_itl_ms > 0))
    fail(ErrorKind::usage, "expected both --slo-ttft-ms and --slo-itl-ms above 0, found {} and {}", s.serve.slo_ttft_ms,
         s.serve.slo_itl_ms);
  if (s.serve_mode() == ServeMode::split && s.fixed_replicas() == 1)
    fail(ErrorKind::usage, "--mode split: expected --replicas 2 or more, one server for prompts and one for the rest");
  s.tps();
}

}  // namespace rw
