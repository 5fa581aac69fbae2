// Filters of what can be iterated over, those that order and those that take apart.
#include <fmt/core.h>

#include <algorithm>

#include "libcore/text/jinja/access.h"
#include "libcore/text/jinja/arithmetic.h"
#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/compare.h"
#include "libcore/text/jinja/filters.h"
#include "libcore/text/jinja/print.h"

namespace rw::jinja {
namespace {

Value fold_case(Heap& heap, const Value& v) { return v.is(Kind::string) ? heap.text(lower(v.text())) : v; }

// A list's or dict's items from the end, or nothing where Python cannot reverse.
bool reversible(const Value& v) {
  return v.is(Kind::undefined) || v.is(Kind::string) || v.is(Kind::dict) || (v.has_items() && !v.is(Kind::iterator));
}

Value first(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  if (self.is(Kind::iterator)) {
    size_t& cursor = self.cursor();
    return cursor < self.items().size() ? self.items()[cursor++] : heap.undefined("there is no first item");
  }
  if (self.is(Kind::string)) {
    if (self.text().empty()) return heap.undefined("there is no first item");
    return get_item(heap, self, Value::integer(0));
  }
  const std::vector<Value> items = iterate(heap, self);
  return items.empty() ? heap.undefined("there is no first item") : items.front();
}

Value last(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  if (!reversible(self)) throw Fault(fmt::format("last: expected a sequence, found {}", type_name(self)));
  if (self.is(Kind::string) && !self.text().empty()) return get_item(heap, self, Value::integer(-1));
  const std::vector<Value> items = iterate(heap, self);
  return items.empty() ? heap.undefined("there is no last item") : items.back();
}

Value length_of(Heap&, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return Value::integer(length(self));
}

Value list(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return heap.list(iterate(heap, self));
}

Value join(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"d", "attribute"});
  const AttributePath path(heap, p.given(1) ? &p[1] : nullptr);
  const std::string separator = p.given(0) ? printed(heap, p[0]) : "";
  TextBuilder out(heap);
  bool is_first = true;
  for (const Value& item : iterate(heap, self)) {
    if (!is_first) out.append(separator);
    is_first = false;
    print(out, path.of(heap, item));
  }
  return out.value();
}

Value reverse(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  if (self.is(Kind::string)) return get_slice(heap, self, {.start = {}, .stop = {}, .step = Value::integer(-1)});
  std::vector<Value> items = iterate(heap, self);
  std::reverse(items.begin(), items.end());
  return reversible(self) ? heap.iterator(std::move(items)) : heap.list(std::move(items));
}

struct Keyed {
  Value key, item;
};

void sort_by_key(Heap& heap, std::vector<Keyed>& items, bool descending) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return descending ? less(heap, b.key, a.key) : less(heap, a.key, b.key);
  });
}

std::vector<Value> items_of(const std::vector<Keyed>& keyed) {
  std::vector<Value> out;
  for (const Keyed& k : keyed) out.push_back(k.item);
  return out;
}

// "a,b.c": by a, then by c of b.
std::vector<AttributePath> sort_paths(Heap& heap, const Value* attribute) {
  std::vector<AttributePath> paths;
  if (attribute == nullptr || !attribute->is(Kind::string)) {
    paths.emplace_back(heap, attribute);
    return paths;
  }
  const std::string& all = attribute->text();
  for (size_t at = 0; at <= all.size();) {
    const size_t comma = std::min(all.find(',', at), all.size());
    const Value one = heap.text(all.substr(at, comma - at));
    paths.emplace_back(heap, &one);
    at = comma + 1;
  }
  return paths;
}

Value sort(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"reverse", "case_sensitive", "attribute"});
  const std::vector<AttributePath> paths = sort_paths(heap, p.given(2) ? &p[2] : nullptr);
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(heap, self)) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      const Value part = path.of(heap, item);
      key.push_back(p.flag(1, false) ? part : fold_case(heap, part));
    }
    keyed.push_back({heap.list(std::move(key)), item});
  }
  sort_by_key(heap, keyed, p.flag(0, false));
  return heap.list(items_of(keyed));
}

Value dictsort(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = p.text(1, "key");
  if (by != "key" && by != "value") throw Fault("dictsort: by is \"key\" or \"value\"");
  if (!self.is(Kind::dict)) throw Fault(fmt::format("dictsort: expected a dict, found {}", type_name(self)));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.pairs()) {
    const Value& sorted_by = by == "key" ? key : value;
    keyed.push_back({p.flag(0, false) ? sorted_by : fold_case(heap, sorted_by), heap.tuple({key, value})});
  }
  sort_by_key(heap, keyed, p.flag(2, false));
  return heap.list(items_of(keyed));
}

Value unique(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"case_sensitive", "attribute"});
  const AttributePath path(heap, p.given(1) ? &p[1] : nullptr);
  std::vector<Value> seen, out;
  for (const Value& item : iterate(heap, self)) {
    const Value part = path.of(heap, item);
    const Value key = p.flag(0, false) ? part : fold_case(heap, part);
    check_hashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equals(heap, key, other); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return heap.iterator(std::move(out));
}

Value extreme(Heap& heap, const Value& self, const Arguments& arguments, bool largest) {
  const Parameters p(arguments, {"case_sensitive", "attribute"});
  const AttributePath path(heap, p.given(1) ? &p[1] : nullptr);
  std::vector<Keyed> best;
  for (const Value& item : iterate(heap, self)) {
    const Value part = path.of(heap, item);
    const Value key = p.flag(0, false) ? part : fold_case(heap, part);
    if (best.empty()) {
      best.push_back({key, item});
    } else if (largest ? less(heap, best[0].key, key) : less(heap, key, best[0].key)) {
      best[0] = {key, item};
    }
  }
  return best.empty() ? heap.undefined("there is no item to choose from") : best[0].item;
}
Value min(Heap& heap, const Value& self, const Arguments& arguments) { return extreme(heap, self, arguments, false); }
Value max(Heap& heap, const Value& self, const Arguments& arguments) { return extreme(heap, self, arguments, true); }

Value sum(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"attribute", "start"});
  const AttributePath path(heap, p.given(0) ? &p[0] : nullptr);
  Value total = p.value(1, Value::integer(0));
  if (total.is(Kind::string)) throw Fault("sum: strings cannot be summed");
  for (const Value& item : iterate(heap, self)) total = compute(heap, Operator::add, total, path.of(heap, item));
  return total;
}

Value items(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  if (self.is(Kind::undefined)) return heap.iterator({});
  if (!self.is(Kind::dict)) throw Fault(fmt::format("items: expected a dict, found {}", type_name(self)));
  std::vector<Value> out;
  for (const auto& [key, value] : self.pairs()) out.push_back(heap.tuple({key, value}));
  return heap.iterator(std::move(out));
}

Value batch(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"linecount", "fill_with"}, 1);
  const int64_t n = p.integer(0, 0);
  std::vector<Value> out, line;
  for (const Value& item : iterate(heap, self)) {
    if (static_cast<int64_t>(line.size()) == n) out.push_back(heap.list(std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    if (p.has(1)) {
      heap.check_room(std::min(n, heap.limits().bytes) * static_cast<int64_t>(sizeof(Value)));
      while (static_cast<int64_t>(line.size()) < n) line.push_back(p[1]);
    }
    out.push_back(heap.list(std::move(line)));
  }
  return heap.iterator(std::move(out));
}

Value slice(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"slices", "fill_with"}, 1);
  const std::vector<Value> all = iterate(heap, self);
  const int64_t slices = p.integer(0, 0), n = static_cast<int64_t>(all.size());
  if (slices == 0) throw Fault("slice: expected a number of slices, found 0");
  std::vector<Value> out;
  auto at = all.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const bool longer = i < n % slices;
    const auto end = at + n / slices + (longer ? 1 : 0);
    std::vector<Value> part(at, end);
    if (p.has(1) && !longer) part.push_back(p[1]);
    out.push_back(heap.list(std::move(part)));
    at = end;
  }
  return heap.iterator(std::move(out));
}

constexpr NamedFunction kFilters[] = {
    {"batch", batch}, {"count", length_of}, {"dictsort", dictsort}, {"first", first},
    {"items", items}, {"join", join},       {"last", last},         {"length", length_of},
    {"list", list},   {"max", max},         {"min", min},           {"reverse", reverse},
    {"slice", slice}, {"sort", sort},       {"sum", sum},           {"unique", unique},
};

}  // namespace

Function find_sequence_filter(std::string_view name) {
  for (const auto& filter : kFilters)
    if (filter.name == name) return filter.function;
  return nullptr;
}

}  // namespace rw::jinja
