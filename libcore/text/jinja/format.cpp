#include "libcore/text/jinja/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/print.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

struct Conversion {
  bool minus = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

class Formatter {
 public:
  Formatter(Heap& heap, const std::string& format, const Value& values)
      : heap_(heap), format_(format), values_(values), out_(heap) {}

  Value run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.append(std::string_view(format_).substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) one();
    }
    if (!values_.is(Kind::tuple) && !by_index() && used_ == 0) throw Fault("not all arguments are used by the format");
    if (values_.is(Kind::tuple) && used_ < values_.items().size())
      throw Fault("not all arguments are used by the format");
    return out_.value();
  }

 private:
  // What has an operator [] may be left unused.
  bool by_index() const {
    return values_.is(Kind::dict) || values_.is(Kind::list) || values_.is(Kind::range) || values_.is(Kind::undefined);
  }

  char next() {
    if (at_ >= format_.size()) throw Fault("the format ends within a conversion");
    return format_[at_++];
  }

  const Value& argument() {
    if (values_.is(Kind::tuple)) {
      if (used_ >= values_.items().size()) throw Fault("the format needs more arguments");
      return values_.items()[used_++];
    }
    if (used_ > 0) throw Fault("the format needs more arguments");
    ++used_;
    return values_;
  }

  int64_t number(char& c) {
    if (c == '*') {
      const Value& v = argument();
      if (!v.is_integral()) throw Fault("the format's * needs an integer");
      if (v.as_integer() > INT32_MAX || v.as_integer() < -INT32_MAX) throw Fault("a width in the format is too large");
      c = next();
      return v.as_integer();
    }
    int64_t n = 0;
    for (; c >= '0' && c <= '9'; c = next()) {
      n = n * 10 + (c - '0');
      if (n > INT32_MAX) throw Fault("a width in the format is too large");
    }
    return n;
  }

  void one() {
    Conversion how;
    const Value* value = nullptr;
    ++at_;
    char c = next();
    if (c == '(') {
      if (!values_.is(Kind::dict)) throw Fault("the format's names need a dict");
      const size_t close = format_.find(')', at_);
      if (close == std::string::npos) throw Fault("the format ends within a name");
      const std::string name = format_.substr(at_, close - at_);
      value = find_key(heap_, values_, heap_.text(name));
      if (value == nullptr) throw Fault(fmt::format("the format's name '{}' is not in the dict", name));
      at_ = close + 1;
      c = next();
    }
    for (;; c = next()) {
      if (c == '-') how.minus = true;
      else if (c == '+') how.plus = true;
      else if (c == ' ') how.space = true;
      else if (c == '0') how.zero = true;
      else if (c == '#') how.alternate = true;
      else break;
    }
    how.width = number(c);
    if (how.width < 0) how.minus = true, how.width = -how.width;
    if (c == '.') {
      c = next();
      how.precision = std::max<int64_t>(0, number(c));
    }
    while (c == 'l' || c == 'h' || c == 'L') c = next();
    how.type = c;
    if (c == '%') return out_.append("%");
    convert(how, value != nullptr ? *value : argument());
  }

  // Sign or prefix, then zeros or spaces up to the width.
  void pad(const Conversion& how, const std::string& prefix, const std::string& body) {
    const int64_t fill = how.width - code_points(prefix) - code_points(body);
    if (!how.minus && !how.zero) out_.append(fill, " ");
    out_.append(prefix);
    if (!how.minus && how.zero) out_.append(fill, "0");
    out_.append(body);
    if (how.minus) out_.append(fill, " ");
  }

  void convert(Conversion how, const Value& value) {
    if (std::string_view("sra").find(how.type) != std::string_view::npos) {
      TextBuilder text(heap_);
      if (how.type == 's') {
        print(text, value);
      } else {
        print_quoted(text, value);
      }
      std::string body = text.take();
      if (how.precision >= 0) body.resize(byte_of(body, how.precision));
      how.zero = false;
      return pad(how, "", body);
    }
    if (how.type == 'c') return character(how, value);
    if (!value.is_number()) {
      if (value.is(Kind::undefined)) throw Fault(value.text());
      throw Fault(fmt::format("%{} needs a number, found {}", how.type, type_name(value)));
    }
    if (std::string_view("diuxXo").find(how.type) != std::string_view::npos) return integer(how, value);
    if (std::string_view("eEfFgG").find(how.type) != std::string_view::npos) return real(how, value.as_real());
    throw Fault("the format has an unknown conversion");
  }

  void character(Conversion how, const Value& value) {
    how.zero = false;
    std::string body;
    if (value.is(Kind::string) && value.code_points() == 1) {
      body = value.text();
    } else if (value.is_integral() && value.as_integer() >= 0 && value.as_integer() <= 0x10FFFF &&
               (value.as_integer() < 0xD800 || value.as_integer() > 0xDFFF)) {
      append_utf8(body, static_cast<uint32_t>(value.as_integer()));
    } else {
      throw Fault("%c needs a character");
    }
    pad(how, "", body);
  }

  std::string sign(const Conversion& how, bool negative) {
    return negative ? "-" : how.plus ? "+" : how.space ? " " : "";
  }

  void integer(const Conversion& how, const Value& value) {
    const bool decimal = std::string_view("diu").find(how.type) != std::string_view::npos;
    if (!value.is_integral() && !decimal) throw Fault(fmt::format("%{} needs an integer, found float", how.type));
    if (!value.is_integral() && !(std::fabs(value.as_real()) < 9.2e18)) throw Fault("an integer is beyond 64 bits");
    const int64_t n = value.is_integral() ? value.as_integer() : static_cast<int64_t>(value.as_real());
    const uint64_t size = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
    std::string digits = how.type == 'x'   ? fmt::format("{:x}", size)
                         : how.type == 'X' ? fmt::format("{:X}", size)
                         : how.type == 'o' ? fmt::format("{:o}", size)
                                           : fmt::format("{}", size);
    const int64_t missing = how.precision - static_cast<int64_t>(digits.size());
    if (missing > 0) {
      heap_.check_room(missing);
      digits.insert(0, static_cast<size_t>(missing), '0');
    }
    std::string prefix = sign(how, n < 0);
    if (how.alternate && !decimal) prefix += std::string("0") + how.type;
    pad(how, prefix, digits);
  }

  void real(const Conversion& how, double value) {
    const int64_t precision = how.precision < 0 ? 6 : how.precision;
    if (precision > 1000) throw Fault("a precision in the format is too large");
    std::string format = how.alternate ? "{:#.{}" : "{:.{}";
    format += how.type;
    format += '}';
    std::string body = fmt::format(fmt::runtime(format), std::fabs(value), precision);
    Conversion shown = how;
    if (!std::isfinite(value)) shown.zero = false;
    pad(shown, sign(how, std::signbit(value) && !std::isnan(value)), body);
  }

  Heap& heap_;
  const std::string& format_;
  const Value& values_;
  TextBuilder out_;
  size_t at_ = 0, used_ = 0;
};

}  // namespace

Value format_percent(Heap& heap, const std::string& format, const Value& values) {
  return Formatter(heap, format, values).run();
}

}  // namespace rw::jinja
