// Which all-reduce algorithm for which size: a table that `dbench comm --tune FILE` measures and --comm-table FILE
// reads, or rules where there is none. All ranks must pick alike: they read the same table.
//
//   {"format": "rankwright comm table", "version": 1, "all_reduce": [
//     {"ranks": 4, "nodes": 2, "max_bytes": 8192, "algorithm": "doubling", "segment_bytes": 262144, "us": 21.5}, ...]}
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/schedule/collective.h"

namespace rw {

// The ways of an all_reduce over several nodes: the step lists, `direct` (node_leaders.h: leaders send each other their
// shares, sums in node order) and `mpi`, the MPI library's own (which knows no 16-bit floats: those go direct).
struct AllReduceWay {
  std::optional<CollectiveAlgorithm> steps;  // nothing: one of the two below
  bool is_library = false;                   // mpi, otherwise direct
  bool operator==(const AllReduceWay&) const = default;
};
const char* way_name(const AllReduceWay& way);
std::optional<AllReduceWay> find_way(const std::string& name);  // nothing for an unknown name
std::vector<std::string> way_names();                           // "direct", "mpi", "ring", ...

struct AllReducePick {
  AllReduceWay way;
  int64_t segment_bytes = 256 << 10;
  bool operator==(const AllReducePick&) const = default;
};

struct CommTableRow {
  int64_t ranks = 1, nodes = 1;
  int64_t max_bytes = 0;  // of the buffer, for which this is the pick
  AllReducePick pick;
  double us = 0;  // measured, at max_bytes
  bool operator==(const CommTableRow&) const = default;
};
struct CommTable {
  std::vector<CommTableRow> all_reduce;
};

// Error{input} names `where`, the row and the key.
CommTable parse_comm_table(const Json& json, const std::string& where);
CommTable read_comm_table(const std::filesystem::path& file);
Json comm_table_json(const CommTable& table);

// Of the rows for the nearest numbers of ranks and nodes (by ratio; fewer ranks where two are as near) the one with the
// least max_bytes that is not below `bytes`, or the largest there is. Without rows, what default_pick says.
AllReducePick pick_all_reduce(const CommTable& table, int64_t ranks, int64_t nodes, int64_t bytes);
// Rules: few nodes go direct, two rounds of messages; of many, those with several ranks each go by two levels; of ranks
// that are each alone on a node small data doubles, middling data takes the trees, and large data the ring.
AllReducePick default_pick(int64_t ranks, int64_t nodes, int64_t bytes);

}  // namespace rw
