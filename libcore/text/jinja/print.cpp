#include "libcore/text/jinja/print.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "libcore/text/jinja/characters.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

void print_string(TextBuilder& out, const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t n = static_cast<size_t>(utf8_length(text, at));
    const uint32_t c = utf8_at(text, at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      quoted += '\\';
      quoted += static_cast<char>(c);
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (is_printable(c)) {
      quoted.append(text, at, n);
    } else {
      quoted += c < 0x100     ? fmt::format("\\x{:02x}", c)
                : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                              : fmt::format("\\U{:08x}", c);
    }
    at += n;
    if (quoted.size() > 4096) {
      out.append(quoted);
      quoted.clear();
    }
  }
  quoted += quote;
  out.append(quoted);
}

void print_items(TextBuilder& out, const Value& value, std::string_view open, std::string_view close) {
  out.append(open);
  bool first = true;
  for (const Value& item : value.items()) {
    if (!first) out.append(", ");
    first = false;
    print_quoted(out, item);
  }
  out.append(close);
}

void print_range(TextBuilder& out, const Value& range) {
  const auto& items = range.items();
  if (items.empty()) return out.append("range(0, 0)");
  const int64_t first = items.front().as_integer(), last = items.back().as_integer();
  const int64_t step = items.size() > 1 ? items[1].as_integer() - first : 1;
  out.append(step == 1 ? fmt::format("range({}, {})", first, last + 1)
                       : fmt::format("range({}, {}, {})", first, last + (step > 0 ? 1 : -1), step));
}

}  // namespace

std::string number_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[32];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const bool negative = shortest[0] == '-';
  std::string digits(1, shortest[negative ? 1 : 0]);
  if (e > (negative ? 2u : 1u)) digits += shortest.substr(negative ? 3 : 2, e - (negative ? 3 : 2));
  std::string out = negative ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void print_quoted(TextBuilder& out, const Value& value) {
  out.heap().work(1);
  switch (value.kind()) {
    case Kind::undefined: return out.append("Undefined");
    case Kind::none: return out.append("None");
    case Kind::boolean: return out.append(value.as_integer() != 0 ? "True" : "False");
    case Kind::integer: return out.append(std::to_string(value.as_integer()));
    case Kind::real: return out.append(number_text(value.as_real()));
    case Kind::string: return print_string(out, value.text());
    case Kind::list: return print_items(out, value, "[", "]");
    case Kind::tuple: return print_items(out, value, "(", value.items().size() == 1 ? ",)" : ")");
    case Kind::range: return print_range(out, value);
    case Kind::view: out.append(value.view_name()); return print_items(out, value, "([", "])");
    case Kind::iterator: return out.append("<generator>");
    case Kind::dict: {
      out.append("{");
      bool first = true;
      for (const auto& [key, item] : value.pairs()) {
        if (!first) out.append(", ");
        first = false;
        print_quoted(out, key);
        out.append(": ");
        print_quoted(out, item);
      }
      return out.append("}");
    }
    case Kind::object: {
      const Object& object = value.object();
      if (!object.is_namespace) return out.append("<" + object.name + ">");
      const Heap::Level level(out.heap());  // one may hold itself
      out.append("<Namespace {");
      bool first = true;
      for (const auto& [key, item] : object.fields) {
        out.append((first ? "'" : ", '") + key + "': ");
        first = false;
        print_quoted(out, item);
      }
      return out.append("}>");
    }
  }
}

void print(TextBuilder& out, const Value& value) {
  if (value.is(Kind::string)) return out.append(value.text());
  if (!value.is(Kind::undefined)) print_quoted(out, value);
}

std::string printed(Heap& heap, const Value& value) {
  TextBuilder out(heap);
  print(out, value);
  return out.take();
}

Value to_string(Heap& heap, const Value& value) {
  if (value.is(Kind::string)) return value;
  TextBuilder out(heap);
  print(out, value);
  return out.value();
}

}  // namespace rw::jinja
