// The arithmetic of dbench comm: bandwidth factors, sizes, rows.
#include "libcore/bench/comm/comm_table.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

using namespace rw;

TEST_CASE("bus bandwidth factors are those of nccl-tests") {
  const auto near = [](double x) { return doctest::Approx(x).epsilon(1e-12); };
  CHECK(busbw_factor(BenchOp::all_reduce, 1) == 0);
  CHECK(busbw_factor(BenchOp::all_reduce, 2) == 1);
  CHECK(busbw_factor(BenchOp::all_reduce, 8) == near(1.75));
  CHECK(busbw_factor(BenchOp::reduce_scatter, 8) == near(0.875));
  CHECK(busbw_factor(BenchOp::all_gather, 4) == near(0.75));
  CHECK(busbw_factor(BenchOp::broadcast, 7) == 1);
  CHECK(busbw_factor(BenchOp::send_recv, 7) == 1);
  CommCase c{.op = BenchOp::all_reduce, .bytes = 1000000, .ranks = 4};
  const CommTiming t{.us = 500};
  CHECK(algbw_gb_s(c, t) == near(2.0));  // 1 MB in half a millisecond
  CHECK(busbw_gb_s(c, t) == near(3.0));
  CHECK(algbw_gb_s(c, {.us = 0}) == 0);
  CHECK(busbw_factor(BenchOp::barrier, 7) == 0);
}

TEST_CASE("sizes") {
  CHECK(bench_sizes({1024, 8192, 2}, 4) == std::vector<int64_t>{1024, 2048, 4096, 8192});
  CHECK(bench_sizes({1000, 5000, 2}, 12) == std::vector<int64_t>{996, 1992, 3996});  // whole elements for three ranks
  CHECK(bench_sizes({1, 40, 2}, 16) == std::vector<int64_t>{16, 32});                // none twice, none 0
  CHECK(bench_sizes({4, 4, 10}, 4) == std::vector<int64_t>{4});
  CHECK(bench_sizes({8, 4, 2}, 4).empty());
  CHECK(bench_sizes({100, 1000, 2.5}, 1) == std::vector<int64_t>{100, 250, 625});
}

TEST_CASE("names") {
  for (BenchOp op : kBenchOps) CHECK(find_bench_op(bench_op_name(op)) == op);
  CHECK_FALSE(find_bench_op("alltoall").has_value());
}

TEST_CASE("a row has as many columns as the head, and a JSON line a timing") {
  CommCase c{.op = BenchOp::all_gather,
             .way = "direct",
             .is_shared = true,
             .t = DType::bf16,
             .bytes = 4096,
             .count = 512,
             .ranks = 4,
             .nodes = 2};
  c.in_place = CommTiming{.us = 10, .us_min = 9, .us_max = 12, .samples = 20, .wrong = 0};
  const auto words = [](const std::string& text) {
    std::istringstream in(text);
    std::string word;
    int n = 0;
    while (in >> word) ++n;
    return n;
  };
  const std::string head = comm_table_head(4, 2, "mpi");
  const std::string last = head.substr(head.rfind('\n', head.size() - 2) + 1);
  CHECK(words(last) - 1 == words(comm_table_line(c)));  // the # counts as a word
  CHECK(comm_table_head(1, 1, "self").find("# 1 rank on 1 node,") == 0);
  c.segment_bytes = 256 << 10;
  CHECK(comm_table_line(c).find(" 256K ") != std::string::npos);
  c.segment_bytes = 0;

  std::vector<Json> lines = comm_case_json(c);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["in_place"] == true);
  CHECK(lines[0]["bytes"] == 4096);
  CHECK(lines[0]["memory"] == "shared");
  CHECK(lines[0]["root"] == -1);
  CHECK(lines[0]["busbw_gb_s"].get<double>() == doctest::Approx(4096 / 10e-6 * 0.75 * 1e-9));
  CHECK(lines[0]["wrong"] == 0);
  c.out_of_place = CommTiming{.us = 10, .wrong = -1};
  lines = comm_case_json(c);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["in_place"] == false);
  CHECK(lines[0]["wrong"].is_null());
}

TEST_CASE("a barrier has a time and no bandwidth; step lists say what they send") {
  CommCase c{.op = BenchOp::barrier, .way = "direct", .ranks = 3};
  c.in_place = CommTiming{.us = 3, .wrong = -1};
  const Json line = comm_case_json(c).at(0);
  CHECK(line["us"] == 3);
  CHECK(line["algbw_gb_s"].is_null());
  CHECK(line["busbw_gb_s"].is_null());
  CHECK_FALSE(line.contains("sent_bytes"));
  c.sent = SentCount{.bytes = 12, .messages = 4};
  CHECK(comm_case_json(c).at(0)["sent_bytes"] == 12);
  CHECK(comm_case_json(c).at(0)["sent_messages"] == 4);
}
