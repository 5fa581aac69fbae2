#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/fields.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/base/units.h"

using namespace rw;

namespace {

template <typename F>
std::string error_of(F&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

struct Toy {
  bool flag = false;
  int64_t count = 3;
  double rate = 0.5;
  std::string kind = "a";
  std::vector<std::string> files;
  FieldList fields() {
    return {{.name = "flag", .value = &flag, .help = "f"},
            {.name = "count", .value = &count, .help = "c", .min = 0, .max = 1 << 20, .is_size = true},
            {.name = "learning-rate", .value = &rate, .help = "r", .min = 0},
            {.name = "kind", .value = &kind, .help = "k", .choices = {"a", "b"}},
            {.name = "files", .value = &files, .help = "fs"}};
  }
};

}  // namespace

TEST_CASE("sizes are binary and take suffixes") {
  CHECK(parse_size("0", "x") == 0);
  CHECK(parse_size("12", "x") == 12);
  CHECK(parse_size("-3", "x") == -3);
  CHECK(parse_size("1_000", "x") == 1000);
  CHECK(parse_size("2K", "x") == 2048);
  CHECK(parse_size("2Ki", "x") == 2048);
  CHECK(parse_size("3MiB", "x") == 3 << 20);
  CHECK(parse_size("1G", "x") == 1 << 30);
  for (const char* bad :
       {"", "K", "1.5", "1_", "_1", "12X", "1KK", "99999999999999999999", "9000000T", "0x10", " 1", "1 "})
    CHECK(error_of([&] { parse_size(bad, "--memory"); }).find("--memory: expected a whole number") !=
          std::string::npos);
  CHECK(format_bytes(12 * 1024 * 1024) == "12.0 MiB");
  CHECK(format_count(124439808) == "124.4M");
  CHECK(format_seconds(3723) == "1:02:03");
  CHECK(error_of([] { divide_exact(7, 2, "global-batch", "ranks"); }) ==
        "global-batch = 7 is not divisible by ranks = 2");
}

TEST_CASE("digests are XXH3's and survive the way through hex") {
  CHECK(hash64("") == 0x2d06800538d394c2u);  // XXH3_64bits of the empty string, published test vector
  CHECK(hex64(0x00af) == "00000000000000af");
  CHECK(parse_hex64(hex64(hash64("abc"))) == hash64("abc"));
  CHECK(error_of([] { parse_hex64("xyz"); }) != "");
  StreamHash stream;
  stream.update("ab", 2);
  stream.update("c", 1);
  CHECK(stream.digest() == hash64("abc"));
}

TEST_CASE("json errors name file, key, expected and found") {
  const Json object = parse_json(R"({"a": 3, "b": "x", "c": 2.5, "d": null})", "f.json");
  CHECK(json_int(object, "a", "f.json") == 3);
  CHECK(json_int(object, "d", "f.json", 9) == 9);
  CHECK(json_number(object, "c", "f.json") == 2.5);
  CHECK(error_of([&] { json_int(object, "b", "f.json"); }) == "f.json: key \"b\": expected an integer, found \"x\"");
  CHECK(error_of([&] { json_int(object, "c", "f.json"); }) == "f.json: key \"c\": expected an integer, found 2.5");
  CHECK(error_of([&] { json_string(object, "zz", "f.json"); }) == "f.json: key \"zz\" is missing; expected a string");
  CHECK(error_of([] { parse_json("{\"a\": ", "g.json"); }).find("g.json: expected JSON") == 0);
  CHECK(error_of([] { parse_json(std::string(100000, '['), "deep.json"); }).find("deep.json") == 0);
}

TEST_CASE("fields are set from text and from TOML, and unknown keys name the nearest") {
  Toy toy;
  const FieldList list = toy.fields();
  set_field(list[1], "4Ki", "--");
  CHECK(toy.count == 4096);
  CHECK(error_of([&] { set_field(list[1], "-1", "--"); }).find("--count: expected a whole number from 0 to") == 0);
  CHECK(error_of([&] { set_field(list[2], "nan", "--"); }).find("--learning-rate: expected a number of at least 0") ==
        0);
  CHECK(error_of([&] { set_field(list[3], "c", "--"); }) == "--kind: expected one of a, b, found \"c\"");
  CHECK(error_of([&] { set_field(list[0], "maybe", "--"); }).find("--flag: expected true or false") == 0);

  read_toml(list,
            "flag = true\ncount = 7\nlearning-rate = 1\nkind = \"b\"\nfiles = [\"x\", \"y:0.3\"]\n[plan]\nz = 1\n",
            "run.toml", {"plan"});
  CHECK(toy.flag);
  CHECK(toy.count == 7);
  CHECK(toy.rate == 1.0);
  CHECK(toy.files == std::vector<std::string>{"x", "y:0.3"});
  CHECK(error_of([&] { read_toml(list, "\nlerning-rate = 1", "run.toml", {}); }) ==
        "run.toml:2: unknown key \"lerning-rate\"; did you mean \"learning-rate\"?");
  CHECK(error_of([&] { read_toml(list, "count = \n", "run.toml", {}); }).find("run.toml:1") == 0);
  CHECK(error_of([&] { read_toml(list, "kind = 3", "run.toml", {}); }) ==
        "run.toml:1: kind: expected a string in quotes, found \"3\"");
  std::string every;  // "auto" or a number
  const FieldList either = {{.name = "every", .value = &every, .help = "", .or_number = true}};
  read_toml(either, "every = 200", "run.toml", {});
  CHECK(every == "200");
  read_toml(either, "every = \"auto\"", "run.toml", {});
  CHECK(every == "auto");
  CHECK(error_of([&] { read_toml(either, "every = 1.5", "run.toml", {}); }).find("a string in quotes") !=
        std::string::npos);
  CHECK(error_of([&] { read_toml(list, "[plan]\nx = 1", "run.toml", {}); }).find("unknown key \"plan\"") !=
        std::string::npos);

  Toy copy;
  copy.kind = "x";
  read_toml(copy.fields(), write_toml(list), "again.toml", {});
  CHECK(copy.count == toy.count);
  CHECK(copy.rate == toy.rate);
  CHECK(copy.files == toy.files);
  CHECK(fields_json(list)["learning_rate"] == 1.0);
}
