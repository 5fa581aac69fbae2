#include "libcore/serve/prefix_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace rw;

namespace {

// Paths and what is known of them, kept the plain way: a list of token strings.
struct Naive {
  struct Block {
    int32_t page;
    int pins = 0;
    uint64_t used = 0;
  };
  std::map<std::pair<std::string, std::vector<int32_t>>, Block> blocks;  // by salt and whole path

  bool has_child(const std::string& salt, const std::vector<int32_t>& path, size_t size) const {
    for (const auto& [key, b] : blocks)
      if (key.first == salt && key.second.size() == path.size() + size &&
          std::equal(path.begin(), path.end(), key.second.begin()))
        return true;
    return false;
  }
  bool pinned_below(const std::string& salt, const std::vector<int32_t>& path) const {
    for (const auto& [key, b] : blocks)
      if (b.pins > 0 && key.first == salt && key.second.size() >= path.size() &&
          std::equal(path.begin(), path.end(), key.second.begin()))
        return true;
    return false;
  }
};

}  // namespace

TEST_CASE("a prefix tree finds what a plain list of paths finds, and evicts unpinned leaves alone") {
  for (const int64_t size : {1, 3}) {
    CAPTURE(size);
    std::mt19937 rng(static_cast<unsigned>(size));
    const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    PrefixTree tree(size);
    Naive naive;
    int32_t next_page = 0;
    struct Pin {
      std::string salt;
      std::vector<int32_t> path;
      PrefixTree::Node node;
    };
    std::vector<Pin> pins;
    for (int turn = 0; turn < 4000; ++turn) {
      const std::string salt = std::string("s") + static_cast<char>('0' + pick(2));
      std::vector<int32_t> tokens(static_cast<size_t>(pick(6)) * static_cast<size_t>(size) +
                                  static_cast<size_t>(pick(2)));
      for (int32_t& t : tokens) t = pick(2);
      const int64_t whole = static_cast<int64_t>(tokens.size()) / size;
      size_t depth = 0;
      while (static_cast<int64_t>(depth) < whole &&
             naive.blocks.contains({salt,
                                    {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(
                                                                          (depth + 1) * static_cast<size_t>(size))}}))
        ++depth;
      PrefixTree::Node node = tree.find(salt, tokens, whole);
      CHECK(tree.depth(node) == static_cast<int64_t>(depth));
      if (depth > 0) {
        const std::vector<int32_t> pages = tree.pages(node);
        for (size_t i = 0; i < depth; ++i)
          CHECK(pages[i] == naive.blocks
                                .at({salt,
                                     {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(
                                                                           (i + 1) * static_cast<size_t>(size))}})
                                .page);
      }
      switch (pick(4)) {
        case 0:
        case 1: {  // insert the rest below a pin, and keep the pin sometimes
          if (node < 0 || depth == 0) node = tree.root(salt);
          tree.pin(node);
          for (size_t i = depth; i < static_cast<size_t>(whole); ++i) {
            const auto added = tree.add(
                node, PrefixTree::Tokens(tokens).subspan(i * static_cast<size_t>(size), static_cast<size_t>(size)),
                next_page);
            CHECK(added.taken);
            naive.blocks[{salt,
                          {tokens.begin(),
                           tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * static_cast<size_t>(size))}}] = {
                .page = next_page++};
            tree.move_pin(node, added.node);
            node = added.node;
          }
          const std::vector<int32_t> path(tokens.begin(), tokens.begin() + whole * size);
          if (pick(3) == 0 && whole > 0) {
            naive.blocks.at({salt, path}).pins += 1;
            pins.push_back({salt, path, node});
          } else {
            tree.unpin(node);
          }
          break;
        }
        case 2: {
          if (pins.empty()) break;
          const size_t i = static_cast<size_t>(pick(static_cast<int>(pins.size())));
          tree.unpin(pins[i].node);
          naive.blocks.at({pins[i].salt, pins[i].path}).pins -= 1;
          pins.erase(pins.begin() + static_cast<std::ptrdiff_t>(i));
          break;
        }
        default: {
          for (const int32_t page : tree.evict(pick(3))) {
            const auto it = std::find_if(naive.blocks.begin(), naive.blocks.end(),
                                         [&](const auto& b) { return b.second.page == page; });
            REQUIRE(it != naive.blocks.end());
            CHECK(!naive.pinned_below(it->first.first, it->first.second));
            CHECK(!naive.has_child(it->first.first, it->first.second, static_cast<size_t>(size)));
            naive.blocks.erase(it);
          }
        }
      }
      CHECK(tree.n_pages() == static_cast<int64_t>(naive.blocks.size()));
      int64_t free_to_go = 0;
      for (const auto& [key, b] : naive.blocks) free_to_go += !naive.pinned_below(key.first, key.second);
      CHECK(tree.evictable_pages() == free_to_go);
    }
    for (const Pin& p : pins) tree.unpin(p.node);
    CHECK(tree.evict(1 << 20).size() == naive.blocks.size());
    CHECK(tree.n_pages() == 0);
    CHECK(tree.find("s0", std::vector<int32_t>{1, 1, 1}, 1) == -1);
  }
}

TEST_CASE("the least recently used path goes first, from its end") {
  PrefixTree tree(2);
  const auto insert = [&](std::vector<int32_t> tokens, std::vector<int32_t> pages) {
    PrefixTree::Node node = tree.root("");
    tree.pin(node);
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto added = tree.add(node, PrefixTree::Tokens(tokens).subspan(2 * i, 2), pages[i]);
      tree.move_pin(node, added.node);
      node = added.node;
    }
    tree.unpin(node);
  };
  insert({1, 1, 2, 2, 3, 3}, {10, 11, 12});
  insert({1, 1, 4, 4}, {-1, 20});
  insert({5, 5}, {30});
  const PrefixTree::Node used = tree.find("", std::vector<int32_t>{1, 1, 2, 2, 3, 3}, 3);
  tree.pin(used);
  tree.unpin(used);
  CHECK(tree.evict(1) == std::vector<int32_t>{20});
  CHECK(tree.evict(1) == std::vector<int32_t>{30});
  CHECK(tree.evict(9) == std::vector<int32_t>{12, 11, 10});
}

TEST_CASE("kept pages are counted once where paths share them") {
  PrefixTree tree(1);
  const PrefixTree::Node root = tree.root("");
  tree.pin(root);
  const auto a = tree.add(root, std::vector<int32_t>{1}, 0).node;
  const auto b = tree.add(a, std::vector<int32_t>{2}, 1).node, c = tree.add(a, std::vector<int32_t>{3}, 2).node;
  tree.keep(b);
  tree.keep(c);
  CHECK(tree.kept_pages() == 3);
  CHECK(tree.on_path(a, c));
  CHECK_FALSE(tree.on_path(b, c));
  CHECK(tree.evict(9).empty());
  tree.unkeep(b);
  CHECK(tree.kept_pages() == 2);
  CHECK(tree.evict(9) == std::vector<int32_t>{1});
  tree.unkeep(c);
  CHECK(tree.kept_pages() == 0);
  CHECK(tree.evict(9) == std::vector<int32_t>{2, 0});
}
