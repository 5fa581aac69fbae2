// `dbench doctor` of servers: facts from running ones (ours, and others that have vLLM's series) and from what they
// left behind; findings by serving_rules().
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/bench/doctor/doctor.h"

namespace rw {

struct ServerTarget {
  std::vector<std::string> urls;  // "http://host:port" each; several: replicas of one service
  std::filesystem::path out_dir;  // of dserve --out; "" without. With urls or alone.
  std::string api_key;            // "" without
  double window_s = 5;            // between the first look at the counters and the last
  double timeout_s = 5;           // of a look
};

// Error{runtime}: no server answers; Error{input}: a URL or a folder that is none, or a server without metrics.
// Error{usage}: neither URL nor folder, a window that is not positive.
Diagnosis doctor_server(const ServerTarget& target);

}  // namespace rw
