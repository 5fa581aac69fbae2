// A TOML text as tables whose keys go to fields: for files that have tables of one kind more than once.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/fields.h"

namespace rw {

// A table of a parsed text. All errors are Error{usage} and name file, line, table and key.
class TomlTable {
 public:
  // The top level of `text`, which came from `where`.
  TomlTable(const std::string& text, const std::string& where);

  // Keys -> fields. Unknown keys are errors with the nearest known one; `others` are tables and arrays that are read
  // otherwise.
  void read(const FieldList& list, const std::vector<std::string>& others = {}) const;
  // The tables [key.NAME] with their names, in the file's order.
  std::vector<std::pair<std::string, TomlTable>> named_tables(const std::string& key) const;
  // The tables [[key]], or the one table [key].
  std::vector<TomlTable> tables(const std::string& key) const;
  // An array of arrays of `width` numbers each.
  std::vector<std::vector<double>> number_rows(const std::string& key, size_t width) const;
  bool has(const std::string& key) const;
  Json json(const std::string& key) const;  // what stands there, as JSON; null when nothing does
  // "file:12: [device.h100] memory", the line of the key where it stands, else that of the table.
  std::string place(const std::string& key) const;

 private:
  struct At;  // the parsed text, and this table in it
  TomlTable(std::shared_ptr<const At> at, std::string where, std::string path);
  TomlTable under(const void* table, const std::string& path) const;
  std::string path_of(const std::string& key) const;

  std::shared_ptr<const At> at_;
  std::string where_, path_;  // path: "device.h100"; empty at the top level
};

// "text" as a TOML string.
std::string toml_quoted(const std::string& text);

}  // namespace rw
