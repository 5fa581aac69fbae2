// The folders of a run's local tier: what --local-checkpoint-dir names on a node, a folder a run in it.
#pragma once
#include <filesystem>
#include <set>
#include <string>

namespace rw {

constexpr const char* kNodePlace = "{node}";  // in the name, for the node's number

// Empty when `pattern` is.
std::filesystem::path node_folder(const std::string& pattern, const std::string& run_id, int node);
// The numbers whose folder of this run is on this host; {0} or none where the pattern has no place for a number.
std::set<int> node_folders_here(const std::string& pattern, const std::string& run_id);

}  // namespace rw
