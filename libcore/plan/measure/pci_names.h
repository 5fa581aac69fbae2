// What PCI devices are called, from the list that pciutils' lspci reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace rw {

// In a text of pci.ids: {0x10de, 0x2330} -> "GH100 [H100 SXM5 80GB]"; "" when it does not say.
struct PciKind {
  uint16_t vendor = 0, device = 0;
};
std::string pci_name(std::string_view pci_ids, PciKind kind);
// The list of a host (below ROOT/usr/share); "" where there is none: the packages pci.ids and hwdata bring it.
std::string read_pci_ids(const std::filesystem::path& root);

}  // namespace rw
