#include "libcore/plan/measure/gpu_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "libcore/plan/measure/host_facts.h"

namespace rw {
namespace {

// More cores than a host has: a list that names them is none.
constexpr int64_t kMostCores = 1 << 16;
// Within a NUMA node, the shortest first; those of NVLink aside.
constexpr std::array<std::string_view, 4> kNearWays = {"PIX", "PXB", "PHB", "NODE"};
constexpr std::string_view kFarWay = "SYS";

std::string_view cell_text(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

// A terminal's underlining of the heading ("\x1b[4m").
std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    while (i < text.size() && text[i] != 'm' && text[i] != '\n') ++i;
    if (i < text.size() && text[i] == '\n') out += '\n';
  }
  return out;
}

// Columns end with tabs; where a page has turned those into spaces, with two spaces or more.
std::vector<std::string_view> columns(std::string_view line, bool has_tabs) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t end = has_tabs ? line.find('\t') : line.find("  ");
    const std::string_view cell = cell_text(line.substr(0, end));
    if (has_tabs || !cell.empty()) out.push_back(cell);
    if (end == std::string_view::npos) return out;
    line.remove_prefix(end + (has_tabs ? 1 : 2));
  }
}

std::optional<int64_t> whole_number(std::string_view s) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (error != std::errc() || end != s.data() + s.size() || s.empty() || n < 0) return std::nullopt;
  return n;
}

bool is_gpu(std::string_view name) { return name.starts_with("GPU") && whole_number(name.substr(3)).has_value(); }
bool is_way(std::string_view way) {
  return way == "X" || way == kFarWay || nvlinks(way) > 0 ||
         std::find(kNearWays.begin(), kNearWays.end(), way) != kNearWays.end();
}

// What the columns of the heading hold.
struct Heading {
  std::vector<size_t> gpus, nics;
  std::optional<size_t> cores, numa;
  std::vector<std::string> nic_names;
};
Heading heading_of(const std::vector<std::string_view>& cells) {
  Heading h;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (is_gpu(cells[i])) h.gpus.push_back(i);
    else if (cells[i] == "CPU Affinity") h.cores = i;
    else if (cells[i] == "NUMA Affinity") h.numa = i;
    else if (cells[i] != "GPU NUMA ID" && !cells[i].empty()) h.nics.push_back(i), h.nic_names.emplace_back(cells[i]);
  }
  return h;
}

}  // namespace

int64_t nvlinks(std::string_view way) { return way.starts_with("NV") ? whole_number(way.substr(2)).value_or(0) : 0; }

std::vector<int64_t> parse_core_list(std::string_view list) {
  std::vector<int64_t> cores;
  while (!list.empty()) {
    const std::string_view part = cell_text(list.substr(0, list.find(',')));
    list.remove_prefix(
        std::min(list.size(), list.find(',') == std::string_view::npos ? list.size() : list.find(',') + 1));
    const size_t dash = part.find('-');
    const auto first = whole_number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMostCores) return {};
    for (int64_t c = *first; c <= *last; ++c) cores.push_back(c);
  }
  return cores;
}

GpuTopology parse_gpu_topology(std::string_view printed) {
  const std::string clean = without_escapes(printed);
  std::string_view text = clean;
  GpuTopology out;
  std::optional<Heading> heading;
  bool has_tabs = false;
  std::map<std::string, std::string, std::less<>> legend;  // NIC0 -> mlx5_0
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!heading) {
      // With tabs the heading's first column, above the rows' names, is empty.
      has_tabs = line.find('\t') != std::string_view::npos;
      std::vector<std::string_view> cells = columns(line, has_tabs);
      if (!has_tabs) cells.insert(cells.begin(), std::string_view());
      if (cells.size() > 1 && is_gpu(cells[1])) heading = heading_of(cells);
      continue;
    }
    if (const size_t colon = line.find(':'); colon != std::string_view::npos && cell_text(line).starts_with("NIC")) {
      legend.emplace(cell_text(line.substr(0, colon)), cell_text(line.substr(colon + 1)));
      continue;
    }
    const std::vector<std::string_view> cells = columns(line, has_tabs);
    if (cells.empty() || !is_gpu(cells[0])) continue;
    const auto cell = [&](size_t i) { return i < cells.size() ? cells[i] : std::string_view(); };
    GpuNeighbours gpu;
    for (const size_t i : heading->gpus) gpu.gpus.emplace_back(cell(i));
    for (const size_t i : heading->nics) gpu.nics.emplace_back(cell(i));
    // A row of something else, or cut short: this is not the matrix.
    for (const auto* ways : {&gpu.gpus, &gpu.nics})
      if (!std::all_of(ways->begin(), ways->end(), is_way)) return {};
    if (heading->cores) gpu.cores = parse_core_list(cell(*heading->cores));
    if (heading->numa) gpu.numa_node = whole_number(cell(*heading->numa)).value_or(-1);
    out.gpus.push_back(std::move(gpu));
  }
  if (!heading || out.gpus.size() != heading->gpus.size()) return {};
  for (const std::string& name : heading->nic_names) {
    const auto found = legend.find(name);
    out.nics.push_back(found == legend.end() || found->second.empty() ? name : found->second);
  }
  return out;
}

GpuTopology this_host_gpus() { return parse_gpu_topology(output_of("nvidia-smi topo -m 2>/dev/null </dev/null").text); }

std::vector<std::vector<int64_t>> nvlink_groups(const GpuTopology& topology) {
  const auto n = static_cast<int64_t>(topology.gpus.size());
  std::vector<bool> placed(topology.gpus.size(), false);
  std::vector<std::vector<int64_t>> groups;
  for (int64_t first = 0; first < n; ++first) {
    if (placed[static_cast<size_t>(first)]) continue;
    std::vector<int64_t> group{first};
    placed[static_cast<size_t>(first)] = true;
    for (size_t at = 0; at < group.size(); ++at)
      for (int64_t to = 0; to < n; ++to)
        if (!placed[static_cast<size_t>(to)] &&
            nvlinks(topology.gpus[static_cast<size_t>(group[at])].gpus[static_cast<size_t>(to)]) > 0) {
          placed[static_cast<size_t>(to)] = true;
          group.push_back(to);
        }
    std::sort(group.begin(), group.end());
    groups.push_back(std::move(group));
  }
  return groups;
}

NearNics nearest_nics(const GpuTopology& topology, int64_t gpu) {
  const std::vector<std::string>& ways = topology.gpus.at(static_cast<size_t>(gpu)).nics;
  for (const std::string_view way : kNearWays) {
    NearNics found{.way = std::string(way), .nics = {}};
    for (size_t i = 0; i < ways.size(); ++i)
      if (ways[i] == way) found.nics.push_back(topology.nics[i]);
    if (!found.nics.empty()) return found;
  }
  return {};
}

std::string gpu_topology_text(const GpuTopology& topology) {
  const size_t n = topology.gpus.size();
  if (n == 0) return {};
  std::map<std::string, int> pairs;
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b) ++pairs[topology.gpus[a].gpus[b]];
  std::string text = fmt::format("{} GPU{}", n, n == 1 ? "" : "s");
  if (pairs.size() == 1) text += fmt::format(", {} between all", pairs.begin()->first);
  else
    for (const auto& [way, count] : pairs)
      text += fmt::format(", {} between {} pair{}", way, count, count == 1 ? "" : "s");
  if (n > 1 && !topology.knows_nvlink) text += " (NVLink not told)";
  if (topology.nics.empty()) return text;
  text += "; nearest NICs";
  for (size_t a = 0; a < n; ++a) {
    text += fmt::format("{} GPU {} ", a == 0 ? "" : ",", a);
    const NearNics near = nearest_nics(topology, static_cast<int64_t>(a));
    for (size_t i = 0; i < near.nics.size(); ++i) text += (i == 0 ? "" : "+") + near.nics[i];
    text += near.nics.empty() ? "none near" : fmt::format(" ({})", near.way);
  }
  return text;
}

}  // namespace rw
