// JSON written straight into a string: what every token of a stream passes through.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// Quoted and escaped; every maximal ill-formed part becomes U+FFFD, so that the output is always valid.
void append_json_string(std::string& out, std::string_view text);
void append_json_int(std::string& out, int64_t value);
// The shortest text that reads back to the same float. What is not finite, or below, is -9999.0: the API's number for
// an impossible token.
void append_json_logprob(std::string& out, float value);
void append_json_number(std::string& out, double value);  // finite; otherwise null
void append_json_ids(std::string& out, const std::vector<int32_t>& ids);
void append_json_bytes(std::string& out, std::string_view bytes);  // [240,159]

}  // namespace rw
