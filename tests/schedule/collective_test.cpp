// Collective step lists: proved by the checker for every small number of ranks, spot checks for large ones, prices
// against the formulas of the papers; and the checker itself against lists that are wrong.
#include "libcore/schedule/collective.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

using namespace rw;

namespace {

const std::vector<int64_t> kSizes = {0, 1, 2, 3, 7, 16, 17, 31, 64, 101, 257};

std::vector<StepList> all_of(const AllReduceShape& shape) {
  std::vector<StepList> lists;
  for (int r = 0; r < shape.ranks; ++r) lists.push_back(all_reduce_steps(shape, r));
  return lists;
}

std::vector<int64_t> whole(int ranks, int64_t n) {
  std::vector<int64_t> cuts(static_cast<size_t>(ranks) + 1);
  cuts.back() = n;
  return cuts;
}

std::string check_all_reduce(const AllReduceShape& shape) {
  const std::vector<int64_t> cuts = whole(shape.ranks, shape.n);
  return check_steps({CollectiveKind::all_reduce, cuts, shape.nodes}, all_of(shape));
}

// Uneven parts, some empty: part r has (r * 7919) % spread elements.
std::vector<int64_t> uneven(int ranks, int64_t spread) {
  std::vector<int64_t> cuts{0};
  for (int64_t r = 0; r < ranks; ++r) cuts.push_back(cuts.back() + r * 7919 % spread);
  return cuts;
}

int64_t log2_up(int64_t p) {
  int64_t q = 0;
  while (int64_t{1} << q < p) ++q;
  return q;
}

// What `a` sends to `b`, in order, is what `b` receives from `a`.
void check_wire(const StepList& of_a, const StepList& of_b, int a, int b) {
  std::vector<ElementRange> sent, received;
  for (const CollectiveStep& s : of_a)
    if (s.to == b) sent.push_back(s.send);
  for (const CollectiveStep& s : of_b)
    if (s.from == a) received.push_back(s.receive);
  CAPTURE(a);
  CAPTURE(b);
  CHECK(!sent.empty());
  CHECK(sent == received);
}

}  // namespace

TEST_CASE("every algorithm, 1 to 17 ranks, odd sizes, several segments: complete, exactly once, in one order") {
  for (CollectiveAlgorithm algorithm : kCollectiveAlgorithms)
    for (int ranks = 1; ranks <= 17; ++ranks)
      for (int64_t n : kSizes)
        for (int64_t segment : {int64_t{1}, int64_t{3}, int64_t{16}, int64_t{1000}})
          for (int per_node : {1, 2, 3, 17}) {
            if (algorithm != CollectiveAlgorithm::hierarchical && per_node > 1) continue;
            const NodeMap nodes = even_nodes(ranks, per_node);
            const std::string fault =
                check_all_reduce({.algorithm = algorithm, .ranks = ranks, .n = n, .segment = segment, .nodes = &nodes});
            if (fault.empty()) continue;
            CAPTURE(algorithm_name(algorithm));
            CAPTURE(ranks);
            CAPTURE(n);
            CAPTURE(segment);
            FAIL_CHECK(fault);
          }
}

TEST_CASE("hierarchical over nodes of any shape") {
  const std::vector<int32_t> labels = {7, 3, 7, 7, 1, 3, 9};
  const NodeMap nodes = map_nodes(labels);
  CHECK(nodes.node_of == std::vector<int32_t>{0, 1, 0, 0, 2, 1, 3});
  CHECK(nodes.leaders == std::vector<int32_t>{0, 1, 4, 6});
  for (int64_t n : kSizes) CHECK(check_all_reduce({CollectiveAlgorithm::hierarchical, 7, n, 5, &nodes}) == "");
}

TEST_CASE("reduce_scatter and all_gather over any cuts") {
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (int64_t spread : {1, 2, 5, 40})
      for (int64_t segment : {1, 7, 1000}) {
        const std::vector<int64_t> cuts = uneven(ranks, spread);
        const PartsShape shape{.cuts = cuts, .segment = segment};
        std::vector<StepList> scatter, gather;
        for (int r = 0; r < ranks; ++r) {
          scatter.push_back(reduce_scatter_steps(shape, r));
          gather.push_back(all_gather_steps(shape, r));
        }
        CAPTURE(ranks);
        CAPTURE(spread);
        CHECK(check_steps({CollectiveKind::reduce_scatter, cuts}, scatter) == "");
        CHECK(check_steps({CollectiveKind::all_gather, cuts}, gather) == "");
        const StepTotals t = totals(gather[0]);
        CHECK(t.received == cuts.back() - cuts[1]);
        CHECK(totals(scatter[0]).sent == cuts.back() - cuts[1]);
      }
}

TEST_CASE("steps and bytes as the files say") {
  const int64_t n = 17 * 64 * 15;
  for (int p : {2, 3, 4, 5, 8, 15, 16, 17}) {
    CAPTURE(p);
    for (int r = 0; r < p; ++r) {
      const StepTotals ring = totals(all_reduce_steps({.ranks = p, .n = n / 17 / 15 * p, .segment = 16}, r));
      CHECK(ring.steps == 2 * (p - 1) * 4);  // chunks of 64 in segments of 16
      CHECK(ring.sent == 2 * (p - 1) * 64);
      CHECK(ring.received == ring.sent);

      const StepTotals tree =
          totals(all_reduce_steps({.algorithm = CollectiveAlgorithm::tree, .ranks = p, .n = n, .segment = 100}, r));
      const int64_t segments = (n / 2 + 99) / 100;
      CHECK(tree.sent <= 2 * n);
      CHECK(tree.received <= 2 * n);
      CHECK(tree.messages_sent <= 4 * segments);
      CHECK(tree.messages_received <= 4 * segments);

      const StepTotals doubling =
          totals(all_reduce_steps({.algorithm = CollectiveAlgorithm::doubling, .ranks = p, .n = n, .segment = n}, r));
      const bool power = (p & (p - 1)) == 0;
      CHECK(doubling.steps <= log2_up(p) + (power ? 0 : 1));
      if (power) CHECK(doubling.sent == log2_up(p) * n);

      const NodeMap nodes = even_nodes(p, 2);
      const int64_t l = static_cast<int64_t>(nodes.leaders.size());
      const StepTotals two_level = totals(all_reduce_steps(
          {.algorithm = CollectiveAlgorithm::hierarchical, .ranks = p, .n = 1000 * l, .segment = 500, .nodes = &nodes},
          r));
      CHECK(two_level.sent == (nodes.is_leader(r) ? 2 * (l - 1) * 1000 : 0));
      CHECK(two_level.steps == 2 * 2 + (nodes.is_leader(r) ? 2 * 2 * (l - 1) : 0));
    }
  }
}

TEST_CASE("the two trees: a rank that is inner in one is a leaf of the other, depth is logarithmic") {
  for (int p = 2; p <= 65; ++p) {
    int both = 0;
    for (int r = 0; r < p; ++r) {
      // Two elements, one a tree: children are those that send up before this rank has the sum.
      int children[2] = {0, 0};
      for (const CollectiveStep& s :
           all_reduce_steps({.algorithm = CollectiveAlgorithm::tree, .ranks = p, .n = 2, .segment = 1}, r))
        if (s.from >= 0 && s.arrival != OnArrival::copy) ++children[s.receive.begin];
      CHECK(children[0] + children[1] <= 2);
      both += children[0] > 0 && children[1] > 0;
    }
    CHECK(both == (p % 2 == 0 || p == 1 ? 0 : 1));  // odd: rank 0
  }
}

TEST_CASE("thousands of ranks as pure data") {
  for (int p : {1024, 16384}) {
    CAPTURE(p);
    const int64_t n = int64_t{p} * 8;
    for (int r : {0, 1, p / 2, p - 1}) {
      const AllReduceShape ring{.ranks = p, .n = n, .segment = 4};
      const StepList mine = all_reduce_steps(ring, r);
      const StepTotals t = totals(mine);
      CHECK(t.steps == 2 * (int64_t{p} - 1) * 2);
      CHECK(t.sent == 2 * (int64_t{p} - 1) * 8);
      check_wire(mine, all_reduce_steps(ring, (r + 1) % p), r, (r + 1) % p);

      const AllReduceShape tree{.algorithm = CollectiveAlgorithm::tree, .ranks = p, .n = n, .segment = n / 8};
      const StepList of_tree = all_reduce_steps(tree, r);
      CHECK(totals(of_tree).sent <= 2 * n);
      CHECK(totals(of_tree).steps <= 8 * 4);
      for (const CollectiveStep& s : of_tree)
        if (s.to >= 0) check_wire(of_tree, all_reduce_steps(tree, s.to), r, s.to);

      const AllReduceShape doubling{.algorithm = CollectiveAlgorithm::doubling, .ranks = p, .n = n, .segment = n};
      CHECK(totals(all_reduce_steps(doubling, r)).steps == log2_up(p));

      const NodeMap nodes = even_nodes(p, 8);
      const AllReduceShape two_level{CollectiveAlgorithm::hierarchical, p, n, n, &nodes};
      const StepTotals h = totals(all_reduce_steps(two_level, r));
      CHECK(h.steps == 2 + (r % 8 == 0 ? 2 * (p / 8 - 1) : 0));
      CHECK(h.sent == (r % 8 == 0 ? 2 * (int64_t{p} / 8 - 1) * 64 : 0));
    }
  }
  // Whole jobs where the lists are short.
  const NodeMap nodes = even_nodes(1024, 8);
  CHECK(check_all_reduce({CollectiveAlgorithm::tree, 1024, 37, 9}) == "");
  CHECK(check_all_reduce({CollectiveAlgorithm::tree, 1023, 37, 9}) == "");
  CHECK(check_all_reduce({CollectiveAlgorithm::doubling, 1000, 5, 3}) == "");
  CHECK(check_all_reduce({CollectiveAlgorithm::hierarchical, 1024, 1000, 4, &nodes}) == "");
  CHECK(check_all_reduce({CollectiveAlgorithm::ring, 131, 1000, 4}) == "");
}

TEST_CASE("prices are the formulas of the papers") {
  const WireCost wire{.alpha_s = 3e-6, .s_per_byte = 1e-10};
  const auto price = [&](const AllReduceShape& shape) { return price_steps(all_of(shape), 4, wire); };
  const auto near = [](double x) { return doctest::Approx(x).epsilon(1e-9); };
  const int64_t n = 1 << 20;
  const double m = 4.0 * n;
  for (int p : {2, 4, 8, 16}) {
    CAPTURE(p);
    // Patarasuk & Yuan: 2(p-1) messages of m/p one after another.
    CHECK(price({.ranks = p, .n = n, .segment = n}) == near(2 * (p - 1) * (3e-6 + m / p * 1e-10)));
    // Segments that follow each other: the same bytes, alpha for each.
    CHECK(price({.ranks = p, .n = n, .segment = n / p / 4}) == near(2 * (p - 1) * (4 * 3e-6 + m / p * 1e-10)));
    CHECK(price({.algorithm = CollectiveAlgorithm::doubling, .ranks = p, .n = n, .segment = n}) ==
          near(static_cast<double>(log2_up(p)) * (3e-6 + m * 1e-10)));
  }
  CHECK(price({.algorithm = CollectiveAlgorithm::tree, .ranks = 2, .n = n, .segment = n}) ==
        near(2 * (3e-6 + m / 2 * 1e-10)));
  CHECK(price({.ranks = 1, .n = n}) == 0);
  CHECK(price({.ranks = 5, .n = 0}) == 0);
  // Sanders, Speck & Träff: 2m beta, which is 4 messages a segment, plus the way up and down; and never slower than the
  // message times of collective_tree.cpp, 8 a segment and 8 a level.
  for (int p : {16, 63, 256}) {
    const int64_t segments = 256;
    const double slot = 3e-6 + m / 2 / segments * 1e-10;
    const double seconds =
        price({.algorithm = CollectiveAlgorithm::tree, .ranks = p, .n = n, .segment = n / 2 / segments});
    CAPTURE(p);
    CAPTURE(seconds / slot);
    CHECK(seconds >= 4 * segments * slot * 0.99);
    CHECK(seconds <= (8 * segments + 16 * static_cast<double>(log2_up(p))) * slot);
  }
  // Two nodes of four: node steps cost what their terms say, wires between the leaders alone.
  const NodeMap nodes = even_nodes(8, 4);
  PriceTerms terms{.bytes_per_element = 2, .node = {1e-6, 1e-11}, .nodes = &nodes};
  terms.wire = [&](int from, int to) {
    CHECK(from % 4 == 0);
    CHECK(to % 4 == 0);
    return wire;
  };
  const double two_level = price_steps(all_of({CollectiveAlgorithm::hierarchical, 8, n, n / 2, &nodes}), terms);
  CHECK(two_level == near(2 * (1e-6 + 2.0 * n * 1e-11) + 2 * (3e-6 + n * 1e-10)));
}

TEST_CASE("trees win where latency counts, rings where bytes count") {
  const WireCost wire{.alpha_s = 5e-6, .s_per_byte = 1e-10};
  const auto price = [&](CollectiveAlgorithm a, int64_t n, int64_t segment) {
    return price_steps(all_of({.algorithm = a, .ranks = 64, .n = n, .segment = segment}), 4, wire);
  };
  using enum CollectiveAlgorithm;
  CHECK(price(doubling, 64, 64) < price(tree, 64, 64));
  CHECK(price(tree, 64, 64) < price(ring, 64, 64));
  CHECK(price(tree, 1 << 16, 1 << 12) < price(ring, 1 << 16, 1 << 12));
  CHECK(price(ring, 1 << 24, 1 << 18) < price(tree, 1 << 24, 1 << 18));
}

TEST_CASE("the checker finds what is wrong") {
  const int p = 5;
  const int64_t n = 40;
  const std::vector<int64_t> cuts = whole(p, n);
  const auto fault = [&](CollectiveAlgorithm a, const std::function<void(std::vector<StepList>&)>& spoil) {
    std::vector<StepList> lists = all_of({.algorithm = a, .ranks = p, .n = n, .segment = 8});
    spoil(lists);
    return check_steps({CollectiveKind::all_reduce, cuts}, lists);
  };
  using enum CollectiveAlgorithm;
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
  };
  CHECK(fault(ring, [](auto&) {}) == "");
  CHECK(has(fault(ring, [](auto& l) { l[2].pop_back(); }), "never ends"));
  CHECK(has(fault(ring, [](auto& l) { std::swap(l[1][0], l[1][1]); }), "expects them from"));
  CHECK(has(fault(ring, [](auto& l) { l[3][1].arrival = OnArrival::copy; }), "not every rank's contribution"));
  CHECK(has(fault(ring, [](auto& l) { l[3][6].arrival = OnArrival::received_first; }), "twice"));
  CHECK(has(fault(ring, [](auto& l) { l[0][0].send.n = 3; }), "sends 3 elements"));
  CHECK(has(fault(ring, [](auto& l) { l[0][0].send.begin = 1000; }), "of 40"));
  CHECK(has(fault(ring, [](auto& l) { l[0][0].to = 0; }), "with rank 0"));
  CHECK(has(fault(doubling,
                  [](auto& l) {
                    for (auto& s : l[2]) s.arrival = OnArrival::received_first;
                  }),
            "added in another order"));
  CHECK(has(fault(doubling,
                  [](auto& l) {
                    for (auto& s : l[2]) s.arrival = OnArrival::copy;
                  }),
            "overwritten while"));
  CHECK(has(fault(tree, [](auto& l) { std::reverse(l[1].begin(), l[1].end()); }), ""));
  // Both send first: fine when something buffers, a deadlock when nothing does.
  const ElementRange all{0, 4};
  const std::vector<StepList> rude = {
      {{.to = 1, .send = all}, {.arrival = OnArrival::received_second, .from = 1, .receive = all}},
      {{.to = 0, .send = all}, {.arrival = OnArrival::received_first, .from = 0, .receive = all}}};
  const std::vector<int64_t> two = {0, 0, 4};
  CHECK(has(check_steps({CollectiveKind::all_reduce, two}, rude), "never ends"));
  const std::vector<StepList> unread = {{{.from = 1, .receive = {0, 2}}}, {{.to = 0, .send = {0, 2}}}};
  const std::vector<int64_t> parts = {0, 2, 4};
  CHECK(has(check_steps({CollectiveKind::all_gather, parts}, unread), "does not have"));
  const std::vector<StepList> node_steps(2, {{.kind = StepKind::node_reduce, .receive = all}});
  CHECK(has(check_steps({CollectiveKind::all_reduce, two}, node_steps), "without nodes"));
}
