#include "libcore/text/jinja/globals.h"

#include <fmt/core.h>

#include <algorithm>

#include "libcore/text/jinja/arguments.h"
#include "libcore/text/jinja/compare.h"
#include "libcore/text/jinja/print.h"

namespace rw::jinja {
namespace {

Value range(Heap& heap, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) throw Fault("range: expected 1 to 3 integers");
  const int64_t start = given.size() > 1 ? to_integer(given[0], "range") : 0;
  const int64_t stop = to_integer(given[given.size() > 1 ? 1 : 0], "range");
  const int64_t step = given.size() > 2 ? to_integer(given[2], "range") : 1;
  if (step == 0) throw Fault("range: the step is zero");
  const __int128 room = static_cast<__int128>(stop) - start;
  const __int128 n = step > 0 ? (room + step - 1) / step : (room + step + 1) / step;
  if (n > heap.limits().range) throw Fault(fmt::format("range: more than {} items", heap.limits().range));
  std::vector<Value> items;
  for (int64_t i = 0, value = start; i < static_cast<int64_t>(n); ++i) {
    items.push_back(Value::integer(value));
    if (i + 1 < static_cast<int64_t>(n)) value += step;
  }
  return heap.range(std::move(items));
}

// What dict(...) is called with: a dict or pairs, and names.
std::vector<Pair> dict_pairs(Heap& heap, const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw Fault("dict: expected at most one argument without a name");
  std::vector<Pair> pairs;
  const auto set = [&](const Value& key, const Value& value) {
    check_hashable(key);
    heap.work(1 + static_cast<int64_t>(pairs.size()) / 8);
    const auto at = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return equals(heap, p.first, key); });
    if (at == pairs.end()) pairs.emplace_back(key, value);
    else at->second = value;
  };
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is(Kind::dict)) {
      pairs = from.pairs();
    } else {
      for (const Value& item : iterate(heap, from)) {
        const std::vector<Value> pair = iterate(heap, item);
        if (pair.size() != 2) throw Fault("dict: expected pairs of a key and a value");
        set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) set(heap.text(name), value);
  return pairs;
}

Value name_space(Heap& heap, const Arguments& arguments) {
  std::vector<NamedValue> fields;
  for (const auto& [key, value] : dict_pairs(heap, arguments)) {
    const std::string& name = to_text(key, "a namespace's field");
    if (name.starts_with('_')) throw Fault("a namespace's fields do not begin with an underscore");
    fields.emplace_back(name, value);
  }
  return heap.name_space(std::move(fields));
}

Value joiner(Heap& heap, const Arguments& arguments) {
  const Parameters p(arguments, {"sep"});
  const Value separator = p.value(0, heap.text(", ")), nothing = heap.text("");
  return heap.object(
      "Joiner",
      [separator, nothing, used = std::make_shared<bool>(false)](const Arguments& a) {
        Parameters(a, {});
        return std::exchange(*used, true) ? separator : nothing;
      },
      separator.depth());
}

Value cycler(Heap& heap, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) throw Fault("cycler: expected items, found none");
  const Value items = heap.tuple(arguments.positional);
  const Value object = heap.object("Cycler", {}, items.depth());
  object.object().attribute = [&heap, items, at = std::make_shared<size_t>(0)](std::string_view name) {
    const size_t n = items.items().size();
    if (name == "current") return items.items()[*at];
    if (name == "next") {
      return heap.object(
          "bound method Cycler.next",
          [items, at, n](const Arguments& a) {
            Parameters(a, {});
            const Value item = items.items()[*at];
            *at = (*at + 1) % n;
            return item;
          },
          items.depth());
    }
    if (name == "reset") {
      return heap.object("bound method Cycler.reset", [at](const Arguments& a) {
        Parameters(a, {});
        *at = 0;
        return Value();
      });
    }
    return heap.undefined("a cycler has no attribute '" + std::string(name) + "'");
  };
  return object;
}

// Conversions whose meaning does not depend on the machine, with Linux's "-" (no padding).
std::string format_time(std::string_view format, const std::tm& time) {
  constexpr std::string_view kConversions = "aAbBcdDeFgGhHIjmMnpRSStTuUVwWxXyYZz";
  std::string out;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    const bool bare = at + 1 < format.size() && format[at + 1] == '-';
    const size_t letter = at + (bare ? 2 : 1);
    if (letter >= format.size()) throw Fault("strftime_now: the format ends within a conversion");
    const char c = format[letter];
    if (c == '%') {
      out += '%';
    } else if (c == 'f') {
      out += "000000";
    } else if (kConversions.find(c) != std::string_view::npos) {
      const std::string one = std::string(bare ? "%-" : "%") + c;
      char buffer[128];
      out.append(buffer, std::strftime(buffer, sizeof buffer, one.c_str(), &time));
    } else {
      throw Fault(fmt::format("strftime_now: unknown conversion %{}", c));
    }
    at = letter + 1;
  }
  return out;
}

}  // namespace

void define_globals(Heap& heap, const std::tm& now, Scope& scope) {
  const auto define = [&](const char* name, std::function<Value(const Arguments&)> call) {
    scope.set(name, heap.object("function " + std::string(name), std::move(call)));
  };
  define("range", [&heap](const Arguments& a) { return range(heap, a); });
  define("dict", [&heap](const Arguments& a) { return heap.dict(dict_pairs(heap, a)); });
  define("namespace", [&heap](const Arguments& a) { return name_space(heap, a); });
  define("joiner", [&heap](const Arguments& a) { return joiner(heap, a); });
  define("cycler", [&heap](const Arguments& a) { return cycler(heap, a); });
  define("raise_exception", [&heap](const Arguments& a) -> Value {
    const Parameters p(a, {"message"}, 1);
    throw Raised(printed(heap, p[0]));
  });
  define("strftime_now", [&heap, now](const Arguments& a) {
    const Parameters p(a, {"format"}, 1);
    heap.check_room(128 * static_cast<int64_t>(p.text(0).size()));
    heap.work(static_cast<int64_t>(p.text(0).size()));
    return heap.text(format_time(p.text(0), now));
  });
}

}  // namespace rw::jinja
