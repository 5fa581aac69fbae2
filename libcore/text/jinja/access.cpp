#include "libcore/text/jinja/access.h"

#include <fmt/core.h>

#include <algorithm>

#include "libcore/text/jinja/arguments.h"
#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/methods.h"
#include "libcore/text/jinja/print.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

Value missing(Heap& heap, const Value& value, const Value& key) {
  return heap.undefined(fmt::format("{} has no element {}", type_name(value), printed(heap, key)));
}

// The item, or nothing where Python would raise a TypeError or LookupError.
std::optional<Value> item_of(Heap& heap, const Value& value, const Value& key) {
  if (value.is(Kind::dict)) {
    if (key.is(Kind::list) || key.is(Kind::dict)) return std::nullopt;
    const Value* found = find_key(heap, value, key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!key.is_integral() || (!value.is_sequence() && !value.is(Kind::string))) return std::nullopt;
  const int64_t n = length(value);
  const int64_t at = key.as_integer() < 0 ? key.as_integer() + n : key.as_integer();
  if (at < 0 || at >= n) return std::nullopt;
  if (!value.is(Kind::string)) return value.items()[static_cast<size_t>(at)];
  const std::string& text = value.text();
  if (static_cast<int64_t>(text.size()) == n) return heap.text(text.substr(static_cast<size_t>(at), 1));
  heap.work(static_cast<int64_t>(text.size()) / 64);
  const size_t byte = byte_of(text, at);
  return heap.text(text.substr(byte, static_cast<size_t>(utf8_length(text, byte))));
}

int64_t slice_index(const Value& v, const char* what) {
  if (v.is(Kind::undefined)) throw Fault(v.text());
  if (!v.is_integral()) throw Fault(fmt::format("a slice's {}: expected an integer, found {}", what, type_name(v)));
  return v.as_integer();
}

struct Bounds {
  int64_t start, stop, step;
};

// Python's PySlice_AdjustIndices.
Bounds bounds_of(const Slice& slice, int64_t n) {
  const int64_t step = slice.step.is(Kind::none) ? 1 : slice_index(slice.step, "step");
  if (step == 0) throw Fault("a slice's step is zero");
  const auto bound = [&](const Value& v, const char* what, int64_t otherwise) {
    if (v.is(Kind::none)) return otherwise;
    int64_t i = slice_index(v, what);
    if (i < 0) i = i < -n ? -1 : i + n;
    return std::clamp<int64_t>(i, step < 0 ? -1 : 0, step < 0 ? n - 1 : n);
  };
  return {bound(slice.start, "start", step < 0 ? n - 1 : 0), bound(slice.stop, "stop", step < 0 ? -1 : n), step};
}

// Calls visit(i) for every index of the slice.
template <typename Visit>
void for_each(const Bounds& b, int64_t n, Visit visit) {
  const int64_t step = std::clamp<int64_t>(b.step, -n - 1, n + 1);  // so that i cannot overflow
  for (int64_t i = b.start; step > 0 ? i < b.stop : i > b.stop; i += step) visit(i);
}

}  // namespace

Value only_attribute(Heap& heap, const Value& value, const std::string& name) {
  const std::string why = fmt::format("'{}' has no attribute '{}'", type_name(value), name);
  if (!name.empty() && name[0] == '_') return heap.undefined("access to attribute '" + name + "' is not allowed");
  if (value.is(Kind::object)) {
    const Object& object = value.object();
    for (const auto& [field, item] : object.fields)
      if (field == name) return item;
    return object.attribute ? object.attribute(name) : heap.undefined(why);
  }
  const Function method = find_method(value, name);
  if (method == nullptr) return heap.undefined(why);
  return heap.object(
      fmt::format("built-in method {} of {} object", name, type_name(value)),
      [&heap, method, value](const Arguments& arguments) { return method(heap, value, arguments); }, value.depth());
}

Value get_attribute(Heap& heap, const Value& value, const std::string& name) {
  if (value.is(Kind::undefined)) throw Fault(value.text());
  Value found = only_attribute(heap, value, name);
  if (!found.is(Kind::undefined) || is_forbidden_method(value, name)) return found;
  if (value.is(Kind::dict))
    if (const Value* item = find_key(heap, value, heap.text(name))) return *item;
  return found;
}

Value get_item(Heap& heap, const Value& value, const Value& key) {
  if (value.is(Kind::undefined)) throw Fault(value.text());
  if (const auto item = item_of(heap, value, key)) return *item;
  if (!key.is(Kind::string)) return missing(heap, value, key);
  return only_attribute(heap, value, key.text());
}

Value get_slice(Heap& heap, const Value& value, const Slice& slice) {
  if (value.is(Kind::undefined)) throw Fault(value.text());
  if (!value.is(Kind::string) && !value.is_sequence())
    throw Fault(fmt::format("cannot take a slice of {}", type_name(value)));
  const int64_t n = length(value);
  const Bounds b = bounds_of(slice, n);
  if (value.is(Kind::string)) {
    const std::string& text = value.text();
    const bool ascii = static_cast<int64_t>(text.size()) == n;
    const auto byte = [&](int64_t i) { return ascii ? static_cast<size_t>(i) : byte_of(text, i); };
    if (b.step == 1) {
      if (b.stop <= b.start) return heap.text("");
      heap.work(static_cast<int64_t>(text.size()) / 64);
      const size_t begin = byte(b.start);
      return heap.text(text.substr(begin, byte_of(std::string_view(text).substr(begin), b.stop - b.start)));
    }
    std::vector<size_t> starts;
    for (size_t at = 0; at < text.size(); ++at)
      if ((text[at] & 0xC0) != 0x80) starts.push_back(at);
    starts.push_back(text.size());
    heap.work(n / 8);
    std::string out;
    for_each(b, n, [&](int64_t i) {
      const size_t begin = starts[static_cast<size_t>(i)];
      out.append(text, begin, starts[static_cast<size_t>(i) + 1] - begin);
    });
    return heap.text(std::move(out));
  }
  std::vector<Value> out;
  for_each(b, n, [&](int64_t i) { out.push_back(value.items()[static_cast<size_t>(i)]); });
  if (value.is(Kind::list)) return heap.list(std::move(out));
  return value.is(Kind::tuple) ? heap.tuple(std::move(out)) : heap.range(std::move(out));
}

AttributePath::AttributePath(Heap& heap, const Value* attribute) {
  if (attribute == nullptr || attribute->is(Kind::none)) return;
  if (!attribute->is(Kind::string)) {
    parts_.push_back(*attribute);
    return;
  }
  const std::string& path = attribute->text();
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, dot - at);
    const bool digits = !part.empty() && part.size() < 18 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(digits ? Value::integer(std::stoll(part)) : heap.text(part));
    at = dot + 1;
  }
}

Value AttributePath::of(Heap& heap, const Value& value) const {
  Value v = value;
  for (const Value& part : parts_) v = get_item(heap, v, part);
  return v;
}

}  // namespace rw::jinja
