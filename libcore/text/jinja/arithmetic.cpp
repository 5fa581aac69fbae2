#include "libcore/text/jinja/arithmetic.h"

#include <fmt/core.h>

#include <cmath>

#include "libcore/text/jinja/format.h"

namespace rw::jinja {
namespace {

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void no_operator(Operator op, const Value& a, const Value& b) {
  for (const Value& v : {a, b})
    if (v.is(Kind::undefined)) throw Fault(v.text());
  throw Fault(fmt::format("cannot compute {} {} {}", type_name(a), kSigns[static_cast<size_t>(op)], type_name(b)));
}

[[noreturn]] void too_large() { throw Fault("an integer is beyond 64 bits"); }
[[noreturn]] void by_zero() { throw Fault("division by zero"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) by_zero();
  if (b == -1) {
    if (a == INT64_MIN) too_large();
    return -a;
  }
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0) by_zero();
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

// Python's float floor division and remainder: the remainder has the divisor's sign.
std::pair<double, double> divide_floats(double a, double b) {
  if (b == 0) by_zero();
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double down = std::floor(quotient);
  return {quotient - down > 0.5 ? down + 1 : down, rest};
}

Value power_of_floats(double a, double b) {
  if (a == 0 && b < 0) throw Fault("zero cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    throw Fault("a negative number to a fractional power is complex");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) throw Fault("a number is too large for a float");
  return Value::real(result);
}

Value integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) too_large();
      break;
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) too_large();
      break;
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) too_large();
      break;
    case Operator::divide:
      if (b == 0) by_zero();
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Operator::floor_divide: result = floor_divide(a, b); break;
    case Operator::modulo: result = modulo(a, b); break;
    case Operator::power:
      if (b < 0) return power_of_floats(static_cast<double>(a), static_cast<double>(b));
      result = power(a, b);
      break;
  }
  return Value::integer(result);
}

Value floats(Operator op, double a, double b) {
  switch (op) {
    case Operator::add: return Value::real(a + b);
    case Operator::subtract: return Value::real(a - b);
    case Operator::multiply: return Value::real(a * b);
    case Operator::divide:
      if (b == 0) by_zero();
      return Value::real(a / b);
    case Operator::floor_divide: return Value::real(divide_floats(a, b).first);
    case Operator::modulo: return Value::real(divide_floats(a, b).second);
    case Operator::power: return power_of_floats(a, b);
  }
  return {};
}

Value repeat(Heap& heap, const Value& what, int64_t n) {
  if (what.is(Kind::string)) {
    TextBuilder out(heap);
    out.append(n, what.text());
    return out.value();
  }
  const auto& items = what.items();
  const int64_t size = static_cast<int64_t>(items.size());
  if (n > 0 && size > 0) {
    if (n > heap.limits().bytes / size) heap.check_room(heap.limits().bytes + 1);
    heap.check_room(n * size * static_cast<int64_t>(sizeof(Value)));
  }
  std::vector<Value> out;
  for (int64_t i = 0; i < n; ++i) out.insert(out.end(), items.begin(), items.end());
  return what.is(Kind::list) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
}

bool repeatable(const Value& v) { return v.is(Kind::string) || v.is(Kind::list) || v.is(Kind::tuple); }

}  // namespace

Value compute(Heap& heap, Operator op, const Value& a, const Value& b) {
  if (op == Operator::modulo && a.is(Kind::string)) return format_percent(heap, a.text(), b);
  if (a.is_integral() && b.is_integral()) return integers(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return floats(op, a.as_real(), b.as_real());
  if (op == Operator::add && a.kind() == b.kind()) {
    if (a.is(Kind::string)) {
      TextBuilder out(heap);
      out.append(a.text());
      out.append(b.text());
      return out.value();
    }
    if (a.is(Kind::list) || a.is(Kind::tuple)) {
      heap.check_room(static_cast<int64_t>((a.items().size() + b.items().size()) * sizeof(Value)));
      std::vector<Value> out = a.items();
      out.insert(out.end(), b.items().begin(), b.items().end());
      return a.is(Kind::list) ? heap.list(std::move(out)) : heap.tuple(std::move(out));
    }
  }
  if (op == Operator::multiply) {
    if (repeatable(a) && b.is_integral()) return repeat(heap, a, b.as_integer());
    if (repeatable(b) && a.is_integral()) return repeat(heap, b, a.as_integer());
  }
  no_operator(op, a, b);
}

Value negate(const Value& v) {
  if (v.is(Kind::real)) return Value::real(-v.as_real());
  if (v.is(Kind::undefined)) throw Fault(v.text());
  if (!v.is_integral()) throw Fault(fmt::format("cannot compute -{}", type_name(v)));
  if (v.as_integer() == INT64_MIN) too_large();
  return Value::integer(-v.as_integer());
}

Value positive(const Value& v) {
  if (v.is(Kind::real)) return v;
  if (v.is(Kind::undefined)) throw Fault(v.text());
  if (!v.is_integral()) throw Fault(fmt::format("cannot compute +{}", type_name(v)));
  return Value::integer(v.as_integer());
}

Value round_to(const Value& number, int64_t digits) {
  if (number.is(Kind::undefined)) throw Fault(number.text());
  if (!number.is_number()) throw Fault(fmt::format("round: expected a number, found {}", type_name(number)));
  if (number.is_integral()) {
    if (digits >= 0) return Value::integer(number.as_integer());
    if (digits < -18) return Value::integer(0);
    const int64_t unit = power(10, -digits), value = number.as_integer();
    const int64_t down = floor_divide(value, unit), rest = modulo(value, unit);
    const bool up = rest > unit - rest || (rest == unit - rest && (down & 1) != 0);
    return integers(Operator::multiply, down + (up ? 1 : 0), unit);
  }
  const double value = number.as_real();
  if (!std::isfinite(value) || digits > 330) return number;
  if (digits < -308) return Value::real(std::copysign(0.0, value));
  // printf rounds the exact binary value, ties to even, as Python does.
  if (digits >= 0) return Value::real(std::stod(fmt::format("{:.{}f}", value, digits)));
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return Value::real(std::nearbyint(value / unit) * unit);
}

}  // namespace rw::jinja
