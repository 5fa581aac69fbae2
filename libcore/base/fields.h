// One field list per spec feeds the command line, TOML, JSON and --help (DESIGN section 6). A Field points at a member
// of a spec; the list is made by the spec's `fields(spec)`.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

struct Field {
  std::string name;  // "global-batch": flag --global-batch, TOML key global-batch, JSON key global_batch
  std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*> value;
  std::string help;                       // one line, with the unit
  std::vector<std::string> choices = {};  // of a string
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool is_size = false;    // an integer that takes K, M, Ki, ...
  bool or_number = false;  // a string that may be a whole number ("auto" or 4): TOML needs no quotes for that
  std::string group = {};  // heading in --help and in the README's table
};
using FieldList = std::vector<Field>;

// Sets a field from text; Error{usage} names the field, what is expected and what was found. `where` is a file or "--".
void set_field(const Field& field, const std::string& text, const std::string& where);
std::string field_text(const Field& field);  // its value, as a flag would take it
const Field* find_field(const FieldList& list, const std::string& name);

// TOML text -> fields; unknown keys are errors with the nearest known one; tables named in `skip_tables` are passed
// over; with `skipped`, each goes there under its name as JSON.
void read_toml(const FieldList& list, const std::string& text, const std::string& where,
               const std::vector<std::string>& skip_tables, Json* skipped = nullptr);
std::string write_toml(const FieldList& list);
Json fields_json(const FieldList& list);
std::string fields_markdown(const FieldList& list);  // the README's table

}  // namespace rw
