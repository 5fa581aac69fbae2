#include "libcore/plan/serve/serve_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "libcore/base/error.h"
#include "libcore/spec/tensor_parallel.h"

namespace rw {
namespace {

// Pairs of degrees that are simulated in full, of the cheapest by what their servers sustain.
constexpr size_t kPairs = 4;
// The rate was sustained by the first requests; where all of them ask for more, a server is added so many times.
constexpr int kMoreServers = 8;

ClusterSpec of_one_type(const ClusterSpec& cluster, size_t node_type) {
  ClusterSpec one = cluster;
  one.nodes = {cluster.nodes[node_type]};
  return one;
}

std::vector<int64_t> degrees(const ServePlanQuery& q, const NodeType& node) {
  std::vector<int64_t> tps = q.spec.tps();
  if (!tps.empty()) {
    for (const int64_t tp : tps)
      if (const std::string fault = tp_fault(q.model, tp); !fault.empty())
        fail(ErrorKind::usage, "--tp {}: {}", tp, fault);
    return tps;
  }
  for (int64_t tp = 1; tp <= node.devices; tp *= 2)
    if (tp_fault(q.model, tp).empty()) tps.push_back(tp);
  return tps;
}

int64_t servers_for(double rate, double each) { return static_cast<int64_t>(std::ceil(rate / each - 1e-9)); }

// Keys and values of a prompt on their way from a prefill to a decode server.
struct HandOver {
  double seconds_per_token = 0, latency_s = 0;
  double seconds(const WorkloadRequest& r) const {
    return latency_s + static_cast<double>(r.input) * seconds_per_token;
  }
};

}  // namespace

struct ServeOptions::Impl {
  Impl(const ServePlanQuery& query, size_t node_type)
      : q(query),
        cluster(of_one_type(query.cluster, node_type)),
        objective(query.spec.objective()),
        tps(degrees(query, node())) {}

  const NodeType& node() const { return cluster.nodes.front(); }
  int64_t devices() const { return node().count * node().devices; }
  int64_t most_replicas(int64_t tp) const {
    return tp <= node().devices ? node().devices / tp * node().count : devices() / tp;
  }

  ServeInstance& instance(int64_t tp) {
    auto& kept = instances[tp];
    if (kept == nullptr)
      kept = std::make_unique<ServeInstance>(make_instance({.model = q.model,
                                                            .spec = q.spec.serve,
                                                            .cluster = cluster,
                                                            .tp = tp,
                                                            .overhead_s = q.spec.step_overhead_ms / 1000}));
    return *kept;
  }

  ServeOption blank(int64_t tp) {
    const ServeInstance& made = instance(tp);
    ServeOption o{.node = node().name, .device = node().device, .provenance = made.provenance};
    o.server = {.tp = tp, .memory = made.memory};
    o.devices_there = devices();
    o.why = made.memory.fault;
    return o;
  }

  void price(ServeOption& o) const {
    o.devices = o.server.tp * o.server.replicas + o.decoder.tp * o.decoder.replicas;
    for (ServerGroup* g : {&o.server, &o.decoder})
      if (g->rate > 0 && g->replicas > 0) g->load = q.workload.rate / (static_cast<double>(g->replicas) * g->rate);
    const double each = cluster.device_of(node()).price;
    o.cost_per_hour = each * static_cast<double>(o.devices);
    if (o.stats.output_tokens_per_s > 0)
      o.cost_per_million_tokens = o.cost_per_hour / 3600 / o.stats.output_tokens_per_s * 1e6;
  }

  void judge(ServeOption& o, bool has_room) const {
    o.feasible = has_room && o.stats.attainment >= objective.attainment;
    if (o.feasible) return;
    if (!has_room && o.stats.attainment >= objective.attainment) {
      o.why = fmt::format("needs {} devices, there are {}", o.devices, o.devices_there);
      o.short_of_devices = true;
      return;
    }
    o.why = fmt::format("{:.1f} % of the requests keep the objective", 100 * o.stats.attainment);
    if (o.lone_ttft_s > objective.ttft_s || o.lone_itl_s > objective.itl_s)
      o.why += fmt::format("; even alone they have TTFT {:.4g} ms and gaps of {:.4g} ms", 1000 * o.lone_ttft_s,
                           1000 * o.lone_itl_s);
  }

  ServePool pool(int64_t tp) { return {.instance = instance(tp)}; }

  const Sustained& sustained_whole(int64_t tp) {
    const auto found = whole.find(tp);
    if (found != whole.end()) return found->second;
    return whole[tp] = sustained(pool(tp), q.workload, objective);
  }

  // What no number of servers can keep is looked at for the first requests alone: a queue that only grows says no more.
  void run_colocated(ServeOption& o, int64_t replicas) {
    const ServePool servers = pool(o.server.tp);
    SimResult run = o.server.rate > 0 ? servers.run_share(q.workload, static_cast<double>(replicas), true)
                                      : servers.run_share(probe_of(q.workload), static_cast<double>(replicas), true);
    o.stats = serve_stats(run, objective, static_cast<double>(replicas));
    o.server.replicas = replicas;
    price(o);
  }

  ServeOption colocated(int64_t tp, int64_t fixed) {
    ServeOption o = blank(tp);
    if (!o.why.empty()) return o;
    const Sustained& s = sustained_whole(tp);
    o.server.rate = s.rate;
    o.server.capacity = s.capacity;
    o.lone_ttft_s = s.lone_ttft_s;
    o.lone_itl_s = s.lone_itl_s;
    const int64_t most = most_replicas(tp);
    int64_t n = fixed > 0 ? fixed : s.rate > 0 ? servers_for(q.workload.rate, s.rate) : std::max<int64_t>(most, 1);
    run_colocated(o, n);
    for (int more = 0; fixed == 0 && s.rate > 0 && more < kMoreServers && o.stats.attainment < objective.attainment;
         ++more)
      run_colocated(o, n += std::max<int64_t>(1, n / 20));
    judge(o, n <= most);
    return o;
  }

  // Of a pair, each half may miss half of what both may.
  ServeObjective half() const {
    ServeObjective h = objective;
    h.attainment = 1 - (1 - objective.attainment) / 2;
    return h;
  }

  HandOver hand_over(int64_t from, int64_t to) {
    return {.seconds_per_token = sent_bytes_per_token(q.model, instance(from)) / handoff_bandwidth(cluster, from, to),
            .latency_s = node().nic_latency};
  }

  ServePool decoders(int64_t from, int64_t to) {
    const HandOver hand = hand_over(from, to);
    return {.instance = instance(to), .role = ServeRole::decode, .handoff_s = [hand](const WorkloadRequest& r) {
              return hand.seconds(r);
            }};
  }

  std::vector<ServeOption> split(int64_t fixed) {
    std::vector<ServeOption> pairs;
    for (const int64_t p : tps)
      for (const int64_t d : tps) {
        if (!instance(p).memory.fault.empty() || !instance(d).memory.fault.empty()) continue;
        ServeOption o = blank(p);
        o.split = true;
        o.decoder = {.tp = d, .memory = instance(d).memory};
        o.provenance = std::max(o.provenance, instance(d).provenance);
        const Sustained& first = sustained_prefill(p);
        const Sustained rest = sustained(decoders(p, d), q.workload, half());
        o.server.rate = first.rate;
        o.server.capacity = first.capacity;
        o.decoder.rate = rest.rate;
        o.decoder.capacity = rest.capacity;
        o.lone_ttft_s = first.lone_ttft_s;
        o.lone_itl_s = rest.lone_itl_s;
        if (first.rate > 0 && rest.rate > 0) pairs.push_back(std::move(o));
      }
    for (ServeOption& o : pairs) deal_servers(o, fixed);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const ServeOption& a, const ServeOption& b) { return a.devices < b.devices; });
    if (pairs.size() > kPairs) pairs.resize(kPairs);
    for (ServeOption& o : pairs) run_split(o, fixed);
    return pairs;
  }

  const Sustained& sustained_prefill(int64_t tp) {
    const auto found = prefill.find(tp);
    if (found != prefill.end()) return found->second;
    return prefill[tp] = sustained({.instance = instance(tp), .role = ServeRole::prefill}, q.workload, half());
  }

  // By matching rates: as many of each kind as the workload needs, or the fixed number dealt out so that the slower
  // kind is as fast as it can be.
  void deal_servers(ServeOption& o, int64_t fixed) const {
    o.server.replicas = servers_for(q.workload.rate, o.server.rate);
    o.decoder.replicas = servers_for(q.workload.rate, o.decoder.rate);
    if (fixed > 0) {
      double best = -1;
      for (int64_t n = 1; n < fixed; ++n) {
        const double rate =
            std::min(static_cast<double>(n) * o.server.rate, static_cast<double>(fixed - n) * o.decoder.rate);
        if (rate <= best) continue;
        best = rate;
        o.server.replicas = n;
        o.decoder.replicas = fixed - n;
      }
    }
    o.devices = o.server.tp * o.server.replicas + o.decoder.tp * o.decoder.replicas;
  }

  // Keys and values leave a prefill server one request after the other; a decode server sees all of them, later by what
  // their prompts and their way took, at its own share of the rate.
  void simulate_pair(ServeOption& o) {
    const ServePool first{.instance = instance(o.server.tp), .role = ServeRole::prefill};
    SimResult prompts = first.run_share(q.workload, static_cast<double>(o.server.replicas), false);
    const HandOver hand = hand_over(o.server.tp, o.decoder.tp);
    std::vector<size_t> order(prompts.requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return prompts.requests[a].first_s < prompts.requests[b].first_s; });
    std::vector<SimArrival> arrivals = stretched_arrivals(q.workload, static_cast<double>(o.decoder.replicas));
    double free_at = 0;
    for (const size_t i : order) {
      const SimRequest& r = prompts.requests[i];
      const WorkloadRequest& asked = q.workload.requests[static_cast<size_t>(r.request)];
      if (asked.output > 1 && !r.refused) free_at = std::max(free_at, r.first_s) + hand.seconds(asked);
      arrivals[i].since_s += r.first_gap_s();
      arrivals[i].ready_s = arrivals[i].since_s + std::max(0.0, free_at - r.first_s);
    }
    const ServePool rest{.instance = instance(o.decoder.tp), .role = ServeRole::decode};
    SimResult answers = rest.run(q.workload, std::move(arrivals), true);
    o.stats = serve_stats(
        {.prefill = prompts, .decode = answers, .decode_replicas = static_cast<double>(o.decoder.replicas)}, objective);
    o.handoff_s = hand.latency_s + q.workload.mean_input() * hand.seconds_per_token;
    price(o);
  }

  void run_split(ServeOption& o, int64_t fixed) {
    simulate_pair(o);
    for (int more = 0; fixed == 0 && more < kMoreServers && o.stats.attainment < objective.attainment; ++more) {
      ServerGroup& slower = o.stats.ttft_attainment < o.stats.itl_attainment ? o.server : o.decoder;
      slower.replicas += std::max<int64_t>(1, slower.replicas / 20);
      simulate_pair(o);
    }
    judge(o, o.devices <= o.devices_there);
  }

  const ServePlanQuery& q;
  const ClusterSpec cluster;
  const ServeObjective objective;
  const std::vector<int64_t> tps;
  std::map<int64_t, std::unique_ptr<ServeInstance>> instances;
  std::map<int64_t, Sustained> whole, prefill;
};

ServeOptions::ServeOptions(const ServePlanQuery& query, size_t node_type)
    : impl_(std::make_unique<Impl>(query, node_type)) {}
ServeOptions::~ServeOptions() = default;
const std::vector<int64_t>& ServeOptions::tps() const { return impl_->tps; }
int64_t ServeOptions::most_replicas(int64_t tp) const { return impl_->most_replicas(tp); }
double ServeOptions::sustained_rate(int64_t tp) {
  return impl_->instance(tp).memory.fault.empty() ? impl_->sustained_whole(tp).rate : 0;
}
double ServeOptions::capacity(int64_t tp) {
  return impl_->instance(tp).memory.fault.empty() ? impl_->sustained_whole(tp).capacity : 0;
}
ServeOption ServeOptions::colocated(int64_t tp) { return impl_->colocated(tp, impl_->q.spec.fixed_replicas()); }
ServeOption ServeOptions::with_replicas(int64_t tp, int64_t replicas) { return impl_->colocated(tp, replicas); }
std::vector<ServeOption> ServeOptions::split() { return impl_->split(impl_->q.spec.fixed_replicas()); }

bool by_price(const std::vector<ServeOption>& options) {
  const bool any = std::any_of(options.begin(), options.end(), [](const ServeOption& o) { return o.devices > 0; });
  return any && std::all_of(options.begin(), options.end(),
                            [](const ServeOption& o) { return o.devices == 0 || o.cost_per_hour > 0; });
}

void rank_options(std::vector<ServeOption>& options) {
  const bool priced = by_price(options);
  const auto key = [&](const ServeOption& o) {
    const double cost = priced ? o.cost_per_hour : static_cast<double>(o.devices);
    return std::tuple(!o.feasible, o.devices == 0, o.feasible ? cost : -o.stats.attainment, o.stats.itl_s.p99, o.split);
  };
  std::stable_sort(options.begin(), options.end(),
                   [&](const ServeOption& a, const ServeOption& b) { return key(a) < key(b); });
}

std::vector<ServeOption> serve_options(const ServePlanQuery& query) {
  std::vector<std::unique_ptr<ServeOptions>> types;
  for (size_t t = 0; t < query.cluster.nodes.size(); ++t) types.push_back(std::make_unique<ServeOptions>(query, t));
  std::vector<ServeOption> options;
  const auto add_colocated = [&] {
    for (const auto& type : types)
      for (const int64_t tp : type->tps()) options.push_back(type->colocated(tp));
  };
  const ServeMode mode = query.spec.serve_mode();
  if (mode != ServeMode::split) add_colocated();
  if (mode != ServeMode::colocated && query.spec.fixed_replicas() != 1)
    for (const auto& type : types)
      for (ServeOption& o : type->split()) options.push_back(std::move(o));
  if (options.empty()) {
    add_colocated();
    for (ServeOption& o : options) {
      if (o.feasible || o.short_of_devices) o.why = "no pair of prefill and decode servers keeps the objective";
      o.feasible = o.short_of_devices = false;
    }
  }
  rank_options(options);
  return options;
}

}  // namespace rw
