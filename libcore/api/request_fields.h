// The fields of a JSON object of a request, read by name and type; what nobody asked for is unknown.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

// All readers: an absent or null field is `otherwise`; of a wrong type or out of range, ApiError (400) naming it.
class RequestFields {
 public:
  // prefix: of names in messages, "stream_options." for the fields of an object in a field. The object outlives this.
  explicit RequestFields(const Json& object, std::string prefix = "");

  const Json* find(const char* name);  // null: absent or null
  bool has(const char* name) { return find(name) != nullptr; }
  bool boolean(const char* name, bool otherwise);
  int64_t integer(const char* name, int64_t otherwise, int64_t min, int64_t max);
  std::optional<int64_t> integer(const char* name, int64_t min, int64_t max);
  double number(const char* name, double otherwise, double min, double max);
  std::string text(const char* name, const std::string& otherwise, size_t max_bytes);
  // One string, or a list of them.
  std::vector<std::string> texts(const char* name, size_t max_items, size_t max_bytes);
  std::vector<int32_t> ids(const char* name, size_t max_items, int64_t vocab_size);

  // 400 unless the field is absent, null, empty, or equal to what it is by default (text of JSON).
  void only(const char* name, const char* default_json, const char* instead);
  void ignore(const char* name) { find(name); }

  std::string path(const char* name) const { return prefix_ + name; }
  std::vector<std::string> unknown() const;  // names that no reader asked for

 private:
  const Json& object_;
  std::string prefix_;
  std::vector<const char*> known_;
};

// For values within a field; `path` is "prompt[3]".
int64_t integer_value(const Json& value, const std::string& path, int64_t min, int64_t max);
// Token ids from 0 to vocab_size - 1.
std::vector<int32_t> ids_value(const Json& value, const std::string& path, size_t max_items, int64_t vocab_size);
std::string found(const Json& value);  // for messages: short

}  // namespace rw
