#include "libcore/plan/measure/pci_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

namespace rw {

namespace fs = std::filesystem;

std::string pci_name(std::string_view pci_ids, PciKind kind) {
  // "10de  NVIDIA Corporation", below it "<tab>2330  GH100 [H100 SXM5 80GB]", below that boards with two tabs.
  const std::string vendor = fmt::format("{:04x}  ", kind.vendor), device = fmt::format("\t{:04x}  ", kind.device);
  bool is_vendor = false;
  while (!pci_ids.empty()) {
    std::string_view line = pci_ids.substr(0, pci_ids.find('\n'));
    pci_ids.remove_prefix(std::min(pci_ids.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    if (line.front() != '\t') {
      if (is_vendor) return {};
      is_vendor = line.starts_with(vendor);
    } else if (is_vendor && line.starts_with(device)) {
      return std::string(line.substr(device.size()));
    }
  }
  return {};
}

std::string read_pci_ids(const fs::path& root) {
  for (const char* file : {"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"}) {
    std::error_code none;
    if (!fs::is_regular_file(root / file, none)) continue;
    try {
      return read_file(root / file);
    } catch (const Error&) {  // it names things, no more
    }
  }
  return {};
}

}  // namespace rw
