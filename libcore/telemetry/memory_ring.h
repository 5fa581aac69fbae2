// What memory held over the last half hour: snapshots that thin out as they age, in bounded memory, and exact
// high-water marks. Time is an argument. Any thread may add or read.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

struct MemoryItem {
  std::string name;
  int64_t bytes;
};

struct MemorySnapshot {
  std::vector<std::pair<std::string, int64_t>> values;  // "weights_bytes", "kv_free_pages", ...: the same few each time
  std::vector<MemoryItem> requests, prefixes;           // KV by request, and by cached prefix
};

struct MemoryRingSpec {
  double fine_s = 60, fine_step_s = 1;            // the last minute: one snapshot a second
  double window_s = 30 * 60, coarse_step_s = 10;  // what is older: one every ten seconds
  int64_t max_items = 32;                         // of each list: the largest; the others are summed up
};

class MemoryRing {
 public:
  explicit MemoryRing(const MemoryRingSpec& spec = {});
  void add(double now_s, MemorySnapshot snapshot);  // `now_s` never goes back
  // {"window_s", "high_water": {name: {"value", "age_s"}}, "snapshots": [{"age_s", "values", "peaks", "requests",
  // "requests_left_out": {"n", "bytes"}, "prefixes", ...}]}, the oldest first. "peaks": each value's largest since the
  // snapshot before. High-water marks are those since the ring was made, whatever has left it.
  Json json(double now_s, double window_s) const;
  int64_t size() const;

 private:
  struct List {
    std::vector<MemoryItem> items;  // largest first
    int64_t n_left_out = 0, bytes_left_out = 0;
  };
  struct Entry {
    double time_s;
    std::vector<std::pair<std::string, int64_t>> values;
    std::map<std::string, int64_t> peaks;
    List requests, prefixes;
  };
  struct Mark {
    int64_t value;
    double time_s;
  };
  using Entries = std::deque<std::shared_ptr<const Entry>>;
  List largest(std::vector<MemoryItem> items) const;
  static void append(Entries& entries, std::shared_ptr<const Entry> entry, double step_s);
  static Json entry_json(const Entry& entry, double now_s);

  const MemoryRingSpec spec_;
  mutable std::mutex mutex_;
  // Each slot of time keeps its last snapshot, with the peaks of those before it. Entries are not changed: they are
  // shared with whoever is writing them out.
  Entries fine_, coarse_;
  std::map<std::string, Mark> high_water_;
};

}  // namespace rw
