#include "libcore/telemetry/memory_ring.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"

namespace rw {
namespace {

constexpr size_t kNameBytes = 128;  // a request's id may be what a client sent

// Raises `peaks` to what `others` say.
void raise(std::map<std::string, int64_t>& peaks, const std::map<std::string, int64_t>& others) {
  for (const auto& [name, value] : others) {
    const auto [at, added] = peaks.emplace(name, value);
    if (!added) at->second = std::max(at->second, value);
  }
}

}  // namespace

MemoryRing::MemoryRing(const MemoryRingSpec& spec) : spec_(spec) {
  CHECK(spec.fine_step_s > 0 && spec.coarse_step_s >= spec.fine_step_s && spec.window_s >= spec.fine_s,
        "a ring of %g s in steps of %g s after %g s in steps of %g s", spec.window_s, spec.coarse_step_s, spec.fine_s,
        spec.fine_step_s);
}

MemoryRing::List MemoryRing::largest(std::vector<MemoryItem> items) const {
  const size_t kept = std::min(items.size(), static_cast<size_t>(spec_.max_items));
  std::partial_sort(items.begin(), items.begin() + static_cast<ptrdiff_t>(kept), items.end(),
                    [](const MemoryItem& a, const MemoryItem& b) {
                      return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
                    });
  List list;
  for (size_t i = kept; i < items.size(); ++i) {
    ++list.n_left_out;
    list.bytes_left_out += items[i].bytes;
  }
  items.resize(kept);
  items.shrink_to_fit();
  for (MemoryItem& item : items)
    if (item.name.size() > kNameBytes) item.name.resize(kNameBytes);
  list.items = std::move(items);
  return list;
}

void MemoryRing::append(Entries& entries, std::shared_ptr<const Entry> entry, double step_s) {
  const auto slot = [&](const Entry& e) { return std::floor(e.time_s / step_s); };
  if (!entries.empty() && slot(*entries.back()) == slot(*entry)) {
    auto merged = std::make_shared<Entry>(*entry);
    raise(merged->peaks, entries.back()->peaks);
    entries.back() = std::move(merged);
  } else {
    entries.push_back(std::move(entry));
  }
}

void MemoryRing::add(double now_s, MemorySnapshot snapshot) {
  auto entry = std::make_shared<Entry>();
  entry->time_s = now_s;
  entry->peaks = {snapshot.values.begin(), snapshot.values.end()};
  entry->values = std::move(snapshot.values);
  entry->requests = largest(std::move(snapshot.requests));
  entry->prefixes = largest(std::move(snapshot.prefixes));
  const std::lock_guard lock(mutex_);
  CHECK(fine_.empty() || now_s >= fine_.back()->time_s, "a snapshot of %g s after one of %g s", now_s,
        fine_.back()->time_s);
  for (const auto& [name, value] : entry->values) {
    const auto [mark, added] = high_water_.emplace(name, Mark{value, now_s});
    if (!added && value > mark->second.value) mark->second = {value, now_s};
  }
  append(fine_, std::move(entry), spec_.fine_step_s);
  for (; fine_.front()->time_s < now_s - spec_.fine_s; fine_.pop_front())
    append(coarse_, fine_.front(), spec_.coarse_step_s);
  while (!coarse_.empty() && coarse_.front()->time_s < now_s - spec_.window_s) coarse_.pop_front();
}

int64_t MemoryRing::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(fine_.size() + coarse_.size());
}

Json MemoryRing::entry_json(const Entry& entry, double now_s) {
  Json json{{"age_s", now_s - entry.time_s}, {"values", Json::object()}, {"peaks", Json::object()}};
  for (const auto& [name, value] : entry.values) {
    json["values"][name] = value;
    json["peaks"][name] = entry.peaks.at(name);
  }
  for (const auto& [name, list] : {std::pair{"requests", &entry.requests}, std::pair{"prefixes", &entry.prefixes}}) {
    Json items = Json::array();
    for (const MemoryItem& item : list->items) items.push_back({{"name", item.name}, {"bytes", item.bytes}});
    json[name] = std::move(items);
    json[std::string(name) + "_left_out"] = {{"n", list->n_left_out}, {"bytes", list->bytes_left_out}};
  }
  return json;
}

Json MemoryRing::json(double now_s, double window_s) const {
  std::vector<std::shared_ptr<const Entry>> entries;
  std::map<std::string, Mark> high_water;
  {
    const std::lock_guard lock(mutex_);
    for (const auto* part : {&coarse_, &fine_})
      for (const auto& entry : *part)
        if (entry->time_s >= now_s - window_s) entries.push_back(entry);
    high_water = high_water_;
  }
  Json json{{"window_s", window_s}, {"high_water", Json::object()}, {"snapshots", Json::array()}};
  for (const auto& [name, mark] : high_water)
    json["high_water"][name] = {{"value", mark.value}, {"age_s", now_s - mark.time_s}};
  for (const auto& entry : entries) json["snapshots"].push_back(entry_json(*entry, now_s));
  return json;
}

}  // namespace rw
