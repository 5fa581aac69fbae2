#include <map>
#include <utility>

#include "libcore/comm/agree.h"
#include "libcore/comm/nccl_comm.h"

namespace rw {

std::vector<std::string> devices_of_ranks(Comm& host, const Device& device) {
  const std::vector<std::string> names = host.gather_text(device.name()), buses = host.gather_text(device.bus());
  const std::vector<std::string> hosts = host.hosts();
  std::map<std::pair<std::string, std::string>, size_t> first;  // rank of a host's GPU
  for (size_t r = 0; r < buses.size(); ++r) {
    if (buses[r].empty()) continue;
    const auto [other, is_new] = first.emplace(std::pair{hosts[r], buses[r]}, r);
    if (!is_new)
      throw SharedError(ErrorKind::usage,
                        fmt::format("ranks {} and {} of host {} were given the same GPU, {} ({}): NCCL needs one for "
                                    "each rank; with --device cuda each rank takes its own",
                                    other->second, r, hosts[r], names[r], buses[r]));
  }
  return names;
}

}  // namespace rw
