#include "libcore/device/inventory.h"

namespace rw {

const char* peer_link_name(PeerLink link) {
  switch (link) {
    case PeerLink::self: return "self";
    case PeerLink::host: return "host";
    case PeerLink::pcie: return "pcie";
    case PeerLink::nvlink: return "nvlink";
  }
  return "?";
}

}  // namespace rw
