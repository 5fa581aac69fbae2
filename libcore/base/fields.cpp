#include "libcore/base/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/toml_table.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

std::string label(const Field& f, const std::string& where) {
  return where == "--" ? "--" + f.name : where + ": " + f.name;
}

[[noreturn]] void refuse(const Field& f, const std::string& where, const std::string& expected,
                         const std::string& found) {
  fail(ErrorKind::usage, "{}: expected {}, found \"{}\"", label(f, where), expected, found);
}

std::string bounds_text(const Field& f, const char* noun) {
  const bool low = std::isfinite(f.min), high = std::isfinite(f.max);
  if (low && high) return fmt::format("{} from {} to {}", noun, f.min, f.max);
  if (low) return fmt::format("{} of at least {}", noun, f.min);
  if (high) return fmt::format("{} of at most {}", noun, f.max);
  return noun;
}

void check_bounds(const Field& f, double v, const char* noun, const std::string& text, const std::string& where) {
  if (!(v >= f.min && v <= f.max)) refuse(f, where, bounds_text(f, noun), text);
}

std::string join(const std::vector<std::string>& items, const char* separator) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : separator) + item;
  return out;
}

void set_bool(const Field& f, bool* value, const std::string& text, const std::string& where) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") *value = true;
  else if (text == "false" || text == "0" || text == "off" || text == "no") *value = false;
  else refuse(f, where, "true or false", text);
}

void set_int(const Field& f, int64_t* value, const std::string& text, const std::string& where) {
  const int64_t v = parse_size(text, label(f, where));
  check_bounds(f, static_cast<double>(v), "a whole number", text, where);
  *value = v;
}

void set_double(const Field& f, double* value, const std::string& text, const std::string& where) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(v))
    refuse(f, where, bounds_text(f, "a number"), text);
  check_bounds(f, v, "a number", text, where);
  *value = v;
}

void set_string(const Field& f, std::string* value, const std::string& text, const std::string& where) {
  if (!f.choices.empty() && std::find(f.choices.begin(), f.choices.end(), text) == f.choices.end())
    refuse(f, where, "one of " + join(f.choices, ", "), text);
  *value = text;
}

std::string double_text(double v) { return fmt::format("{}", v); }

}  // namespace

void set_field(const Field& f, const std::string& text, const std::string& where) {
  if (auto* b = std::get_if<bool*>(&f.value)) return set_bool(f, *b, text, where);
  if (auto* i = std::get_if<int64_t*>(&f.value)) return set_int(f, *i, text, where);
  if (auto* d = std::get_if<double*>(&f.value)) return set_double(f, *d, text, where);
  if (auto* s = std::get_if<std::string*>(&f.value)) return set_string(f, *s, text, where);
  std::get<std::vector<std::string>*>(f.value)->push_back(text);
}

std::string field_text(const Field& f) {
  if (auto* b = std::get_if<bool*>(&f.value)) return **b ? "true" : "false";
  if (auto* i = std::get_if<int64_t*>(&f.value)) return std::to_string(**i);
  if (auto* d = std::get_if<double*>(&f.value)) return double_text(**d);
  if (auto* s = std::get_if<std::string*>(&f.value)) return **s;
  return join(*std::get<std::vector<std::string>*>(f.value), " ");
}

const Field* find_field(const FieldList& list, const std::string& name) {
  const auto it = std::find_if(list.begin(), list.end(), [&](const Field& f) { return f.name == name; });
  return it == list.end() ? nullptr : &*it;
}

void read_toml(const FieldList& list, const std::string& text, const std::string& where,
               const std::vector<std::string>& skip_tables, Json* skipped) {
  const TomlTable table(text, where);
  table.read(list, skip_tables);
  for (const std::string& name : skip_tables)
    if (skipped != nullptr && table.has(name)) (*skipped)[name] = table.json(name);
}

std::string write_toml(const FieldList& list) {
  std::string out;
  for (const Field& f : list) {
    if (std::holds_alternative<std::string*>(f.value)) {
      out += fmt::format("{} = {}\n", f.name, toml_quoted(field_text(f)));
    } else if (auto* items = std::get_if<std::vector<std::string>*>(&f.value)) {
      std::vector<std::string> quoted;
      for (const std::string& item : **items) quoted.push_back(toml_quoted(item));
      out += fmt::format("{} = [{}]\n", f.name, join(quoted, ", "));
    } else {
      out += fmt::format("{} = {}\n", f.name, field_text(f));
    }
  }
  return out;
}

Json fields_json(const FieldList& list) {
  Json out = Json::object();
  for (const Field& f : list) {
    std::string key = f.name;
    std::replace(key.begin(), key.end(), '-', '_');
    std::visit([&](const auto* value) { out[key] = *value; }, f.value);
  }
  return out;
}

std::string fields_markdown(const FieldList& list) {
  std::string out = "| flag = config key | default | meaning |\n|---|---|---|\n";
  for (const Field& f : list) {
    std::string help = f.help;
    if (!f.choices.empty()) help += " (" + join(f.choices, ", ") + ")";
    const std::string value = field_text(f);
    out += fmt::format("| `--{}` | {} | {} |\n", f.name, value.empty() ? "" : "`" + value + "`", help);
  }
  return out;
}

}  // namespace rw
