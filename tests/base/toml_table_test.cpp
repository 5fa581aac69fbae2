#include "libcore/base/toml_table.h"

#include <doctest/doctest.h>

#include "libcore/base/error.h"

namespace rw {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    return e.what();
  }
  return "accepted";
}

TEST_CASE("tables of one kind, in the file's order, with their places") {
  const TomlTable top(
      "title = 'x'\n[t.zebra]\nn = 1\n[t.ant]\nn = 2\n[[row]]\nn = 3\n[[row.cell]]\nn = 4\n[[row]]\n"
      "[one]\nn = 5\nrows = [[1, 2.5], [3, 4]]\n",
      "f.toml");
  std::string title;
  top.read({{.name = "title", .value = &title, .help = ""}}, {"t", "row", "one"});
  CHECK(title == "x");
  int64_t n = 0;
  const FieldList fields = {{.name = "n", .value = &n, .help = "", .max = 4}};
  const auto named = top.named_tables("t");
  REQUIRE(named.size() == 2);
  CHECK(named[0].first == "zebra");
  CHECK(named[1].first == "ant");
  named[1].second.read(fields);
  CHECK(n == 2);
  CHECK(named[1].second.place("n") == "f.toml:5: [t.ant] n");
  CHECK(named[1].second.place("absent") == "f.toml:4: [t.ant] absent");
  const auto rows = top.tables("row");
  REQUIRE(rows.size() == 2);
  CHECK(rows[1].tables("cell").empty());
  const auto cells = rows[0].tables("cell");
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].has("n"));
  CHECK_FALSE(cells[0].has("m"));
  CHECK(cells[0].place("n") == "f.toml:9: [row.cell] n");
  const auto one = top.tables("one");
  REQUIRE(one.size() == 1);
  CHECK(error_of([&] { one[0].read(fields, {"rows"}); }).find("f.toml:12: [one]: n: expected a whole number") == 0);
  CHECK(one[0].number_rows("rows", 2) == std::vector<std::vector<double>>{{1, 2.5}, {3, 4}});
  CHECK(one[0].number_rows("absent", 2).empty());
  CHECK(error_of([&] {
          one[0].number_rows("rows", 3);
        }).find("f.toml:13: [one] rows: expected an array of arrays of 3") == 0);
  CHECK(error_of([&] { one[0].number_rows("n", 3); }).find("f.toml:12: [one] n: expected") == 0);
  CHECK(top.tables("absent").empty());
  CHECK(top.named_tables("absent").empty());
}

TEST_CASE("a table's errors") {
  const TomlTable top("a = 1\nb = [1]\nc = [[1]]\n", "f.toml");
  CHECK(error_of([&] { top.read({}, {"a", "b", "c"}); }) == "f.toml:1: a: expected a table or an array, found \"1\"");
  CHECK(error_of([&] { TomlTable("lngth = [1]", "g.toml").read({}, {"length"}); }) ==
        "g.toml:1: unknown key \"lngth\"; did you mean \"length\"?");
  CHECK(error_of([&] { top.tables("a"); }) == "f.toml:1: a: expected tables [[a]], found \"1\"");
  CHECK(error_of([&] { top.tables("b"); }) == "f.toml:2: b: expected tables [[b]], found \"1\"");
  CHECK(error_of([&] { top.named_tables("c"); }) == "f.toml:3: c: expected tables [c.NAME], found \"an array\"");
  CHECK(error_of([&] { TomlTable("a = \n", "g.toml"); }).find("g.toml:1:") == 0);
  CHECK(error_of([&] { TomlTable("[a]\n[a]\n", "g.toml"); }).find("g.toml:2:") == 0);
}

TEST_CASE("a quoted string is read back") {
  for (const std::string& text : {std::string("plain"), std::string("q\" b\\ \n\t\x01\x7f"), std::string()}) {
    std::string back = "other";
    TomlTable("s = " + toml_quoted(text), "q").read({{.name = "s", .value = &back, .help = ""}});
    CHECK(back == text);
  }
}

}  // namespace
}  // namespace rw
