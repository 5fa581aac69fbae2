#include "libcore/text/jinja/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "libcore/text/jinja/compare.h"
#include "libcore/text/jinja/print.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

struct Style {
  bool ascii = false, sort_keys = false, multiline = false;
  std::string indent, item_separator = ", ", key_separator = ": ";
};

class Writer {
 public:
  Writer(Heap& heap, const Style& style) : heap_(heap), style_(style), out_(heap) {}

  void write(const Value& value, int64_t level) {
    heap_.work(1);
    switch (value.kind()) {
      case Kind::none: return out_.append("null");
      case Kind::boolean: return out_.append(value.as_integer() != 0 ? "true" : "false");
      case Kind::integer: return out_.append(std::to_string(value.as_integer()));
      case Kind::real: return out_.append(real(value.as_real()));
      case Kind::string: return string(value.text());
      case Kind::list:
      case Kind::tuple: return list(value.items(), level);
      case Kind::dict: return dict(value, level);
      default: throw Fault(fmt::format("tojson: {} cannot be written as JSON", type_name(value)));
    }
  }
  Value value() { return out_.value(); }

 private:
  static std::string real(double d) {
    return std::isnan(d) ? "NaN" : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : number_text(d);
  }

  void new_line(int64_t level) {
    if (!style_.multiline) return;
    out_.append("\n");
    out_.append(level, style_.indent);
  }

  void list(const std::vector<Value>& items, int64_t level) {
    if (items.empty()) return out_.append("[]");
    out_.append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_.append("]");
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::string: return key.text();
      case Kind::none: return "null";
      case Kind::boolean: return key.as_integer() != 0 ? "true" : "false";
      case Kind::integer: return std::to_string(key.as_integer());
      case Kind::real: return real(key.as_real());
      default: throw Fault(fmt::format("tojson: {} cannot be a key of JSON", type_name(key)));
    }
  }

  void dict(const Value& value, int64_t level) {
    if (value.pairs().empty()) return out_.append("{}");
    std::vector<const Pair*> pairs;
    for (const Pair& pair : value.pairs()) pairs.push_back(&pair);
    if (style_.sort_keys) {
      std::stable_sort(pairs.begin(), pairs.end(),
                       [&](const Pair* a, const Pair* b) { return less(heap_, a->first, b->first); });
    }
    out_.append("{");
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      string(key_text(pairs[i]->first));
      out_.append(style_.key_separator);
      write(pairs[i]->second, level + 1);
    }
    new_line(level);
    out_.append("}");
  }

  void string(const std::string& text) {
    std::string quoted = "\"";
    for (size_t at = 0; at < text.size();) {
      const size_t n = static_cast<size_t>(utf8_length(text, at));
      const uint32_t c = utf8_at(text, at);
      switch (c) {
        case '"': quoted += "\\\""; break;
        case '\\': quoted += "\\\\"; break;
        case '\n': quoted += "\\n"; break;
        case '\r': quoted += "\\r"; break;
        case '\t': quoted += "\\t"; break;
        case '\f': quoted += "\\f"; break;
        case '\b': quoted += "\\b"; break;
        default:
          if (c >= 0x10000 && style_.ascii) {
            quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
          } else if (c < 0x20 || (c >= 0x7F && style_.ascii)) {
            quoted += fmt::format("\\u{:04x}", c);
          } else {
            quoted.append(text, at, n);
          }
      }
      at += n;
      if (quoted.size() > 4096) {
        out_.append(quoted);
        quoted.clear();
      }
    }
    out_.append(quoted + "\"");
  }

  Heap& heap_;
  const Style& style_;
  TextBuilder out_;
};

}  // namespace

Value to_json(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Style style{.ascii = p.flag(0, false), .sort_keys = p.flag(3, false)};
  if (p.has(1)) {
    style.multiline = true;
    style.item_separator = ",";
    if (p[1].is(Kind::string)) {
      style.indent = p[1].text();
    } else {
      const int64_t n = std::max<int64_t>(0, p.integer(1, 0));
      heap.check_room(n);
      style.indent.assign(static_cast<size_t>(n), ' ');
    }
  }
  if (p.has(2)) {
    const std::vector<Value> pair = iterate(heap, p[2]);
    if (pair.size() != 2) throw Fault("tojson: separators are two strings");
    style.item_separator = to_text(pair[0], "separators");
    style.key_separator = to_text(pair[1], "separators");
  }
  Writer writer(heap, style);
  writer.write(self, 0);
  return writer.value();
}

}  // namespace rw::jinja
