// Filters of strings and numbers.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "libcore/text/jinja/access.h"
#include "libcore/text/jinja/arithmetic.h"
#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/filters.h"
#include "libcore/text/jinja/format.h"
#include "libcore/text/jinja/json.h"
#include "libcore/text/jinja/methods.h"
#include "libcore/text/jinja/numbers.h"
#include "libcore/text/jinja/print.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

// The method of this name, of the value as a string.
template <const char* kName>
Value as_method(Heap& heap, const Value& self, const Arguments& arguments) {
  return find_string_method(kName)(heap, to_string(heap, self), arguments);
}
constexpr char kCapitalize[] = "capitalize", kLower[] = "lower", kUpper[] = "upper";

Value center(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"width"});
  return find_string_method("center")(heap, to_string(heap, self), {{Value::integer(p.integer(0, 80))}, {}});
}

Value trim(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"chars"});
  return strip(heap, printed(heap, self), p.given(0) ? &p[0] : nullptr, true, true);
}

Value replace_filter(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"old", "new", "count"}, 2);
  const int64_t count = p.has(2) ? p.integer(2, -1) : -1;
  return replace(heap, printed(heap, self), printed(heap, p[0]), printed(heap, p[1]), count);
}

// The words between these separators begin with a capital.
Value title_filter(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  const std::string text = printed(heap, self);
  heap.check_room(3 * static_cast<int64_t>(text.size()));
  heap.work(static_cast<int64_t>(text.size()) / 16);
  const auto separates = [&](size_t at) {
    const uint32_t c = utf8_at(text, at);
    return is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool kind = separates(at);
    const size_t first = at, first_width = static_cast<size_t>(utf8_length(text, at));
    while (at < text.size() && separates(at) == kind) at += static_cast<size_t>(utf8_length(text, at));
    out += upper(std::string_view(text).substr(first, first_width));
    out += lower(std::string_view(text).substr(first + first_width, at - first - first_width));
  }
  return heap.text(std::move(out));
}

Value escape(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  TextBuilder out(heap);
  const std::string text = printed(heap, self);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("&<>'\"", at), text.size());
    out.append(std::string_view(text).substr(at, end - at));
    if (end < text.size()) {
      const char c = text[end];
      out.append(c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : "&#39;");
    }
    at = end + 1;
  }
  return out.value();
}

Value string(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return to_string(heap, self);
}

Value indent(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"width", "first", "blank"});
  TextBuilder indention(heap);
  if (p.given(0) && p[0].is(Kind::string)) {
    indention.append(p[0].text());
  } else {
    indention.append(p.integer(0, 4), " ");
  }
  const bool blank = p.flag(2, false);
  std::vector<Value> lines = split_lines(heap, to_text(self, "indent") + "\n", false);
  TextBuilder out(heap);
  if (p.flag(1, false)) out.append(indention.view());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i > 0 && (blank || !lines[i].text().empty())) out.append(indention.view());
    out.append(lines[i].text());
  }
  return out.value();
}

Value truncate(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"length", "killwords", "end", "leeway"});
  const int64_t wanted = p.integer(0, 255), leeway = p.has(3) ? p.integer(3, 5) : 5;
  const std::string_view end = p.text(2, "...");
  if (wanted < code_points(end) || leeway < 0)
    throw Fault("truncate: the length is shorter than its end, or the leeway negative");
  if (length(self) - leeway <= wanted) return self;
  const int64_t kept = wanted - code_points(end);
  const std::string& text = to_text(self, "truncate");
  std::string_view start = std::string_view(text).substr(0, byte_of(text, kept));
  if (!p.flag(1, false)) start = start.substr(0, std::min(start.rfind(' '), start.size()));
  return heap.text(std::string(start) + std::string(end));
}

Value wordcount(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  const std::string text = printed(heap, self);
  heap.work(static_cast<int64_t>(text.size()) / 16);
  int64_t n = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(utf8_length(text, at))) {
    const bool word = is_word(utf8_at(text, at));
    n += word && !in_word;
    in_word = word;
  }
  return Value::integer(n);
}

Value format(Heap& heap, const Value& self, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw Fault("format: positional and named arguments at once");
  if (arguments.named.empty()) return format_percent(heap, printed(heap, self), heap.tuple(arguments.positional));
  std::vector<Pair> named;
  for (const auto& [name, value] : arguments.named) named.emplace_back(heap.text(name), value);
  return format_percent(heap, printed(heap, self), heap.dict(std::move(named)));
}

Value absolute(Heap&, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  if (!self.is_number()) throw Fault(fmt::format("abs: expected a number, found {}", type_name(self)));
  if (self.is(Kind::real)) return Value::real(std::fabs(self.as_real()));
  return self.as_integer() < 0 ? negate(self) : positive(self);
}

Value round(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"precision", "method"});
  const std::string_view method = p.text(1, "common");
  if (method == "common") return round_to(self, p.integer(0, 0));
  if (method != "ceil" && method != "floor") throw Fault("round: method is common, ceil or floor");
  const Value ten = compute(heap, Operator::power, Value::integer(10), Value::integer(p.integer(0, 0)));
  const Value scaled = compute(heap, Operator::multiply, self, ten);
  if (!scaled.is_number() || !std::isfinite(scaled.as_real())) throw Fault("round: expected a finite number");
  if (scaled.is_integral()) return compute(heap, Operator::divide, scaled, ten);
  const double whole = method == "ceil" ? std::ceil(scaled.as_real()) : std::floor(scaled.as_real());
  return compute(heap, Operator::divide, Value::real(whole + 0.0), ten);  // never -0.0
}

Value to_int(Heap&, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"default", "base"});
  const Value otherwise = p.value(0, Value::integer(0));
  if (self.is(Kind::undefined)) throw Fault(self.text());
  if (self.is_integral()) return Value::integer(self.as_integer());
  std::optional<double> real;
  if (self.is(Kind::string)) {
    if (const auto whole = parse_integer(self.text(), p.integer(1, 10))) return Value::integer(*whole);
    real = parse_real(self.text());
  } else if (self.is(Kind::real)) {
    real = self.as_real();
    if (std::isinf(*real)) throw Fault("int: expected a finite number");
  }
  if (!real || !std::isfinite(*real)) return otherwise;
  if (!(std::fabs(*real) < 9.2e18)) throw Fault("an integer is beyond 64 bits");
  return Value::integer(static_cast<int64_t>(*real));
}

Value to_float(Heap&, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"default"});
  if (self.is(Kind::undefined)) throw Fault(self.text());
  if (self.is_number()) return Value::real(self.as_real());
  if (self.is(Kind::string))
    if (const auto real = parse_real(self.text())) return Value::real(*real);
  return p.value(0, Value::real(0));
}

Value default_value(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"default_value", "boolean"});
  if (!self.is(Kind::undefined) && (truth(self) || !p.flag(1, false))) return self;
  return p.value(0, heap.text(""));
}

Value attr(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"name"}, 1);
  return only_attribute(heap, self, p.text(0));
}

constexpr NamedFunction kFilters[] = {
    {"abs", absolute},
    {"attr", attr},
    {"capitalize", as_method<kCapitalize>},
    {"center", center},
    {"d", default_value},
    {"default", default_value},
    {"e", escape},
    {"escape", escape},
    {"float", to_float},
    {"forceescape", escape},
    {"format", format},
    {"indent", indent},
    {"int", to_int},
    {"lower", as_method<kLower>},
    {"replace", replace_filter},
    {"round", round},
    {"safe", string},
    {"string", string},
    {"title", title_filter},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", as_method<kUpper>},
    {"wordcount", wordcount},
};

}  // namespace

Function find_text_filter(std::string_view name) {
  for (const auto& filter : kFilters)
    if (filter.name == name) return filter.function;
  return nullptr;
}

}  // namespace rw::jinja
