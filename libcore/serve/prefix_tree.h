// Prompts whose keys and values are kept: a radix tree over blocks of tokens, a page to each node. A hash of the path
// finds a node, its token ids confirm it. A salt is a root of its own: requests of different salts share nothing.
#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rw {

class PrefixTree {
 public:
  using Node = int32_t;  // stays valid while it, or one below it, is pinned
  using Tokens = std::span<const int32_t>;

  explicit PrefixTree(int64_t block_tokens);

  // The root of a salt, made when there is none; to be pinned, and gone when nothing hangs on it and nobody pins it.
  Node root(const std::string& salt);
  // The deepest node on the path of `tokens`, at most `max_blocks` blocks below the salt's root; -1 without a root.
  Node find(const std::string& salt, Tokens tokens, int64_t max_blocks) const;
  int64_t depth(Node node) const { return node < 0 ? 0 : at(node).depth; }  // blocks from the root
  std::vector<int32_t> pages(Node node) const;                              // of the path, root first

  // A pinned node and its ancestors are not evicted. Pinning counts as a use.
  void pin(Node node);
  void unpin(Node node);
  // Moves a pin from a node to its child.
  void move_pin(Node from, Node to);
  // A pin that is counted apart: pages that somebody keeps for a time to come.
  void keep(Node node);
  void unkeep(Node node);
  int64_t kept_pages() const { return n_kept_; }
  bool on_path(Node ancestor, Node node) const;  // ancestor is node or above it
  // The child of `node` with these tokens. taken: it is new and the page is the tree's now; otherwise it was there and
  // has a page of its own.
  struct Added {
    Node node;
    bool taken;
  };
  Added add(Node node, Tokens block, int32_t page);
  // Takes out up to n pages, leaf by leaf, the least recently used first.
  std::vector<int32_t> evict(int64_t n);

  int64_t n_pages() const { return n_nodes_; }
  int64_t evictable_pages() const { return n_nodes_ - n_held_; }
  int64_t evicted_pages() const { return n_evicted_; }

 private:
  struct Block {
    Node parent = -1;
    uint64_t hash = 0;
    std::vector<int32_t> tokens;
    std::string salt;  // of a root
    int32_t page = -1;
    int64_t depth = 0;
    int64_t children = 0, pins_below = 0, keeps_below = 0;  // pins, keeps of this node and of all below it
    uint64_t used = 0;
  };
  Block& at(Node node) { return blocks_[static_cast<size_t>(node)]; }
  const Block& at(Node node) const { return blocks_[static_cast<size_t>(node)]; }
  Node child(Node node, uint64_t hash, Tokens block) const;
  bool is_leaf(const Block& b) const { return b.parent >= 0 && b.children == 0 && b.pins_below == 0; }
  void touch(Node node);
  Node make();
  void drop_root(Node node);  // when nothing holds it

  int64_t block_tokens_;
  std::vector<Block> blocks_;
  std::vector<Node> unused_;
  std::unordered_multimap<uint64_t, Node> by_hash_;
  std::unordered_map<std::string, Node> roots_;
  std::set<std::pair<uint64_t, Node>> leaves_;  // evictable, by use
  uint64_t clock_ = 0;
  int64_t n_nodes_ = 0, n_held_ = 0, n_kept_ = 0, n_evicted_ = 0;
};

}  // namespace rw
