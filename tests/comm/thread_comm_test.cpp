// Ranks as threads: every check for 1 to 8 ranks, and what happens when ranks fail, stay away or disagree.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/comm/comm.h"
#include "tests/comm/comm_checks.h"

using namespace rw;

namespace {

std::string message_of(int ranks, const std::function<void(Comm&)>& body) {
  try {
    run_thread_ranks(ranks, body);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <typename F>
void for_ranks(F check) {
  for (int n : {1, 2, 3, 4, 5, 8}) {
    CAPTURE(n);
    run_thread_ranks(n, [&](Comm& comm) {
      comm.set_timeout(60);
      check(comm);
    });
  }
}

}  // namespace

TEST_CASE("values and texts") { for_ranks(checks::values_and_texts); }
TEST_CASE("all_reduce is exact on integer-valued data, staged and in place") { for_ranks(checks::all_reduce_exact); }
TEST_CASE("all_reduce adds in rank order") {
  for_ranks([](Comm& c) { checks::all_reduce_order(c, {}); });
}
TEST_CASE("a NaN is never lost") { for_ranks(checks::all_reduce_nan); }
TEST_CASE("sums of bf16 and f16 are added in f32 and rounded once") {
  for_ranks([](Comm& c) { checks::sums_of_16_bits(c, {}); });
}
TEST_CASE("reduce_scatter") { for_ranks(checks::reduce_scatter_exact); }
TEST_CASE("reduce_scatter has the bits of all_reduce") { for_ranks(checks::reduce_scatter_bits); }
TEST_CASE("all_gather") { for_ranks(checks::all_gather_exact); }
TEST_CASE("all_gather of uneven parts") { for_ranks(checks::all_gather_cuts); }
TEST_CASE("broadcast") { for_ranks(checks::broadcast_exact); }
TEST_CASE("send and recv") { for_ranks(checks::messages); }
TEST_CASE("many messages in flight") { for_ranks(checks::messages_in_flight); }
TEST_CASE("ranks that swap large messages") { for_ranks(checks::swaps); }
TEST_CASE("messages to oneself") { for_ranks(checks::messages_to_oneself); }
TEST_CASE("many requests in flight") { for_ranks(checks::many_in_flight); }
TEST_CASE("all kinds of operations in flight") { for_ranks(checks::kinds_in_flight); }
TEST_CASE("places: world rank and node of each rank") {
  for_ranks([](Comm& c) { checks::places(c, {}); });
  for (int per_node : {1, 2, 3, 5})
    run_thread_ranks(
        5, [&](Comm& c) { checks::places(c, {.ranks_per_node = per_node}); }, per_node);
}

TEST_CASE("even cuts") {
  CHECK(even_cuts(10, 3) == std::vector<int64_t>{0, 3, 6, 10});
  CHECK(even_cuts(2, 4) == std::vector<int64_t>{0, 0, 1, 1, 2});
  CHECK(even_cuts(0, 2) == std::vector<int64_t>{0, 0, 0});
  CHECK(even_cuts((int64_t{1} << 62) + 3, 2) ==
        std::vector<int64_t>{0, (int64_t{1} << 61) + 1, (int64_t{1} << 62) + 3});
}
TEST_CASE("split") { for_ranks(checks::groups); }

TEST_CASE("a group in another order") { for_ranks(checks::shuffled_group); }

TEST_CASE("names and sizes") {
  run_thread_ranks(3, [](Comm& c) {
    CHECK(c.name() == "thread");
    CHECK(c.size() == 3);
  });
  run_thread_ranks(1, [](Comm& c) { CHECK(c.name() == "self"); });
  CHECK(make_self_comm()->name() == "self");
}

TEST_CASE("a barrier lets nobody pass before all have come") {
  std::atomic<int> arrived{0};
  run_thread_ranks(4, [&](Comm& c) {
    for (int round = 1; round <= 200; ++round) {
      arrived.fetch_add(1);
      c.barrier();
      if (arrived.load() < 4 * round) throw std::runtime_error("passed early");
      c.barrier();
    }
  });
}

TEST_CASE("allocated memory is zeroed and aligned, and outlives its communicator") {
  std::vector<SharedBuffer> kept(2);
  run_thread_ranks(2, [&](Comm& c) {
    auto& buffer = kept[static_cast<size_t>(c.rank())];
    buffer = c.allocate(1001);
    CHECK(buffer.bytes == 1001);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data) % 64 == 0);
    for (int i = 0; i < 1001; ++i)
      if (static_cast<char*>(buffer.data)[i] != 0) throw std::runtime_error("not zeroed");
  });
  static_cast<char*>(kept[1].data)[1000] = 1;
  CHECK(static_cast<char*>(kept[1].data)[1000] == 1);
}

TEST_CASE("a rank that does not arrive is named, with operation, size and group") {
  std::string message = message_of(3, [](Comm& c) {
    c.barrier();
    c.set_timeout(0.05);
    std::vector<float> x(1 << 20, 1.0f);
    if (c.rank() == 1) return;
    c.all_reduce(x.data(), 1 << 20, DType::f32, ReduceOp::sum);
  });
  CAPTURE(message);
  CHECK(has(message, "all_reduce #1 (4.0 MiB, group thread)"));
  CHECK(has(message, "rank 1 (thread) did not arrive within"));

  message = message_of(2, [](Comm& c) {
    c.set_timeout(0.05);
    int x = 0;
    if (c.rank() == 0) c.recv(&x, 4, 1, 9);
  });
  CAPTURE(message);
  CHECK(has(message, "recv of 4 B (tag 9, group thread): rank 1 (thread) did not send within"));

  message = message_of(2, [](Comm& c) {
    c.set_timeout(0.05);
    std::vector<char> x(1 << 20);
    if (c.rank() == 1) c.send(x.data(), 1 << 20, 0, 9);
  });
  CAPTURE(message);
  CHECK(has(message, "rank 0 (thread) did not take it within"));
}

TEST_CASE("a rank that throws ends the others' waits at once, in every group, and its exception is the one rethrown") {
  std::atomic<int> ended{0};
  const std::string message = message_of(4, [&](Comm& c) {
    try {
      auto pair = c.split(c.rank() / 2, 0);
      if (c.rank() == 2) fail(ErrorKind::input, "no such file: corpus.h5");
      // Rank 3 waits in the group of the failed rank; 0 and 1 work on in theirs and then wait in the world. The timeout
      // of 300 s would fail the test program.
      pair->barrier();
      c.barrier();
    } catch (const Error& e) {
      if (has(e.what(), "rank 2 failed: no such file")) ended.fetch_add(1);
      throw;
    }
  });
  CHECK(message == "no such file: corpus.h5");
  CHECK(ended.load() == 3);
}

TEST_CASE("ranks that call different operations or sizes are told so") {
  std::string message = message_of(2, [](Comm& c) {
    std::vector<float> x(100, 1.0f);
    c.all_reduce(x.data(), c.rank() == 0 ? 100 : 99, DType::f32, ReduceOp::sum);
  });
  CAPTURE(message);
  CHECK(has(message, "instead; all ranks must call the same operations"));

  message = message_of(2, [](Comm& c) {
    int64_t x = 0;
    std::vector<int64_t> all(2);
    if (c.rank() == 0) c.all_reduce(&x, 1, DType::i64, ReduceOp::sum);
    else c.all_gather(&x, all.data(), 8);
  });
  CHECK(has(message, "all_gather #0"));
  CHECK(has(message, "all_reduce #0"));

  message = message_of(2, [](Comm& c) {
    auto buffer = c.allocate(100000);
    std::vector<float> plain(25000);
    c.all_reduce(c.rank() == 0 ? static_cast<float*>(buffer.data) : plain.data(), 25000, DType::f32, ReduceOp::sum);
  });
  CHECK(has(message, "pass memory of one kind on all ranks"));

  message = message_of(2, [](Comm& c) {
    std::vector<float> x(100);
    const std::vector<int64_t> mine =
        c.rank() == 0 ? std::vector<int64_t>{0, 50, 100} : std::vector<int64_t>{0, 51, 100};
    c.reduce_scatter(x.data(), mine, DType::f32);
  });
  CHECK(has(message, "deals its elements out to the ranks differently"));

  message = message_of(2, [](Comm& c) {
    int64_t x = 0;
    if (c.rank() == 0) c.send(&x, 8, 1, 1);
    else c.recv(&x, 4, 0, 2);
  });
  CHECK(has(message, "expected 4 bytes with tag 2 from rank 0 (thread), found 8 bytes with tag 1"));
}

TEST_CASE("our own mistakes are checks") {
  CHECK_THROWS_AS(run_thread_ranks(0, [](Comm&) {}), CheckFailed);
  run_thread_ranks(1, [](Comm& c) {
    char x = 0;
    CHECK_THROWS_AS(c.send(&x, 1, 1, 0), CheckFailed);
    CHECK_THROWS_AS(c.wait({5}), CheckFailed);
    CHECK_THROWS_AS(c.recv(&x, 1, 0, 0), CheckFailed);  // from itself, and not sent
    CHECK_THROWS_AS(c.reduce_scatter(&x, std::vector<int64_t>{0, 2, 1}, DType::f32), CheckFailed);
    CHECK_THROWS_AS(c.all_gather(&x, &x, std::vector<int64_t>{1, 0}, DType::f32), CheckFailed);
    CHECK_THROWS_AS(c.all_reduce(&x, 1, DType::bf16, ReduceOp::max), CheckFailed);
  });
  const std::string message = message_of(2, [](Comm& c) {
    uint16_t x[4] = {};
    c.all_reduce(x, 4, DType::bf16, ReduceOp::max);
  });
  CHECK(has(message, "all_reduce of bf16: reductions take f32, f64, i64, and sums bf16 and f16"));
}
