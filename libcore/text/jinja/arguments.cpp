#include "libcore/text/jinja/arguments.h"

#include <fmt/core.h>

#include <algorithm>

namespace rw::jinja {

Parameters::Parameters(const Arguments& arguments, std::initializer_list<std::string_view> names, size_t required)
    : names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    throw Fault(fmt::format("expected at most {} arguments, found {}", names_.size(), arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) throw Fault(fmt::format("there is no argument '{}' here", name));
    auto& slot = values_[static_cast<size_t>(at - names_.begin())];
    if (slot.has_value()) throw Fault(fmt::format("argument '{}' is given twice", name));
    slot = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i].has_value()) throw Fault(fmt::format("argument '{}' is missing", names_[i]));
}

int64_t Parameters::integer(size_t i, int64_t otherwise) const {
  return given(i) ? to_integer(*values_[i], names_[i]) : otherwise;
}

const std::string& Parameters::text(size_t i) const { return to_text(*values_[i], names_[i]); }

std::string_view Parameters::text(size_t i, std::string_view otherwise) const { return given(i) ? text(i) : otherwise; }

int64_t to_integer(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) throw Fault(value.text());
  if (!value.is_integral()) throw Fault(fmt::format("{}: expected an integer, found {}", what, type_name(value)));
  return value.as_integer();
}

const std::string& to_text(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) throw Fault(value.text());
  if (!value.is(Kind::string)) throw Fault(fmt::format("{}: expected a string, found {}", what, type_name(value)));
  return value.text();
}

}  // namespace rw::jinja
