// A request's body as JSON, within limits that keep hostile ones cheap.
#pragma once
#include <string_view>

#include "libcore/base/json.h"

namespace rw {

// ApiError (400) when it is not JSON, nests deeper than 64, or holds more than 2^21 values, 1024 keys in an object or
// 200,000 keys in all (an ordered object finds a key by looking at all).
Json parse_request_body(std::string_view body);

}  // namespace rw
