#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "libcore/bench/preflight/judge.h"

namespace rw {
namespace {

constexpr const char* kLayer = "network";
constexpr int64_t kLeastTcpBuffer = 2 << 20;  // the most that TCP may grow a buffer to: 25 Gbit/s times 0.7 ms
constexpr int64_t kManyErrors = 100;          // since the host started

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// Interfaces that reach no other host.
bool is_virtual(const std::string& name) {
  for (const char* prefix : {"docker", "virbr", "veth", "br-", "cni", "flannel"})
    if (name.starts_with(prefix)) return true;
  return name == "lo";
}

// The first interface that a variable names: "eth0,eth1", NCCL's "=eth0"; "" for a subnet or a list of exceptions.
std::string named_interface(const RankFacts& f, const char* variable) {
  const auto it = f.environment.find(variable);
  if (it == f.environment.end()) return {};
  std::string name = it->second.substr(0, it->second.find(','));
  if (name.starts_with("^") || name.find('/') != std::string::npos) return {};
  return name.starts_with("=") ? name.substr(1) : name;
}
const InterfaceFacts* find_interface(const RankFacts& f, const std::string& name) {
  // NCCL takes a name for the start of one.
  const auto named = [&](const InterfaceFacts& i) { return i.name == name; };
  const auto starts = [&](const InterfaceFacts& i) { return !name.empty() && i.name.starts_with(name); };
  auto it = std::find_if(f.interfaces.begin(), f.interfaces.end(), named);
  if (it == f.interfaces.end()) it = std::find_if(f.interfaces.begin(), f.interfaces.end(), starts);
  return it == f.interfaces.end() ? nullptr : &*it;
}

struct Role {
  const char* what;
  std::string (*interface_of)(const RankFacts&);
};
constexpr Role kRoles[] = {
    {"the default route", [](const RankFacts& f) { return f.default_interface; }},
    {"MPI (btl_tcp_if_include)", [](const RankFacts& f) { return named_interface(f, "OMPI_MCA_btl_tcp_if_include"); }},
    {"NCCL (NCCL_SOCKET_IFNAME)", [](const RankFacts& f) { return named_interface(f, "NCCL_SOCKET_IFNAME"); }},
};

CheckResult check_clock(const JobFacts& job, const PreflightNeeds& needs) {
  Judgement j("network.clock_skew", kLayer, fmt::format("clocks within {:.3g} ms of rank 0's", needs.max_skew_ms));
  double worst = 0;
  for (const RankFacts& f : job.ranks) {
    if (std::isnan(f.clock_offset_s)) continue;
    // Half of the round trip is what the method cannot tell.
    const double ms = f.clock_offset_s * 1e3, sure = std::max(0.0, std::abs(ms) - f.round_trip_s * 500);
    worst = std::max(worst, std::abs(ms));
    if (sure > needs.max_skew_ms)
      j.find(CheckStatus::warn, {f.rank}, fmt::format("{} is {:+.1f} ms off", rank_name(f), ms));
  }
  return j.done(fmt::format("at most {:.3f} ms between any rank and rank 0", worst),
                "run chrony or ntpd on every host; logs and records of the hosts cannot be joined otherwise");
}

CheckResult check_names(const JobFacts& job) {
  Judgement j("network.host_names", kLayer, "every host's name has an address that other hosts reach");
  const std::set<std::string> hosts = host_names(job);
  for (const RankFacts* f : first_of_hosts(job))
    for (const std::string& host : hosts) {
      const auto it = f->addresses.find(host);
      if (it == f->addresses.end() || hosts.size() == 1) continue;
      const bool is_own = host == f->host;
      if (it->second.empty())
        j.find(is_own ? CheckStatus::warn : CheckStatus::fail, {f->rank},
               fmt::format("{} finds no address for {}", rank_name(*f), host));
      else if (is_loopback(it->second))
        j.find(is_own ? CheckStatus::warn : CheckStatus::fail, {f->rank},
               fmt::format("{} finds {} at {}", rank_name(*f), host, it->second));
    }
  return j.done(hosts.size() == 1 ? "one host" : fmt::format("{} hosts find each other's names", hosts.size()),
                "list every host with its address in the network in DNS or in every /etc/hosts; a name must not stand "
                "beside 127.0.0.1 or 127.0.1.1");
}

CheckResult check_interface(const JobFacts& job) {
  Judgement j("network.interface", kLayer,
              "MPI, NCCL and the default route use the same interface, one that leaves the host");
  std::string all;
  const bool several = host_names(job).size() > 1;
  for (const Role& role : kRoles) {
    for (const RankFacts& f : job.ranks) {
      const std::string name = role.interface_of(f);
      if (name.empty()) continue;
      if (find_interface(f, name) == nullptr)
        j.find(CheckStatus::fail, {f.rank}, fmt::format("{}: {} has no interface {}", role.what, rank_name(f), name));
      else if (several && is_virtual(name))
        j.find(CheckStatus::warn, {f.rank}, fmt::format("{} of {} is {}", role.what, rank_name(f), name));
    }
    expect_agreement(j, job, {role.what, CheckStatus::warn, role.interface_of});
    if (const std::string name = role.interface_of(job.ranks.at(0)); !name.empty())
      all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", role.what, name);
  }
  for (const RankFacts& f : job.ranks) {
    const std::string route = f.default_interface;
    for (const Role& role : kRoles)
      if (const std::string name = role.interface_of(f);
          several && !route.empty() && !name.empty() && !route.starts_with(name) && !is_virtual(name))
        j.find(CheckStatus::warn, {f.rank},
               fmt::format("{}: {} is {}, the default route {}", rank_name(f), role.what, name, route));
  }
  return j.done(all.empty() ? "none named, no default route" : all,
                "name the same one for all: mpirun --mca btl_tcp_if_include IF --mca oob_tcp_if_include IF -x "
                "NCCL_SOCKET_IFNAME=IF");
}

CheckResult check_mtu(const JobFacts& job) {
  Judgement j("network.mtu", kLayer, "the same MTU on every host's interface");
  const auto mtu_of = [](const RankFacts& f, const std::string& name) -> std::string {
    const InterfaceFacts* i = find_interface(f, name);
    return i == nullptr || i->mtu < 0 ? "" : fmt::format("{}", i->mtu);
  };
  std::string all;
  for (const Role& role : kRoles) {
    // What another role has told already is not told again.
    const bool is_new = std::any_of(job.ranks.begin(), job.ranks.end(), [&](const RankFacts& f) {
      return &role == &kRoles[0] || role.interface_of(f) != f.default_interface;
    });
    const std::string mine = mtu_of(job.ranks.at(0), role.interface_of(job.ranks.at(0)));
    if (!is_new || mine.empty()) continue;
    expect_agreement(j, job, {fmt::format("MTU of {}", role.what), CheckStatus::fail, [&](const RankFacts& f) {
                                return mtu_of(f, role.interface_of(f));
                              }});
    all += fmt::format("{}{} of {}", all.empty() ? "" : ", ", mine, role.what);
  }
  // Nobody says which interface is used: all that may be.
  std::set<std::string> names;
  if (all.empty())
    for (const RankFacts& f : job.ranks)
      for (const InterfaceFacts& i : f.interfaces)
        if (i.is_up && !is_virtual(i.name)) names.insert(i.name);
  for (const std::string& name : names) {
    expect_agreement(j, job,
                     {"MTU of " + name, CheckStatus::fail, [&](const RankFacts& f) { return mtu_of(f, name); }});
    all += fmt::format("{}{} of {}", all.empty() ? "" : ", ", mtu_of(job.ranks.at(0), name), name);
  }
  return j.done(all.empty() ? "no interface" : all,
                "ip link set dev IF mtu N, the same on hosts and switches; large packets are lost otherwise, and jobs "
                "hang when messages grow");
}

// The third number of "4096 131072 6291456".
int64_t largest_buffer(const std::string& triple) {
  std::istringstream in(triple);
  int64_t least = 0, middle = 0, most = -1;
  in >> least >> middle >> most;
  return in ? most : -1;
}

CheckResult check_tcp(const JobFacts& job) {
  Judgement j("network.tcp", kLayer,
              fmt::format("the same congestion control and socket buffers on every host, buffers up to {} MiB or more",
                          kLeastTcpBuffer >> 20));
  std::set<std::string> names;
  for (const RankFacts& f : job.ranks)
    for (const auto& [name, value] : f.tcp) names.insert(name);
  const auto value_of = [](const RankFacts& f, const std::string& name) -> std::string {
    const auto it = f.tcp.find(name);
    return it == f.tcp.end() ? "" : it->second;
  };
  for (const std::string& name : names)
    expect_agreement(j, job, {name, CheckStatus::warn, [&](const RankFacts& f) { return value_of(f, name); }});
  for (const RankFacts* f : first_of_hosts(job))
    for (const char* name : {"tcp_rmem", "tcp_wmem"}) {
      const int64_t most = largest_buffer(value_of(*f, name));
      if (host_names(job).size() > 1 && most >= 0 && most < kLeastTcpBuffer)
        j.find(CheckStatus::warn, {f->rank}, fmt::format("{}: {} up to {} bytes", rank_name(*f), name, most));
    }
  const std::string control = value_of(job.ranks.at(0), "congestion_control");
  return j.done(
      control.empty() ? "unknown" : control + " on every host",
      "sysctl -w net.ipv4.tcp_congestion_control=..., net.ipv4.tcp_rmem, net.ipv4.tcp_wmem, alike everywhere");
}

CheckResult check_counters(const JobFacts& job) {
  Judgement j("network.counters", kLayer, fmt::format("at most {} errors a link since its host started", kManyErrors));
  const bool several = host_names(job).size() > 1;
  size_t n = 0;
  for (const RankFacts* f : first_of_hosts(job))
    for (const auto& [name, count] : f->link_counters) {
      ++n;
      if (several && count > kManyErrors)
        j.find(CheckStatus::warn, {f->rank}, fmt::format("{}: {} {}", rank_name(*f), name, count));
    }
  return j.done(n == 0 ? "none to read" : fmt::format("{} counters, none that matters", n),
                "look at cables, transceivers and switch ports (ethtool -S, perfquery), pause frames and ring sizes");
}

CheckResult check_reach(const JobFacts& job) {
  Judgement j("network.reach", kLayer, "every two ranks exchange messages");
  std::set<RankPair> reached;
  for (const PairSpeed& p : job.pairs) reached.insert({p.a, p.b});
  for (const RankFacts& a : job.ranks)
    for (const RankFacts& b : job.ranks)
      if (a.rank < b.rank && !reached.contains({static_cast<int>(a.rank), static_cast<int>(b.rank)}))
        j.find(CheckStatus::fail, {a.rank, b.rank}, fmt::format("{} and {} did not", rank_name(a), rank_name(b)));
  return j.done(fmt::format("{} pairs", reached.size()),
                "look at firewalls and routes between the two hosts; mpirun's TCP ports must be open");
}

}  // namespace

std::vector<CheckResult> network_checks(const JobFacts& job, const PreflightNeeds& needs) {
  return {check_clock(job, needs), check_names(job),    check_interface(job), check_mtu(job),
          check_tcp(job),          check_counters(job), check_reach(job)};
}

}  // namespace rw
