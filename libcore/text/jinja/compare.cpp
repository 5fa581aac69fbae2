#include "libcore/text/jinja/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <compare>

namespace rw::jinja {
namespace {

[[noreturn]] void no_order(const Value& a, const Value& b) {
  for (const Value& v : {a, b})
    if (v.is(Kind::undefined)) throw Fault(v.text());
  throw Fault(fmt::format("cannot order {} and {}", type_name(a), type_name(b)));
}

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() <=> b.as_integer();
  // Where a double cannot hold the integer, the 64 bits of a long double's mantissa can.
  const auto wide = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.as_integer()) : static_cast<long double>(v.as_real());
  };
  return wide(a) <=> wide(b);
}

// UTF-8 orders as its code points do.
std::partial_ordering order(Heap& heap, const Value& a, const Value& b) {
  heap.work(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is(Kind::string) && b.is(Kind::string)) return a.text().compare(b.text()) <=> 0;
  if (a.kind() != b.kind() || (!a.is(Kind::list) && !a.is(Kind::tuple))) no_order(a, b);
  const size_t n = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < n; ++i)
    if (!equals(heap, a.items()[i], b.items()[i])) return order(heap, a.items()[i], b.items()[i]);
  return a.items().size() <=> b.items().size();
}

}  // namespace

bool equals(Heap& heap, const Value& a, const Value& b) {
  heap.work(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == std::partial_ordering::equivalent;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: heap.work(static_cast<int64_t>(a.text().size()) / 64); return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        [&](const Value& x, const Value& y) { return equals(heap, x, y); });
    case Kind::dict:
      return a.pairs().size() == b.pairs().size() &&
             std::all_of(a.pairs().begin(), a.pairs().end(), [&](const Pair& pair) {
               const Value* other = find_key(heap, b, pair.first);
               return other != nullptr && equals(heap, pair.second, *other);
             });
    default: return a.node() == b.node();
  }
}

bool less(Heap& heap, const Value& a, const Value& b) { return order(heap, a, b) == std::partial_ordering::less; }

bool less_or_equal(Heap& heap, const Value& a, const Value& b) {
  const auto o = order(heap, a, b);
  return o == std::partial_ordering::less || o == std::partial_ordering::equivalent;
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  if (container.is(Kind::string)) {
    if (item.is(Kind::undefined)) throw Fault(item.text());
    if (!item.is(Kind::string)) throw Fault(fmt::format("'in <string>' expects a string, found {}", type_name(item)));
    heap.work_search(container.text().size(), item.text().size());
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return find_key(heap, container, item) != nullptr;
  if (container.is(Kind::iterator)) {  // reads as far as the item
    for (size_t& at = container.cursor(); at < container.items().size();)
      if (equals(heap, container.items()[at++], item)) return true;
    return false;
  }
  if (container.has_items()) {
    return std::any_of(container.items().begin(), container.items().end(),
                       [&](const Value& v) { return equals(heap, v, item); });
  }
  if (container.is(Kind::undefined)) return false;
  throw Fault(fmt::format("expected something to look in, found {}", type_name(container)));
}

void check_hashable(const Value& value) {
  if (value.is(Kind::list) || value.is(Kind::dict))
    throw Fault(fmt::format("expected a key that cannot change, found {}", type_name(value)));
  if (value.is(Kind::tuple))
    for (const Value& item : value.items()) check_hashable(item);
}

}  // namespace rw::jinja
