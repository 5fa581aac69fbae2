// Numbers in text, as Python's int() and float() read them.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace rw::jinja {

// int(text, base), base 0 or 2..36; nothing where Python raises a ValueError. Fault: beyond 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
std::optional<double> parse_real(std::string_view text);

}  // namespace rw::jinja
