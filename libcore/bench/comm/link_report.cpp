#include "libcore/bench/comm/link_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/median.h"
#include "libcore/base/units.h"
#include "libcore/bench/comm/pair_matrix.h"
#include "libcore/plan/measure/discover.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {
namespace {

std::string fit_line(const char* link, const CollectiveFit& fit) {
  std::string text = fmt::format("#   {:<8} {:<15} {:>5} ranks: ", link, fit.kind, fit.ranks);
  for (size_t i = 0; i < fit.segments.size(); ++i) {
    const LinkSegment& s = fit.segments[i];
    if (i > 0) text += fmt::format("; from {} ", format_bytes(static_cast<double>(s.from_bytes)));
    text += fmt::format("{:.4g} us + bytes / {:.4g} GB/s", s.alpha * 1e6, s.bandwidth * 1e-9);
  }
  return text + (fit.provenance == "guess" ? " (a guess)\n" : "\n");
}

Json fit_json(const char* link, const CollectiveFit& fit) {
  Json segments = Json::array();
  for (const LinkSegment& s : fit.segments)
    segments.push_back({{"from_bytes", s.from_bytes}, {"alpha_s", s.alpha}, {"bytes_per_s", s.bandwidth}});
  return {{"link", link},
          {"kind", fit.kind},
          {"ranks", fit.ranks},
          {"segments", std::move(segments)},
          {"provenance", fit.provenance}};
}

std::string collective_toml(const char* table, const CollectiveFit& fit) {
  std::string rows;
  for (const LinkSegment& s : fit.segments)
    rows += fmt::format("{}[{}, {:.4g}, {:.4g}]", rows.empty() ? "" : ", ", s.from_bytes, s.alpha, s.bandwidth);
  return fmt::format("\n[[{}.collective]]\nkind = \"{}\"\nranks = {}\nsegments = [{}]\nprovenance = \"{}\"\n", table,
                     fit.kind, fit.ranks, rows, fit.provenance);
}

// Two ranks that share a node, and two that do not; of each kind the first.
std::vector<RankPair> pair_of_each_link(const std::vector<int>& nodes) {
  std::vector<RankPair> pairs;
  for (const bool same : {true, false}) {
    for (size_t b = 1; b < nodes.size(); ++b) {
      const auto a = std::find_if(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(b),
                                  [&](int node) { return (node == nodes[b]) == same; });
      if (a == nodes.begin() + static_cast<std::ptrdiff_t>(b)) continue;
      pairs.emplace_back(static_cast<int>(a - nodes.begin()), static_cast<int>(b));
      break;
    }
  }
  return pairs;
}

}  // namespace

LinkFits fit_links(const std::vector<Json>& rows, bool is_quiet) {
  bool is_wrong = false;
  for (const Json& row : rows) {
    is_wrong = is_wrong || (row["wrong"].is_number() && row["wrong"].get<int64_t>() > 0);
  }
  if (rows.empty() || is_wrong) return {};
  const Json record{{"bench", "comm"}, {"quiet", is_quiet}, {"details", {{"rows", rows}}}};
  return fit_comm_results(record.dump(), "dbench comm");
}

std::string link_text(const LinkFits& fits) {
  if (fits.node.empty() && fits.network.empty()) return {};
  std::string text = "# fits: time = latency + bytes / bandwidth, of the way that jobs take\n";
  for (const CollectiveFit& fit : fits.node) text += fit_line("node", fit);
  for (const CollectiveFit& fit : fits.network) text += fit_line("network", fit);
  for (const std::string& note : fits.notes) text += "#   " + note + "\n";
  return text;
}

Json link_json(const LinkFits& fits) {
  Json list = Json::array();
  for (const CollectiveFit& fit : fits.node) list.push_back(fit_json("node", fit));
  for (const CollectiveFit& fit : fits.network) list.push_back(fit_json("network", fit));
  return {{"fits", std::move(list)}, {"notes", fits.notes}};
}

std::string cluster_fragment(const LinkFits& fits) {
  std::string out =
      "# Written by dbench comm: links of a cluster file. What stands in [[node]] goes into that of the "
      "node's type.\n";
  for (const std::string& note : fits.notes) out += "# " + note + "\n";
  out += "\n[[node]]\n";
  if (const CollectiveFit* fit = plainest(fits.node)) {
    const LinkSpeed link = link_below(*fit);
    out += fmt::format("link-bandwidth = {:.4g}\nlink-latency = {:.4g}\n", link.bandwidth, link.latency);
  }
  if (const CollectiveFit* fit = plainest(fits.network)) {
    const LinkSpeed link = link_below(*fit);
    out += fmt::format("nics = 1\nnic-bandwidth = {:.4g}\nnic-latency = {:.4g}\n", link.bandwidth, link.latency);
  }
  for (const CollectiveFit& fit : fits.node) out += collective_toml("node", fit);
  if (!fits.network.empty()) out += "\n[network]\n";
  for (const CollectiveFit& fit : fits.network) out += collective_toml("network", fit);
  return out;
}

std::string cluster_with_links(const std::string& base, const LinkFits& fits) {
  Discovered found;
  found.cluster = load_cluster_spec(base);
  take_links(found, fits);
  std::string out = "# Written by dbench comm: " + found.cluster.where + " with the links timed here.\n";
  for (const std::string& note : found.notes) out += "# " + note + "\n";
  return out + "\n" + cluster_toml(found.cluster);
}

void run_link_pairs(const CommBenchJob& job) {
  Comm& comm = job.comm;
  const std::vector<int> nodes = comm.nodes();
  const int n_nodes = *std::max_element(nodes.begin(), nodes.end()) + 1;
  if (n_nodes == 1 || n_nodes == comm.size()) return;
  std::vector<std::byte> buffer(static_cast<size_t>(job.spec.max_bytes));
  for (const RankPair& pair : pair_of_each_link(nodes))
    for (int64_t bytes : bench_sizes({job.spec.min_bytes, job.spec.max_bytes, job.spec.factor}, 1)) {
      comm.barrier();
      std::vector<double> us = time_ping_pong(comm, {.pair = pair,
                                                     .data = buffer.data(),
                                                     .bytes = bytes,
                                                     .samples = job.spec.iters,
                                                     .warmup = job.spec.warmup_iters});
      us.resize(static_cast<size_t>(job.spec.iters), 0);
      comm.all_reduce(us.data(), job.spec.iters, DType::f64, ReduceOp::max);
      CommCase c{.op = BenchOp::send_recv, .way = "pair", .t = DType::u8, .bytes = bytes, .count = bytes, .ranks = 2};
      c.nodes = nodes[static_cast<size_t>(pair.first)] == nodes[static_cast<size_t>(pair.second)] ? 1 : 2;
      CommTiming timing{.us = median(us), .samples = job.spec.iters, .blocks_us = {median(us)}, .wrong = -1};
      const auto [least, most] = std::minmax_element(us.begin(), us.end());
      timing.us_min = *least, timing.us_max = *most;
      c.out_of_place = timing;
      job.report(c);
    }
}

}  // namespace rw
