#include "libcore/api/request_fields.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "libcore/api/api_error.h"

namespace rw {

std::string found(const Json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  if (value.is_string() && value.get_ref<const std::string&>().size() > 64) return "a longer string";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t integer_value(const Json& value, const std::string& path, int64_t min, int64_t max) {
  const auto wrong = [&] { refuse(path, "expected an integer from {} to {}, found {}", min, max, found(value)); };
  int64_t v = 0;
  if (value.is_number_unsigned()) {
    const uint64_t u = value.get<uint64_t>();
    if (u > static_cast<uint64_t>(INT64_MAX)) wrong();
    v = static_cast<int64_t>(u);
  } else if (value.is_number_integer()) {
    v = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double d = value.get<double>();  // Python's json writes 16.0 for a float that is whole
    if (!(std::floor(d) == d && std::abs(d) < 9e15)) wrong();
    v = static_cast<int64_t>(d);
  } else {
    wrong();
  }
  if (v < min || v > max) wrong();
  return v;
}

std::vector<int32_t> ids_value(const Json& value, const std::string& path, size_t max_items, int64_t vocab_size) {
  if (!value.is_array()) refuse(path, "expected a list of token ids, found {}", found(value));
  if (value.size() > max_items) refuse(path, "expected at most {} token ids, found {}", max_items, value.size());
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& id : value) {
    // The path of an item is made only when it is wrong.
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size))
      refuse(fmt::format("{}[{}]", path, ids.size()), "expected a token id from 0 to {}, found {}", vocab_size - 1,
             found(id));
    ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
  return ids;
}

RequestFields::RequestFields(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
  if (object.is_object()) return;
  if (prefix_.empty()) refuse("", "the body: expected a JSON object, found {}", found(object));
  refuse(prefix_.substr(0, prefix_.size() - 1), "expected an object, found {}", found(object));
}

const Json* RequestFields::find(const char* name) {
  known_.push_back(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool RequestFields::boolean(const char* name, bool otherwise) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(path(name), "expected true or false, found {}", found(*value));
  return value->get<bool>();
}

std::optional<int64_t> RequestFields::integer(const char* name, int64_t min, int64_t max) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  return integer_value(*value, path(name), min, max);
}

int64_t RequestFields::integer(const char* name, int64_t otherwise, int64_t min, int64_t max) {
  return integer(name, min, max).value_or(otherwise);
}

double RequestFields::number(const char* name, double otherwise, double min, double max) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  const double v = value->is_number() ? value->get<double>() : std::nan("");
  if (!(v >= min && v <= max)) refuse(path(name), "expected a number from {} to {}, found {}", min, max, found(*value));
  return v;
}

std::string RequestFields::text(const char* name, const std::string& otherwise, size_t max_bytes) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(path(name), "expected a string, found {}", found(*value));
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) refuse(path(name), "expected at most {} bytes, found {}", max_bytes, text.size());
  return text;
}

std::vector<std::string> RequestFields::texts(const char* name, size_t max_items, size_t max_bytes) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  std::vector<std::string> out;
  const auto add = [&](const Json& item) {
    if (!item.is_string()) refuse(path(name), "expected a string or a list of strings, found {}", found(item));
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty() || text.size() > max_bytes)
      refuse(path(name), "expected strings of 1 to {} bytes, found one of {}", max_bytes, text.size());
    out.push_back(text);
  };
  if (!value->is_array()) {
    add(*value);
    return out;
  }
  if (value->size() > max_items) refuse(path(name), "expected at most {} strings, found {}", max_items, value->size());
  for (const Json& item : *value) add(item);
  return out;
}

std::vector<int32_t> RequestFields::ids(const char* name, size_t max_items, int64_t vocab_size) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  return ids_value(*value, path(name), max_items, vocab_size);
}

void RequestFields::only(const char* name, const char* default_json, const char* instead) {
  const Json* value = find(name);
  if (value == nullptr || *value == Json::parse(default_json)) return;
  if ((value->is_structured() && value->empty()) || *value == "") return;  // asks for nothing
  refuse(path(name), "{} is not supported{}{}", found(*value), *instead == '\0' ? "" : "; ", instead);
}

std::vector<std::string> RequestFields::unknown() const {
  std::vector<std::string> names;
  for (const auto& item : object_.items()) {
    const std::string& key = item.key();
    if (std::none_of(known_.begin(), known_.end(), [&](const char* k) { return key == k; }))
      names.push_back(prefix_ + key);
  }
  return names;
}

}  // namespace rw
