#include "libcore/serve/prefix_tree.h"

#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/base/hash.h"

namespace rw {
namespace {

uint64_t root_hash(const std::string& salt) { return hash64(salt, 0x5a17); }
uint64_t child_hash(uint64_t parent_hash, PrefixTree::Tokens block) {
  return hash64(block.data(), static_cast<int64_t>(block.size_bytes()), parent_hash);
}

}  // namespace
PrefixTree::PrefixTree(int64_t block_tokens) : block_tokens_(block_tokens) {}

PrefixTree::Node PrefixTree::make() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    return static_cast<Node>(blocks_.size() - 1);
  }
  const Node node = unused_.back();
  unused_.pop_back();
  return node;
}

PrefixTree::Node PrefixTree::root(const std::string& salt) {
  const auto [it, fresh] = roots_.try_emplace(salt, -1);
  if (fresh) {
    it->second = make();
    at(it->second) = {.hash = root_hash(salt), .salt = salt};
  }
  return it->second;
}

void PrefixTree::drop_root(Node node) {
  const Block& b = at(node);
  if (b.parent >= 0 || b.children > 0 || b.pins_below > 0) return;
  roots_.erase(b.salt);
  at(node) = {};
  unused_.push_back(node);
}

PrefixTree::Node PrefixTree::child(Node node, uint64_t hash, Tokens block) const {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Block& b = at(it->second);
    if (b.parent == node && std::equal(b.tokens.begin(), b.tokens.end(), block.begin(), block.end())) return it->second;
  }
  return -1;
}

PrefixTree::Node PrefixTree::find(const std::string& salt, Tokens tokens, int64_t max_blocks) const {
  const auto found = roots_.find(salt);
  if (found == roots_.end()) return -1;
  Node node = found->second;
  const auto size = static_cast<size_t>(block_tokens_);
  for (int64_t i = 0; i < max_blocks && tokens.size() >= size; ++i, tokens = tokens.subspan(size)) {
    const Tokens block = tokens.first(size);
    const Node next = child(node, child_hash(at(node).hash, block), block);
    if (next < 0) break;
    node = next;
  }
  return node;
}

std::vector<int32_t> PrefixTree::pages(Node node) const {
  std::vector<int32_t> pages(static_cast<size_t>(at(node).depth));
  for (auto it = pages.rbegin(); it != pages.rend(); ++it, node = at(node).parent) *it = at(node).page;
  return pages;
}

void PrefixTree::touch(Node node) {
  Block& b = at(node);
  if (is_leaf(b)) leaves_.erase({b.used, node});
  b.used = ++clock_;
  if (is_leaf(b)) leaves_.insert({b.used, node});
}

void PrefixTree::pin(Node node) {
  // From the node up, so that an ancestor counts as used later than what hangs on it: tails go first.
  for (; at(node).parent >= 0; node = at(node).parent) {
    touch(node);
    Block& b = at(node);
    if (is_leaf(b)) leaves_.erase({b.used, node});
    if (b.pins_below++ == 0) ++n_held_;
  }
  ++at(node).pins_below;  // the root's
}

void PrefixTree::unpin(Node node) {
  for (; at(node).parent >= 0; node = at(node).parent) {
    Block& b = at(node);
    CHECK(b.pins_below > 0, "a node is unpinned that nobody pinned");
    if (--b.pins_below > 0) continue;
    --n_held_;
    if (is_leaf(b)) leaves_.insert({b.used, node});
  }
  --at(node).pins_below;
  drop_root(node);
}

void PrefixTree::move_pin(Node from, Node to) {
  CHECK(at(to).parent == from, "a pin moves from a node to its child");
  Block& b = at(to);
  if (is_leaf(b)) leaves_.erase({b.used, to});
  if (b.pins_below++ == 0) ++n_held_;
  b.used = ++clock_;
}

void PrefixTree::keep(Node node) {
  pin(node);
  for (; at(node).parent >= 0; node = at(node).parent)
    if (at(node).keeps_below++ == 0) ++n_kept_;
}

void PrefixTree::unkeep(Node node) {
  for (Node n = node; at(n).parent >= 0; n = at(n).parent)
    if (--at(n).keeps_below == 0) --n_kept_;
  unpin(node);
}

bool PrefixTree::on_path(Node ancestor, Node node) const {
  while (at(node).depth > at(ancestor).depth) node = at(node).parent;
  return node == ancestor;
}

PrefixTree::Added PrefixTree::add(Node node, Tokens block, int32_t page) {
  CHECK(static_cast<int64_t>(block.size()) == block_tokens_, "a block of %zu tokens", block.size());
  const uint64_t hash = child_hash(at(node).hash, block);
  if (const Node there = child(node, hash, block); there >= 0) return {.node = there, .taken = false};
  const Node fresh = make();  // may move the blocks
  Block& parent = at(node);
  if (is_leaf(parent)) leaves_.erase({parent.used, node});
  ++parent.children;
  at(fresh) = {.parent = node,
               .hash = hash,
               .tokens = {block.begin(), block.end()},
               .page = page,
               .depth = parent.depth + 1,
               .used = ++clock_};
  by_hash_.emplace(hash, fresh);
  leaves_.insert({at(fresh).used, fresh});
  ++n_nodes_;
  return {.node = fresh, .taken = true};
}

std::vector<int32_t> PrefixTree::evict(int64_t n) {
  std::vector<int32_t> pages;
  while (static_cast<int64_t>(pages.size()) < n && !leaves_.empty()) {
    const Node node = leaves_.begin()->second;
    leaves_.erase(leaves_.begin());
    Block& b = at(node);
    pages.push_back(b.page);
    const auto [first, last] = by_hash_.equal_range(b.hash);
    for (auto it = first; it != last; ++it)
      if (it->second == node) {
        by_hash_.erase(it);
        break;
      }
    const Node parent = b.parent;
    b = {};
    unused_.push_back(node);
    --n_nodes_;
    ++n_evicted_;
    --at(parent).children;
    if (is_leaf(at(parent))) leaves_.insert({at(parent).used, parent});
    drop_root(parent);
  }
  return pages;
}

}  // namespace rw
