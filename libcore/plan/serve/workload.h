// What a server will be asked: requests by arrival, prompt and answer length, and which of their prompts begin alike.
// Read from a trace, or drawn from a description with a fixed seed.
//
// A trace is JSON lines {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}, the
// format of the published Mooncake traces (Qin et al. 2025, FAST): prompts whose first n ids agree agree in their first
// n * 512 tokens. hash_ids may be absent: then the prompt is like no other.
//
// A description is "in=1024,out=256,rate=4": lengths a number or a range drawn evenly (in=100..2000), rate in requests
// a second, and, where wished, requests=N (2000), burst=G: the squared coefficient of variation of the gaps between
// arrivals, which are gamma distributed (1, the default: a Poisson process; 0: like clockwork; above 1: in bursts), and
// prefix=P: tokens that all prompts begin with.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

constexpr int64_t kTraceBlockTokens = 512;
// What a plan holds in memory of a workload, its simulations included, stays under 512 MiB with so many requests.
constexpr int64_t kMostRequests = 1'000'000;
constexpr int64_t kMostTraceBytes = int64_t{256} << 20;

struct WorkloadRequest {
  double arrival_s = 0;  // from the workload's start
  int64_t input = 1, output = 1;
  std::vector<int32_t> hash_ids = {};  // of its first blocks of kTraceBlockTokens
  int64_t prefix = 0;                  // tokens it shares with all others that have a prefix
};

struct Workload {
  std::string name;                       // the file or the description
  std::vector<WorkloadRequest> requests;  // by arrival
  double rate = 0;                        // requests a second
  bool shares_prefixes() const;
  double mean_input() const;
  double mean_output() const;
  int64_t longest() const;  // prompt and answer together
};

// `text` came from `where`; Error{input} names the line, what was expected and what was found.
Workload parse_trace(std::string_view text, const std::string& where);
// Error{usage} names the key.
Workload describe_workload(const std::string& description, uint64_t seed);
// A description when it holds "=" and is no file, otherwise a trace.
Workload load_workload(const std::string& path_or_description, uint64_t seed);

// The prompt's token ids, made so that prompts agree exactly as far as the workload says.
std::vector<int32_t> prompt_tokens(const WorkloadRequest& request, int64_t index);

Json workload_json(const Workload& workload);

}  // namespace rw
