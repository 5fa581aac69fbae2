// The ways to serve a workload on a cluster, simulated: tensor-parallel degrees, replicas, prompts and answers by the
// same servers or by two kinds of them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libcore/plan/serve/serve_plan_spec.h"
#include "libcore/plan/serve/serve_pool.h"

namespace rw {

struct ServerGroup {
  int64_t tp = 0, replicas = 0;
  double rate = 0, capacity = 0;  // requests a second that one of them sustains, and does at most
  double load = 0;                // a server's share of the workload's rate, by what it sustains; 0: it sustains none
  ServeMemory memory;
};

struct ServeOption {
  bool split = false;
  std::string node, device;
  ServerGroup server;   // of a split one, of prompts
  ServerGroup decoder;  // of a split one
  int64_t devices = 0, devices_there = 0;
  ServeStats stats;
  double lone_ttft_s = 0, lone_itl_s = 0;                 // at hardly any load
  double handoff_s = 0;                                   // of a split one, of a prompt of mean length
  double cost_per_hour = 0, cost_per_million_tokens = 0;  // output tokens; 0: no price
  bool feasible = false;
  bool short_of_devices = false;  // and feasible if there were as many as it needs
  std::string why;                // not
  Provenance provenance = Provenance::roofline;
};

struct ServePlanQuery {
  const ModelSpec& model;
  const ClusterSpec& cluster;  // with the count of nodes that is meant
  const Workload& workload;
  const ServePlanSpec& spec;
};

// The servers that one node type can make. Works an instance out once.
class ServeOptions {
 public:
  ServeOptions(const ServePlanQuery& query, size_t node_type);
  ~ServeOptions();
  // Degrees that are looked at: those that were asked for, or the powers of two that a node has devices for.
  const std::vector<int64_t>& tps() const;
  // Servers of this degree that the nodes have room for.
  int64_t most_replicas(int64_t tp) const;
  // Requests a second of one colocated server; 0: none, or the model does not fit.
  double sustained_rate(int64_t tp);
  double capacity(int64_t tp);  // likewise, at most
  // As many replicas as were asked for, or as keep the objective (more than there is room for, then not feasible).
  ServeOption colocated(int64_t tp);
  // All pairs of degrees; of equal ones the cheaper. Empty when no pair can be.
  std::vector<ServeOption> split();
  // A given number of servers, whatever comes of it.
  ServeOption with_replicas(int64_t tp, int64_t replicas);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All that the mode asks for, of every node type, ranked. Where no pair of servers can be and pairs alone were asked
// for: colocated ones, not feasible, which say why.
std::vector<ServeOption> serve_options(const ServePlanQuery& query);

// Feasible ones first, cheapest first (by price, or devices where there is none), then by gaps between tokens.
bool by_price(const std::vector<ServeOption>& options);  // whether all have one
void rank_options(std::vector<ServeOption>& options);

}  // namespace rw
