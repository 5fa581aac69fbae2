#include "libcore/base/toml_table.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libcore/base/error.h"

namespace rw {

struct TomlTable::At {
  std::shared_ptr<const toml::table> root;
  const toml::table* table;
};

namespace {

std::string scalar_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* d = node.as_floating_point()) return fmt::format("{}", d->get());
  if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  if (node.is_table()) return "a table";
  return node.is_array() ? "an array" : "a date or time";
}

[[noreturn]] void refuse(const std::string& place, const std::string& expected, const std::string& found) {
  fail(ErrorKind::usage, "{}: expected {}, found \"{}\"", place, expected, found);
}

void set_list(std::vector<std::string>* list, const toml::node& node, const std::string& place) {
  list->clear();
  if (const toml::array* array = node.as_array()) {
    for (const toml::node& item : *array) {
      if (!item.is_string()) refuse(place, "an array of strings", scalar_text(item));
      list->push_back(item.as_string()->get());
    }
    return;
  }
  if (!node.is_string()) refuse(place, "a string or an array of strings", scalar_text(node));
  list->push_back(node.as_string()->get());
}

// `before`: file, line and table, as set_field takes it.
void set_from_toml(const Field& f, const toml::node& node, const std::string& before) {
  const std::string place = before + ": " + f.name;
  if (auto* list = std::get_if<std::vector<std::string>*>(&f.value)) return set_list(*list, node, place);
  if (!node.is_value()) refuse(place, "a single value", scalar_text(node));
  const bool is_string = std::holds_alternative<std::string*>(f.value);
  if (is_string && !node.is_string() && !(f.or_number && node.is_integer()))
    refuse(place, "a string in quotes", scalar_text(node));
  if (std::holds_alternative<bool*>(f.value) && !node.is_boolean()) refuse(place, "true or false", scalar_text(node));
  if (std::holds_alternative<double*>(f.value) && !node.is_number()) refuse(place, "a number", scalar_text(node));
  if (std::holds_alternative<int64_t*>(f.value) && !node.is_integer() && !node.is_string())
    refuse(place, "a whole number", scalar_text(node));
  set_field(f, scalar_text(node), before);
}

std::shared_ptr<const toml::table> parse(const std::string& text, const std::string& where) {
  try {
    return std::make_shared<const toml::table>(toml::parse(text, where));
  } catch (const toml::parse_error& e) {
    fail(ErrorKind::usage, "{}:{}:{}: expected TOML; {}", where, e.source().begin.line, e.source().begin.column,
         e.description());
  }
}

}  // namespace

TomlTable::TomlTable(const std::string& text, const std::string& where) : where_(where) {
  const auto root = parse(text, where);
  at_ = std::make_shared<const At>(At{root, root.get()});
}

TomlTable::TomlTable(std::shared_ptr<const At> at, std::string where, std::string path)
    : at_(std::move(at)), where_(std::move(where)), path_(std::move(path)) {}

TomlTable TomlTable::under(const void* table, const std::string& path) const {
  return {std::make_shared<const At>(At{at_->root, static_cast<const toml::table*>(table)}), where_, path};
}

std::string TomlTable::path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

void TomlTable::read(const FieldList& list, const std::vector<std::string>& others) const {
  std::vector<std::string> known = others;
  for (const Field& f : list) known.push_back(f.name);
  for (const auto& [key, node] : *at_->table) {
    const std::string name(key.str());
    const std::string line = fmt::format("{}:{}", where_, key.source().begin.line);
    const Field* field = find_field(list, name);
    if (field == nullptr && !node.is_value() && std::find(others.begin(), others.end(), name) != others.end()) continue;
    const std::string before = path_.empty() ? line : fmt::format("{}: [{}]", line, path_);
    if (field == nullptr) {
      const std::string near = nearest(name, known);
      if (near == name) refuse(before + ": " + name, "a table or an array", scalar_text(node));
      fail(ErrorKind::usage, "{}: unknown key \"{}\"{}", before, name,
           near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
    }
    set_from_toml(*field, node, before);
  }
}

std::vector<std::pair<std::string, TomlTable>> TomlTable::named_tables(const std::string& key) const {
  const toml::node* node = at_->table->get(key);
  if (node == nullptr) return {};
  if (!node->is_table()) refuse(place(key), fmt::format("tables [{}.NAME]", key), scalar_text(*node));
  std::vector<std::pair<toml::source_position, std::string>> order;
  const toml::table& all = *node->as_table();
  for (const auto& [name, item] : all) {
    if (!item.is_table()) refuse(place(key), fmt::format("tables [{}.NAME]", key), std::string(name.str()));
    order.emplace_back(name.source().begin, name.str());
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::pair<std::string, TomlTable>> out;
  for (const auto& [position, name] : order)
    out.emplace_back(name, under(all.get(name)->as_table(), path_of(key) + "." + name));
  return out;
}

std::vector<TomlTable> TomlTable::tables(const std::string& key) const {
  const toml::node* node = at_->table->get(key);
  if (node == nullptr) return {};
  const std::string path = path_of(key);
  if (const toml::table* one = node->as_table()) return {under(one, path)};
  std::vector<TomlTable> out;
  const toml::array* array = node->as_array();
  if (array == nullptr) refuse(place(key), fmt::format("tables [[{}]]", path), scalar_text(*node));
  for (const toml::node& item : *array) {
    if (!item.is_table()) refuse(place(key), fmt::format("tables [[{}]]", path), scalar_text(item));
    out.push_back(under(item.as_table(), path));
  }
  return out;
}

Json TomlTable::json(const std::string& key) const {
  const toml::node* node = at_->table->get(key);
  if (node == nullptr) return nullptr;
  std::stringstream text;
  node->visit([&](const auto& n) { text << toml::json_formatter(n); });
  return Json::parse(text.str());
}

std::vector<std::vector<double>> TomlTable::number_rows(const std::string& key, size_t width) const {
  const std::string expected = fmt::format("an array of arrays of {} numbers", width);
  const toml::node* node = at_->table->get(key);
  if (node == nullptr) return {};
  if (!node->is_array()) refuse(place(key), expected, scalar_text(*node));
  std::vector<std::vector<double>> rows;
  for (const toml::node& item : *node->as_array()) {
    const toml::array* row = item.as_array();
    if (row == nullptr) refuse(place(key), expected, scalar_text(item));
    if (row->size() != width) refuse(place(key), expected, fmt::format("one of {}", row->size()));
    rows.emplace_back();
    for (const toml::node& number : *row) {
      const auto value = number.value<double>();
      if (!number.is_number() || !value || !std::isfinite(*value)) refuse(place(key), expected, scalar_text(number));
      rows.back().push_back(*value);
    }
  }
  return rows;
}

bool TomlTable::has(const std::string& key) const { return at_->table->contains(key); }

std::string TomlTable::place(const std::string& key) const {
  toml::source_region source = at_->table->source();
  for (const auto& [name, node] : *at_->table)
    if (name.str() == key) source = name.source();
  const std::string table = path_.empty() ? "" : fmt::format("[{}] ", path_);
  return fmt::format("{}:{}: {}{}", where_, std::max<toml::source_index>(source.begin.line, 1), table, key);
}

std::string toml_quoted(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    else out += c;
  }
  return out + "\"";
}

}  // namespace rw
