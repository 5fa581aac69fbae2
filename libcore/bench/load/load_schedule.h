// From a plan to the requests that a runner sends.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/bench/load/load_spec.h"
#include "libcore/bench/load/load_types.h"
#include "libcore/bench/load/server_probe.h"

namespace rw {

// A load's requests, all of one draw of prompts: due as the plan says, bodies complete. Conversations of several turns
// come at rate / turns, so that requests come at the rate. Of those that the fault script picks,
// disconnect_after_tokens is set. Error{usage} when a prompt and its answer are longer than the server's
// max_model_len.
std::vector<LoadRequest> load_schedule(const ServeLoadSpec& spec, const ServeLoadPlan& plan,
                                       const ServedModelInfo& model);
// Requests to be sent before, one at a time: the first n of the schedule, of other prompts.
std::vector<LoadRequest> warmup_schedule(const ServeLoadSpec& spec, const ServeLoadPlan& plan,
                                         const ServedModelInfo& model, int64_t n);
// The first n requests of a load that have no fault planned, to be sent alone: their answers are what the same requests
// must get under load. A server of ours leaves its prefix cache out for them, so that the load finds nothing there.
std::vector<LoadRequest> golden_schedule(const ServeLoadSpec& spec, const ServeLoadPlan& plan,
                                         const ServedModelInfo& model, int64_t n);

}  // namespace rw
