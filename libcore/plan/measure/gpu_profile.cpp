#include "libcore/plan/measure/gpu_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

namespace rw {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!out.back().empty()) out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

// Whether words that follow each other in `name` make up `model`: {nvidia, geforce, rtx, 4090} has rtx4090.
bool has_model(const std::vector<std::string>& name, const std::string& model) {
  for (size_t first = 0; first < name.size(); ++first) {
    std::string joined;
    for (size_t i = first; i < name.size() && joined.size() < model.size(); ++i) joined += name[i];
    if (joined == model) return true;
  }
  return false;
}

bool has_word(const std::vector<std::string>& list, const char* word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}
bool is_card(const std::vector<std::string>& name) { return has_word(name, "pcie") || has_word(name, "nvl"); }

// Words of a name that tell a part with other clocks, units, memory or links from the one that has the model alone.
struct Form {
  const char *word, *text;
};
constexpr Form kForms[] = {{"pcie", "PCIe"}, {"nvl", "NVL"}, {"d", "D"}, {"laptop", "Laptop"}};

// One direction. The data sheets of the SXM parts: NVLink 600 GB/s (A100), 900 GB/s (H100, H200), 1.8 TB/s (B200), both
// directions together; the links are 12 and 18.
struct ModelLinks {
  const char* model;
  Nvlinks links;
};
constexpr ModelLinks kModelLinks[] = {
    {"a100", {12, 25e9}}, {"h100", {18, 25e9}}, {"h200", {18, 25e9}}, {"b200", {18, 50e9}}};

// Bytes that a name tells: {a100, sxm4, 40gb}; 0: it does not.
int64_t named_memory(const std::vector<std::string>& name) {
  constexpr size_t kMostDigits = 4;
  for (const std::string& word : name) {
    const size_t digits = word.find_first_not_of("0123456789");
    if (digits != std::string::npos && digits > 0 && digits <= kMostDigits && word.substr(digits) == "gb")
      return std::stoll(word.substr(0, digits)) << 30;
  }
  return 0;
}

// "h100-sxm" of configs/clusters/h100-sxm.toml.
std::string profile_name(const std::string& device, const std::vector<ClusterSpec>& shipped) {
  return std::filesystem::path(node_with(device, shipped).cluster->where).stem().string();
}

std::string joined(const std::vector<std::string>& list, const char* between) {
  std::string text;
  for (const std::string& one : list) text += (text.empty() ? "" : between) + one;
  return text;
}

}  // namespace

const DeviceType* match_gpu(const GpuFacts& gpu, const std::vector<DeviceType>& known) {
  const std::vector<std::string> name = words(gpu.name);
  const DeviceType* best = nullptr;
  double least = 0;
  for (const DeviceType& type : known) {
    const std::vector<std::string> parts = words(type.name);
    if (parts.empty() || !has_model(name, parts[0])) continue;
    const double away = std::abs(std::log2(static_cast<double>(gpu.memory) / static_cast<double>(type.memory))) +
                        (is_card(name) != is_card(parts) ? 0.1 : 0);
    if (best == nullptr || away < least) best = &type, least = away;
  }
  return best;
}

std::string other_form(const std::string& gpu, const std::string& type) {
  const std::vector<std::string> name = words(gpu), parts = words(type);
  for (const Form& form : kForms)
    if (has_word(name, form.word) && !has_word(parts, form.word)) return form.text;
  return {};
}

bool is_pcie_card(const std::string& gpu) { return is_card(words(gpu)); }

bool is_same_gpu(const std::string& a, const std::string& b) { return words(a) == words(b); }

std::string device_name(const std::string& gpu) {
  const std::string name = joined(words(gpu), "-");
  return name.empty() ? "device" : name;
}

std::optional<Nvlinks> nvlinks_of(const std::string& gpu) {
  const std::vector<std::string> name = words(gpu);
  for (const ModelLinks& m : kModelLinks)
    if (has_model(name, m.model)) return m.links;
  return std::nullopt;
}

std::vector<DeviceType> gpu_types(const std::vector<ClusterSpec>& shipped) {
  std::vector<DeviceType> types;
  for (const ClusterSpec& cluster : shipped)
    for (const DeviceType& type : cluster.devices) {
      const bool is_known =
          std::any_of(types.begin(), types.end(), [&](const DeviceType& t) { return t.name == type.name; });
      if (!type.is_cpu() && !is_known && node_with(type.name, shipped).node != nullptr) types.push_back(type);
    }
  return types;
}

Shipped node_with(const std::string& device, const std::vector<ClusterSpec>& shipped) {
  for (const ClusterSpec& cluster : shipped)
    for (const NodeType& node : cluster.nodes)
      if (node.device == device) return {&cluster, &node};
  return {};
}

std::string shipped_like(const std::vector<BusGpu>& gpus, const std::vector<ClusterSpec>& shipped) {
  const std::vector<DeviceType> types = gpu_types(shipped);
  std::vector<std::string> like, all;
  const auto add = [&](std::vector<std::string>& list, const DeviceType& type) {
    const std::string name = profile_name(type.name, shipped);
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  for (const DeviceType& type : types) add(all, type);
  for (const BusGpu& gpu : gpus) {
    const std::vector<std::string> name = words(gpu.name);
    if (const int64_t memory = named_memory(name); memory > 0) {
      if (const DeviceType* type = match_gpu({.name = gpu.name, .memory = memory, .bus_id = {}}, types))
        add(like, *type);
      continue;
    }
    for (const DeviceType& type : types) {
      const DeviceType* alone = match_gpu({.name = gpu.name, .memory = type.memory, .bus_id = {}}, types);
      if (alone != nullptr && alone->name == type.name) add(like, type);
    }
  }
  return like.empty() ? "none is of their model: " + joined(all, ", ") : joined(like, " or ");
}

}  // namespace rw
