// Lines through what `dbench comm` measured, for each kind of link, and the tables of a cluster file made of them.
#pragma once
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/comm/comm_bench.h"
#include "libcore/plan/measure/comm_results.h"

namespace rw {

// `rows`: of comm_case_json. No fits where there is nothing to fit, or where results were wrong. Not quiet: fits are
// guesses.
LinkFits fit_links(const std::vector<Json>& rows, bool is_quiet = true);
std::string link_text(const LinkFits& fits);
Json link_json(const LinkFits& fits);

// The links as tables of a cluster file, for a person to put in: [[node]]'s link-bandwidth, link-latency,
// nic-bandwidth, nic-latency, [[node.collective]], [network], [[network.collective]].
std::string cluster_fragment(const LinkFits& fits);
// All of the cluster file `base` (or the name of one) with these links, which dplan reads as it is. Error{usage} for
// more ranks a node than it has devices.
std::string cluster_with_links(const std::string& base, const LinkFits& fits);

// Collective. In a job of several nodes with several ranks each a message between the job's ends tells of one link
// alone: messages within a node and between two nodes, the sizes of `job`, are reported besides (op send_recv, way
// "pair", 2 ranks on 1 or 2 nodes). Nothing in other jobs.
void run_link_pairs(const CommBenchJob& job);

}  // namespace rw
