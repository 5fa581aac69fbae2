// JSON as the project uses it: nlohmann's ordered value (keys keep their order), declared here, defined in .cpp files
// that include <nlohmann/json.hpp> themselves (4.8 s each, so few do).
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rw {

using Json = nlohmann::ordered_json;

// Parses text that came from `where` (a path); throws Error{input} with the byte offset and what was expected.
Json parse_json(std::string_view text, const std::string& where);
Json read_json(const std::filesystem::path& file);

// A required key of `object`, of the wanted type; throws Error{input} naming file, key, expected and found.
int64_t json_int(const Json& object, const char* key, const std::string& where);
double json_number(const Json& object, const char* key, const std::string& where);
std::string json_string(const Json& object, const char* key, const std::string& where);
// The same with a default for a key that is absent or null.
int64_t json_int(const Json& object, const char* key, const std::string& where, int64_t otherwise);
double json_number(const Json& object, const char* key, const std::string& where, double otherwise);
bool json_bool(const Json& object, const char* key, const std::string& where, bool otherwise);
std::string json_string(const Json& object, const char* key, const std::string& where, const std::string& otherwise);

}  // namespace rw
