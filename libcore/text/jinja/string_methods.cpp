// Python's str methods that find, test and change.
#include <fmt/core.h>

#include <algorithm>

#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/methods.h"
#include "libcore/text/jinja/string_split.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

// The part text[start:end] that find, count, startswith, ... look at.
struct Window {
  std::string_view text;
  int64_t first = 0;   // code points before it
  bool exists = true;  // start lies within the text
};

Window window(Heap& heap, const Value& self, const Parameters& p) {
  const std::string_view text = self.text();
  heap.work(static_cast<int64_t>(text.size()) / 64);
  if (!p.has(1) && !p.has(2)) return {text};
  const int64_t n = self.code_points();
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t v = p.has(i) ? p.integer(i, 0) : otherwise;
    return v < 0 ? (v < -n ? 0 : v + n) : v;
  };
  const int64_t start = bound(1, 0), stop = std::min(bound(2, n), n);
  if (start > n || stop < start) return {.text = {}, .first = start, .exists = false};
  const size_t begin = byte_of(text, start);
  return {text.substr(begin, byte_of(text.substr(begin), stop - start)), start, true};
}

int64_t position(Heap& heap, const Value& self, const Arguments& arguments, bool last) {
  const Parameters p(arguments, {"sub", "start", "end"}, 1);
  const Window w = window(heap, self, p);
  if (!w.exists) return -1;
  heap.work_search(w.text.size(), p.text(0).size());
  const size_t at = last ? w.text.rfind(p.text(0)) : w.text.find(p.text(0));
  return at == std::string_view::npos ? -1 : w.first + code_points(w.text.substr(0, at));
}

Value find(Heap& heap, const Value& self, const Arguments& arguments) {
  return Value::integer(position(heap, self, arguments, false));
}
Value rfind(Heap& heap, const Value& self, const Arguments& arguments) {
  return Value::integer(position(heap, self, arguments, true));
}

Value found(int64_t at) {
  if (at < 0) throw Fault("index(): the substring is not in the string");
  return Value::integer(at);
}
Value index(Heap& heap, const Value& self, const Arguments& arguments) {
  return found(position(heap, self, arguments, false));
}
Value rindex(Heap& heap, const Value& self, const Arguments& arguments) {
  return found(position(heap, self, arguments, true));
}

Value count(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"sub", "start", "end"}, 1);
  const Window w = window(heap, self, p);
  const std::string& sub = p.text(0);
  if (!w.exists) return Value::integer(0);
  heap.work_search(w.text.size(), sub.size());
  if (sub.empty()) return Value::integer(code_points(w.text) + 1);
  int64_t n = 0;
  for (size_t at = w.text.find(sub); at != std::string_view::npos; at = w.text.find(sub, at + sub.size())) ++n;
  return Value::integer(n);
}

Value has_affix(Heap& heap, const Value& self, const Arguments& arguments, bool at_end) {
  const Parameters p(arguments, {"affix", "start", "end"}, 1);
  const Window w = window(heap, self, p);
  const auto matches = [&](const Value& affix) {
    const std::string& text = to_text(affix, at_end ? "endswith" : "startswith");
    return w.exists && (at_end ? w.text.ends_with(text) : w.text.starts_with(text));
  };
  if (!p[0].is(Kind::tuple)) return Value::boolean(matches(p[0]));
  return Value::boolean(std::any_of(p[0].items().begin(), p[0].items().end(), matches));
}
Value startswith(Heap& heap, const Value& self, const Arguments& arguments) {
  return has_affix(heap, self, arguments, false);
}
Value endswith(Heap& heap, const Value& self, const Arguments& arguments) {
  return has_affix(heap, self, arguments, true);
}

template <bool (*kTest)(uint32_t)>
Value all_are(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  const std::string& text = self.text();
  heap.work(static_cast<int64_t>(text.size()) / 16);
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(utf8_length(text, at)))
    if (!kTest(utf8_at(text, at))) return Value::boolean(false);
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(uint32_t c) { return is_alpha(c) || is_numeric(c); }
bool is_digit(uint32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089);
}

Value is_ascii(Heap&, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return Value::boolean(static_cast<int64_t>(self.text().size()) == self.code_points());
}

// Some letter has a case, and none has the other one.
Value all_cased(Heap& heap, const Value& self, const Arguments& arguments, bool upper_case) {
  Parameters(arguments, {});
  const std::string& text = self.text();
  heap.work(static_cast<int64_t>(text.size()) / 16);
  bool any = false;
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(utf8_length(text, at))) {
    const uint32_t c = utf8_at(text, at);
    if ((upper_case ? is_lower(c) : is_upper(c)) || is_title(c)) return Value::boolean(false);
    any |= upper_case ? is_upper(c) : is_lower(c);
  }
  return Value::boolean(any);
}
Value isupper(Heap& heap, const Value& self, const Arguments& a) { return all_cased(heap, self, a, true); }
Value islower(Heap& heap, const Value& self, const Arguments& a) { return all_cased(heap, self, a, false); }

Value istitle(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  const std::string& text = self.text();
  heap.work(static_cast<int64_t>(text.size()) / 16);
  bool any = false, in_word = false;
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(utf8_length(text, at))) {
    const uint32_t c = utf8_at(text, at);
    if (is_lower(c) ? !in_word : is_cased(c) && in_word) return Value::boolean(false);
    in_word = is_cased(c);
    any |= in_word;
  }
  return Value::boolean(any);
}

template <std::string (*kMap)(std::string_view)>
Value mapped(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  heap.work(static_cast<int64_t>(self.text().size()) / 16);
  heap.check_room(3 * static_cast<int64_t>(self.text().size()));
  return heap.text(kMap(self.text()));
}

Value replace_method(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"old", "new", "count"}, 2);
  return replace(heap, self.text(), p.text(0), p.text(1), p.integer(2, -1));
}

Value strip_method(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"chars"});
  return strip(heap, self.text(), p.given(0) ? &p[0] : nullptr, true, true);
}
Value lstrip(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"chars"});
  return strip(heap, self.text(), p.given(0) ? &p[0] : nullptr, true, false);
}
Value rstrip(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"chars"});
  return strip(heap, self.text(), p.given(0) ? &p[0] : nullptr, false, true);
}

Value removeprefix(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"prefix"}, 1);
  return self.text().starts_with(p.text(0)) ? heap.text(self.text().substr(p.text(0).size())) : self;
}
Value removesuffix(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"suffix"}, 1);
  const std::string& text = self.text();
  return text.ends_with(p.text(0)) ? heap.text(text.substr(0, text.size() - p.text(0).size())) : self;
}

Value padded(Heap& heap, const Value& self, int64_t left, int64_t right, std::string_view fill) {
  TextBuilder out(heap);
  out.append(left, fill);
  out.append(self.text());
  out.append(right, fill);
  return out.value();
}

// Where the text goes in a field of the wished width.
enum class Place { left, center, right };
template <Place kPlace>
Value justify(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"width", "fillchar"}, 1);
  const std::string_view fill = p.text(1, " ");
  if (code_points(fill) != 1) throw Fault("the fill character: expected one character");
  const int64_t width = p.integer(0, 0);
  const int64_t room = width > self.code_points() ? width - self.code_points() : 0;
  // The odd one goes where CPython puts it.
  const int64_t left = kPlace == Place::left ? 0 : kPlace == Place::right ? room : room / 2 + (room & width & 1);
  return padded(heap, self, left, room - left, fill);
}

Value zfill(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"width"}, 1);
  const int64_t width = p.integer(0, 0);
  const std::string& text = self.text();
  TextBuilder out(heap);
  const bool sign = text.starts_with('+') || text.starts_with('-');
  if (sign) out.append(text.substr(0, 1));
  out.append(width > self.code_points() ? width - self.code_points() : 0, "0");
  out.append(std::string_view(text).substr(sign ? 1 : 0));
  return out.value();
}

Value join(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"iterable"}, 1);
  TextBuilder out(heap);
  bool first = true;
  for (const Value& item : iterate(heap, p[0])) {
    if (!first) out.append(self.text());
    first = false;
    if (!item.is(Kind::string)) throw Fault(fmt::format("join(): expected strings, found {}", type_name(item)));
    out.append(item.text());
  }
  return out.value();
}

constexpr NamedFunction kMethods[] = {
    {"capitalize", mapped<capitalize>},
    {"casefold", mapped<fold_case>},
    {"center", justify<Place::center>},
    {"count", count},
    {"endswith", endswith},
    {"find", find},
    {"index", index},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"islower", islower},
    {"isnumeric", all_are<is_numeric>},
    {"isspace", all_are<is_space>},
    {"istitle", istitle},
    {"isupper", isupper},
    {"join", join},
    {"ljust", justify<Place::left>},
    {"lower", mapped<lower>},
    {"lstrip", lstrip},
    {"partition", partition<false>},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace_method},
    {"rfind", rfind},
    {"rindex", rindex},
    {"rjust", justify<Place::right>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", rstrip},
    {"split", split<false>},
    {"splitlines", split_lines_method},
    {"startswith", startswith},
    {"strip", strip_method},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<title>},
    {"upper", mapped<upper>},
    {"zfill", zfill},
};

}  // namespace

Value strip(Heap& heap, const std::string& text, const Value* chars, bool left, bool right) {
  const bool space = chars == nullptr || chars->is(Kind::none);
  const std::string_view set = space ? std::string_view() : std::string_view(to_text(*chars, "strip"));
  heap.work(static_cast<int64_t>(text.size() / 64 * (1 + set.size() / 8)));
  std::string_view rest = text;
  if (left) rest.remove_prefix(space ? leading_space(rest) : leading(rest, set));
  if (right) rest.remove_suffix(space ? trailing_space(rest) : trailing(rest, set));
  return heap.text(std::string(rest));
}

Value replace(Heap& heap, const std::string& text, const std::string& old, const std::string& with, int64_t count) {
  TextBuilder out(heap);
  count = std::max<int64_t>(-1, count);  // negative: all
  heap.work_search(text.size(), old.size());
  size_t at = 0;
  if (old.empty()) {  // before every character and at the end
    for (; count != 0; --count) {
      out.append(with);
      if (at >= text.size()) break;
      const size_t n = static_cast<size_t>(utf8_length(text, at));
      out.append(std::string_view(text).substr(at, n));
      at += n;
    }
    out.append(std::string_view(text).substr(std::min(at, text.size())));
    return out.value();
  }
  for (; count != 0; --count) {
    const size_t found = text.find(old, at);
    if (found == std::string::npos) break;
    out.append(std::string_view(text).substr(at, found - at));
    out.append(with);
    at = found + old.size();
  }
  out.append(std::string_view(text).substr(at));
  return out.value();
}

Function find_string_method(std::string_view name) {
  for (const auto& method : kMethods)
    if (method.name == name) return method.function;
  return nullptr;
}

}  // namespace rw::jinja
