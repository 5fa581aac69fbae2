#include "libcore/base/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

namespace rw {
namespace {

// Deeper nesting than any real file has: nlohmann's parser and destructor recurse.
constexpr int kMaxDepth = 256;

const Json& member(const Json& object, const char* key, const std::string& where, const char* expected) {
  if (!object.is_object())
    fail(ErrorKind::input, "{}: expected an object that holds \"{}\", found {}", where, key, object.type_name());
  const auto it = object.find(key);
  if (it == object.end()) fail(ErrorKind::input, "{}: key \"{}\" is missing; expected {}", where, key, expected);
  return *it;
}

bool absent(const Json& object, const char* key) {
  if (!object.is_object()) return true;
  const auto it = object.find(key);
  return it == object.end() || it->is_null();
}

[[noreturn]] void wrong_type(const Json& value, const char* key, const std::string& where, const char* expected) {
  std::string found = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  fail(ErrorKind::input, "{}: key \"{}\": expected {}, found {}", where, key, expected, found);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  try {
    const Json::parser_callback_t depth_guard = [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kMaxDepth) fail(ErrorKind::input, "{}: JSON nested deeper than {} levels", where, kMaxDepth);
      return true;
    };
    return Json::parse(text, depth_guard);
  } catch (const Json::parse_error& e) {
    std::string what = e.what();
    if (const size_t colon = what.find("] "); colon != std::string::npos) what = what.substr(colon + 2);
    fail(ErrorKind::input, "{}: expected JSON; {}", where, what);
  } catch (const Json::exception& e) {
    fail(ErrorKind::input, "{}: expected JSON; {}", where, e.what());
  }
}

Json read_json(const std::filesystem::path& file) { return parse_json(read_file(file), file.string()); }

int64_t json_int(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where, "an integer");
  if (value.is_number_unsigned()) {
    const uint64_t v = value.get<uint64_t>();
    if (v <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(v);
  } else if (value.is_number_integer()) {
    return value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double v = value.get<double>();
    if (std::floor(v) == v && std::abs(v) < 9e15) return static_cast<int64_t>(v);
  }
  wrong_type(value, key, where, "an integer");
}

double json_number(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where, "a number");
  if (!value.is_number()) wrong_type(value, key, where, "a number");
  return value.get<double>();
}

std::string json_string(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where, "a string");
  if (!value.is_string()) wrong_type(value, key, where, "a string");
  return value.get<std::string>();
}

int64_t json_int(const Json& object, const char* key, const std::string& where, int64_t otherwise) {
  return absent(object, key) ? otherwise : json_int(object, key, where);
}

double json_number(const Json& object, const char* key, const std::string& where, double otherwise) {
  return absent(object, key) ? otherwise : json_number(object, key, where);
}

bool json_bool(const Json& object, const char* key, const std::string& where, bool otherwise) {
  if (absent(object, key)) return otherwise;
  const Json& value = member(object, key, where, "true or false");
  if (!value.is_boolean()) wrong_type(value, key, where, "true or false");
  return value.get<bool>();
}

std::string json_string(const Json& object, const char* key, const std::string& where, const std::string& otherwise) {
  return absent(object, key) ? otherwise : json_string(object, key, where);
}

}  // namespace rw
