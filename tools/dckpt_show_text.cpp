#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "libcore/base/units.h"
#include "libcore/spec/box.h"
#include "tools/dckpt_show.h"
#include "tools/dckpt_text.h"

namespace rw {
namespace {

constexpr size_t kShownText = 100;

std::string text_of(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : json_line(value);
  if (text.size() <= kShownText) return printable_line(text);
  if (value.is_array()) return fmt::format("[{} values]", value.size());
  return printable_line(text.substr(0, kShownText)) + "...";
}

void print_pair(const std::string& key, const std::string& text) {
  fmt::print("  {:<22}{}\n", printable_line(key), text);
}

// Nested objects by their dotted keys; what is told elsewhere, or is long and of use to programs only, by its size.
void print_object(const Json& object, const std::string& prefix) {
  for (const auto& [key, value] : object.items()) {
    if (prefix.empty() && key == "model_config") continue;  // the line "model"
    if (prefix.empty() && key == "config") {
      print_pair(key, fmt::format("{} settings (--json shows them; dckpt diff compares them)", value.size()));
    } else if (key == "layout" && value.is_object() && value.contains("text")) {
      print_pair(prefix + key, text_of(value["text"]));
    } else if (value.is_object()) {
      print_object(value, prefix + key + ".");
    } else {
      print_pair(prefix + key, text_of(value));
    }
  }
}

void print_head(const Json& j) {
  fmt::print("{}  {}\n", j["kind"].get<std::string>(), printable_line(j["path"].get<std::string>()));
  if (j.contains("steps")) fmt::print("steps      {}\n", text_of(j["steps"]));
  if (j.contains("step")) fmt::print("step       {}\n", j["step"].get<int64_t>());
  if (j.contains("created")) fmt::print("created    {}\n", text_of(j["created"]));
  if (j.contains("model")) {
    const Json& m = j["model"];
    fmt::print("model      {}, {} parameters, {} layers of width {}, {} heads ({} kv), ffn {}, vocabulary {}\n",
               m["family"].get<std::string>(), format_count(m["params"].get<double>()), m["layers"].get<int64_t>(),
               m["width"].get<int64_t>(), m["heads"].get<int64_t>(), m["kv_heads"].get<int64_t>(),
               m["ffn"].get<int64_t>(), m["vocab_size"].get<int64_t>());
  }
  fmt::print("bytes      weights {}, optimizer {}\n", bytes_text(j["bytes"]["weights"].get<int64_t>()),
             bytes_text(j["bytes"]["optimizer"].get<int64_t>()));
  if (j.contains("files")) fmt::print("files      {}\n", j["files"].get<int64_t>());
  for (const char* key : {"identity", "state"}) {
    if (!j.contains(key) || j[key].empty()) continue;
    fmt::print("{}\n", key);
    print_object(j[key], "");
  }
  if (j.contains("ignored")) {
    for (const Json& line : j["ignored"]) fmt::print("ignored    {}\n", printable_line(line.get<std::string>()));
  }
}

std::string number(const Json& stats, const char* key) {
  return stats[key].is_null() ? "-" : fmt::format("{:.6g}", stats[key].get<double>());
}

void print_tensors(const Json& tensors) {
  constexpr auto kRight = TextTable::Align::right;
  bool pieces = false, stats = false;
  for (const Json& t : tensors) {
    pieces = pieces || t.contains("pieces");
    stats = stats || t.contains("stats");
  }
  std::vector<TextTable::Column> columns = {{"NAME"}, {"DTYPE"}, {"SHAPE"}};
  if (pieces) columns.push_back({"PIECES", kRight});
  if (stats) {
    for (const char* heading : {"MIN", "MAX", "MEAN", "STD", "ZERO", "NAN", "INF"})
      columns.push_back({heading, kRight});
  }
  TextTable table(columns);
  for (const Json& t : tensors) {
    std::vector<std::string> cells = {printable_line(t["name"].get<std::string>()), t["dtype"].get<std::string>(),
                                      shape_text(t["shape"].get<Shape>())};
    if (pieces) cells.push_back(std::to_string(t["pieces"].size()));
    if (stats && t["stats"].contains("error")) {
      cells.insert(cells.end(), 7, "-");
    } else if (stats) {
      const Json& s = t["stats"];
      for (const char* key : {"min", "max", "mean", "std"}) cells.push_back(number(s, key));
      for (const char* key : {"zero", "nan", "inf"}) cells.push_back(std::to_string(s[key].get<int64_t>()));
    }
    table.row(std::move(cells));
  }
  table.print("  ");
}

void print_pieces(const Json& tensors) {
  for (const Json& t : tensors) {
    if (!t.contains("pieces")) continue;
    fmt::print("{}\n", printable_line(t["name"].get<std::string>()));
    for (const Json& p : t["pieces"]) {
      fmt::print("  {:<32} {} at {}\n", box_text({p["offset"].get<Shape>(), p["extent"].get<Shape>()}),
                 printable_line(p["file"].get<std::string>()), p["at"].get<int64_t>());
    }
  }
}

}  // namespace

void print_show_text(const Json& found, ShowPieces pieces) {
  print_head(found);
  if (!found.contains("tensors")) return;
  fmt::print("tensors    {}\n", found["tensors"].size());
  print_tensors(found["tensors"]);
  if (pieces == ShowPieces::list) print_pieces(found["tensors"]);
}

}  // namespace rw
