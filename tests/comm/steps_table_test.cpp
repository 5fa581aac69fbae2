// The table that picks all-reduce algorithms: reading, writing, picking, and messages about tables that are wrong.
#include "libcore/comm/steps_table.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "libcore/base/error.h"

using namespace rw;

namespace {

constexpr const char* kText = R"({"format": "rankwright comm table", "version": 1, "all_reduce": [
  {"ranks": 2, "nodes": 1, "max_bytes": 67108864, "algorithm": "hierarchical"},
  {"ranks": 8, "nodes": 4, "max_bytes": 1048576, "algorithm": "tree", "segment_bytes": 32768, "us": 80.5},
  {"ranks": 8, "nodes": 4, "max_bytes": 8192, "algorithm": "doubling"},
  {"ranks": 8, "nodes": 4, "max_bytes": 67108864, "algorithm": "mpi"},
  {"ranks": 32, "nodes": 4, "max_bytes": 67108864, "algorithm": "direct"}]})";

CommTable table_of(const std::string& text) { return parse_comm_table(parse_json(text, "t.json"), "t.json"); }
std::string picked(const CommTable& t, int64_t ranks, int64_t nodes, int64_t bytes) {
  return way_name(pick_all_reduce(t, ranks, nodes, bytes).way);
}

std::string error_of(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  try {
    table_of(text);
  } catch (const Error& e) {
    return std::to_string(exit_code(e.kind())) + " " + e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a table picks by ranks, nodes and bytes") {
  const CommTable t = table_of(kText);
  CHECK(picked(t, 8, 4, 0) == "doubling");
  CHECK(picked(t, 8, 4, 8192) == "doubling");
  CHECK(picked(t, 8, 4, 8193) == "tree");
  CHECK(pick_all_reduce(t, 8, 4, 100000).segment_bytes == 32768);
  CHECK(picked(t, 8, 4, 2 << 20) == "mpi");
  CHECK(picked(t, 8, 4, int64_t{1} << 40) == "mpi");  // beyond the largest measured
  CHECK(picked(t, 9, 4, 100) == "doubling");          // the nearest measured job
  CHECK(picked(t, 6, 3, 100) == "doubling");
  CHECK(picked(t, 16, 4, 100) == "doubling");  // as near to 8 as to 32: the smaller
  CHECK(picked(t, 30, 5, 100) == "direct");
  CHECK(picked(t, 3, 1, 100) == "hierarchical");
  // Rows of several nodes are nothing to ranks that share memory.
  CommTable between = t;
  std::erase_if(between.all_reduce, [](const CommTableRow& r) { return r.nodes == 1; });
  CHECK(picked(between, 2, 1, 100) == "direct");
  CHECK(picked(between, 2, 2, 100) == "doubling");
}

TEST_CASE("without rows rules pick") {
  CHECK(picked({}, 4, 1, 100) == "direct");
  CHECK(picked({}, 8, 4, 1 << 26) == "direct");
  CHECK(picked({}, 8, 8, 1 << 26) == "direct");
  CHECK(picked({}, 128, 16, 100) == "hierarchical");
  CHECK(picked({}, 16, 16, 100) == "doubling");
  CHECK(picked({}, 16, 16, 100000) == "tree");
  CHECK(picked({}, 16, 16, 1 << 26) == "ring");
}

TEST_CASE("what is written reads back to the same") {
  const CommTable t = table_of(kText);
  CHECK(parse_comm_table(parse_json(comm_table_json(t).dump(), "x"), "x").all_reduce == t.all_reduce);
  CHECK(t.all_reduce[1].us == 80.5);
  CHECK(t.all_reduce[0].pick.segment_bytes == 256 << 10);
  for (const std::string& name : way_names()) {
    REQUIRE(find_way(name).has_value());
    CHECK(name == way_name(*find_way(name)));
  }
  CHECK_FALSE(find_way("auto").has_value());
}

TEST_CASE("wrong tables are input errors that name the place") {
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    return text.starts_with("2 t.json") && text.find(part) != std::string::npos;
  };
  CHECK(has(error_of(kText, "rankwright comm table", "nccl"), "format: expected"));
  CHECK(has(error_of(kText, "\"version\": 1", "\"version\": 2"), "version: expected 1, found 2"));
  CHECK(has(error_of(kText, "\"tree\"", "\"star\""), "all_reduce[1]: algorithm: expected one of direct, mpi, ring"));
  CHECK(has(error_of(kText, "\"nodes\": 1", "\"nodes\": 3"), "all_reduce[0]: expected ranks >= nodes"));
  CHECK(has(error_of(kText, "\"max_bytes\": 8192", "\"max_bytes\": \"8K\""), "all_reduce[2]"));
  CHECK(has(error_of(kText, "\"all_reduce\": [", "\"all\": ["), "expected a list of rows, found nothing"));
  CHECK(has(error_of(kText, "\"ranks\": 32, ", ""), "all_reduce[4]: key \"ranks\" is missing"));
}
