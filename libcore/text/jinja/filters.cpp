#include "libcore/text/jinja/filters.h"

#include <fmt/core.h>

#include "libcore/text/jinja/access.h"
#include "libcore/text/jinja/tests.h"

namespace rw::jinja {
namespace {

Value map(Heap& heap, const Value& self, const Arguments& arguments) {
  std::vector<Value> out;
  if (!truth(self)) return heap.iterator({});
  if (arguments.positional.empty()) {
    const Parameters p({.named = arguments.named}, {"attribute", "default"}, 1);
    const AttributePath path(heap, &p[0]);
    for (const Value& item : iterate(heap, self)) {
      const Value found = path.of(heap, item);
      out.push_back(found.is(Kind::undefined) && p.has(1) ? p[1] : found);
    }
    return heap.iterator(std::move(out));
  }
  const std::string& name = to_text(arguments.positional[0], "map");
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : iterate(heap, self)) out.push_back(apply_filter(heap, name, item, rest));
  return heap.iterator(std::move(out));
}

struct Selection {
  bool by_attribute, wanted;
};

// Of every item, or of one of its attributes, whether a test (or its truth) holds.
template <Selection kSelection>
Value select(Heap& heap, const Value& self, const Arguments& arguments) {
  std::vector<Value> out;
  if (!truth(self)) return heap.iterator({});
  const auto& given = arguments.positional;
  const size_t at = kSelection.by_attribute ? 1 : 0;
  if (given.size() < at) throw Fault("the name of an attribute is missing");
  const AttributePath path(heap, kSelection.by_attribute ? &given[0] : nullptr);
  const bool has_test = given.size() > at;
  Arguments rest;
  if (has_test) rest = {{given.begin() + static_cast<std::ptrdiff_t>(at) + 1, given.end()}, arguments.named};
  for (const Value& item : iterate(heap, self)) {
    const Value looked_at = path.of(heap, item);
    const bool holds =
        has_test ? apply_test(heap, to_text(given[at], "the test's name"), looked_at, rest) : truth(looked_at);
    if (holds == kSelection.wanted) out.push_back(item);
  }
  return heap.iterator(std::move(out));
}

constexpr NamedFunction kFilters[] = {
    {"map", map},
    {"reject", select<Selection{false, false}>},
    {"rejectattr", select<Selection{true, false}>},
    {"select", select<Selection{false, true}>},
    {"selectattr", select<Selection{true, true}>},
};

}  // namespace

Function find_selection_filter(std::string_view name) {
  for (const auto& filter : kFilters)
    if (filter.name == name) return filter.function;
  return nullptr;
}

Function find_filter(std::string_view name) {
  for (const auto find : {find_text_filter, find_sequence_filter, find_selection_filter})
    if (const Function filter = find(name)) return filter;
  return nullptr;
}

Value apply_filter(Heap& heap, std::string_view name, const Value& value, const Arguments& arguments) {
  const Function filter = find_filter(name);
  if (filter == nullptr) throw Fault(fmt::format("there is no filter named '{}'", name));
  heap.work(1);
  return filter(heap, value, arguments);
}

}  // namespace rw::jinja
