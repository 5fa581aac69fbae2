#include "libcore/text/jinja/string_split.h"

#include <algorithm>

#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/methods.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

size_t width(std::string_view text, size_t at) { return static_cast<size_t>(utf8_length(text, at)); }

std::vector<std::string_view> split_spaces(std::string_view text, int64_t max) {
  std::vector<std::string_view> out;
  text.remove_prefix(leading_space(text));
  while (!text.empty()) {
    if (max-- == 0) {
      out.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(utf8_at(text, end))) end += width(text, end);
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(leading_space(text));
  }
  return out;
}

// From the right, the last piece first.
std::vector<std::string_view> rsplit_spaces(std::string_view text, int64_t max) {
  std::vector<std::string_view> out;
  text.remove_suffix(trailing_space(text));
  while (!text.empty()) {
    if (max-- == 0) {
      out.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t before = begin - 1;
      while ((text[before] & 0xC0) == 0x80) --before;
      if (is_space(utf8_at(text, before))) break;
      begin = before;
    }
    out.push_back(text.substr(begin));
    text = text.substr(0, begin);
    text.remove_suffix(trailing_space(text));
  }
  return out;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t max) {
  std::vector<std::string_view> out;
  for (size_t at; max-- != 0 && (at = text.find(separator)) != std::string_view::npos;) {
    out.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  out.push_back(text);
  return out;
}

std::vector<std::string_view> rsplit_at(std::string_view text, std::string_view separator, int64_t max) {
  std::vector<std::string_view> out;
  for (size_t at; max-- != 0 && (at = text.rfind(separator)) != std::string_view::npos;) {
    out.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  out.push_back(text);
  return out;
}

std::vector<Value> values_of(Heap& heap, const std::vector<std::string_view>& pieces) {
  std::vector<Value> out;
  for (const std::string_view piece : pieces) out.push_back(heap.text(std::string(piece)));
  return out;
}

const std::string& separator_of(const Value& value) {
  const std::string& separator = to_text(value, "the separator");
  if (separator.empty()) throw Fault("the separator is empty");
  return separator;
}

}  // namespace

template <bool kFromRight>
Value split(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"sep", "maxsplit"});
  const std::string& text = self.text();
  const int64_t max = std::max<int64_t>(-1, p.integer(1, -1));  // negative: all
  heap.work(static_cast<int64_t>(text.size()) / 16);
  std::vector<std::string_view> pieces;
  if (!p.has(0)) {
    pieces = kFromRight ? rsplit_spaces(text, max) : split_spaces(text, max);
  } else {
    const std::string& separator = separator_of(p[0]);
    heap.work_search(text.size(), separator.size());
    pieces = kFromRight ? rsplit_at(text, separator, max) : split_at(text, separator, max);
  }
  if (kFromRight) std::reverse(pieces.begin(), pieces.end());
  return heap.list(values_of(heap, pieces));
}
template Value split<false>(Heap&, const Value&, const Arguments&);
template Value split<true>(Heap&, const Value&, const Arguments&);

template <bool kFromRight>
Value partition(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"sep"}, 1);
  const std::string &text = self.text(), &separator = separator_of(p[0]);
  heap.work_search(text.size(), separator.size());
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    const Value empty = heap.text("");
    return kFromRight ? heap.tuple({empty, empty, self}) : heap.tuple({self, empty, empty});
  }
  return heap.tuple({heap.text(text.substr(0, at)), p[0], heap.text(text.substr(at + separator.size()))});
}
template Value partition<false>(Heap&, const Value&, const Arguments&);
template Value partition<true>(Heap&, const Value&, const Arguments&);

std::vector<Value> split_lines(Heap& heap, const std::string& text, bool keep_ends) {
  heap.work(static_cast<int64_t>(text.size()) / 16);
  std::vector<Value> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t n = width(text, at);
    if (!is_line_break(utf8_at(text, at))) {
      at += n;
      continue;
    }
    const size_t end = text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n' ? at + 2 : at + n;
    out.push_back(heap.text(text.substr(begin, (keep_ends ? end : at) - begin)));
    begin = at = end;
  }
  if (begin < text.size()) out.push_back(heap.text(text.substr(begin)));
  return out;
}

Value split_lines_method(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"keepends"});
  return heap.list(split_lines(heap, self.text(), p.flag(0, false)));
}

}  // namespace rw::jinja
