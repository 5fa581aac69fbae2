#include "tests/faults/crash_model.h"

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "libcore/base/hash.h"

namespace faults {

std::shared_ptr<const Content> content_of(std::string bytes) {
  const uint64_t digest = rw::hash64(bytes);
  return std::make_shared<const Content>(Content{std::move(bytes), digest});
}

CrashModel::CrashModel(std::string root, const Tree& before) : root_(std::move(root)) {
  new_node(true);
  for (const auto& [path, content] : before) {
    const Place place = find(root_ + "/" + path);  // sorted: parents come first
    const int64_t node = new_node(content == nullptr);
    auto& parent = nodes_[static_cast<size_t>(place.directory)];
    parent.entries[place.name] = parent.durable_entries[place.name] = node;
    if (content == nullptr) continue;
    nodes_.back().durable = content;
    nodes_.back().now = content->bytes;
  }
}

int64_t CrashModel::new_node(bool directory) {
  nodes_.emplace_back().directory = directory;
  return static_cast<int64_t>(nodes_.size()) - 1;
}

CrashModel::Place CrashModel::find(const std::string& path) const {
  if (path == root_) return {-1, "", 0};
  if (!path.starts_with(root_ + "/")) return {};
  Place place;
  int64_t node = 0;
  for (size_t begin = root_.size() + 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (node < 0 || !nodes_[static_cast<size_t>(node)].directory) return {};
    const auto& entries = nodes_[static_cast<size_t>(node)].entries;
    place = {node, path.substr(begin, end - begin), -1};
    const auto entry = entries.find(place.name);
    if (entry != entries.end()) place.node = entry->second;
    node = place.node;
    begin = end + 1;
  }
  return place;
}

// A file that was made where the shim could not see it.
CrashModel::Place CrashModel::find_or_make(const std::string& path) {
  Place place = find(path);
  if (place.node >= 0 || place.directory < 0) return place;
  place.node = new_node(false);
  change({{place.directory, place.name, place.node}});
  return place;
}

void CrashModel::change(std::vector<Change> changes) {
  for (const Change& c : changes) {
    auto& entries = nodes_[static_cast<size_t>(c.directory)].entries;
    if (c.node < 0) entries.erase(c.name);
    else entries[c.name] = c.node;
  }
  pending_changes_.push_back(std::move(changes));
}

namespace {

void put(std::string& bytes, int64_t at, std::string_view data) {
  const auto end = static_cast<size_t>(at) + data.size();
  if (bytes.size() < end) bytes.resize(end);
  bytes.replace(static_cast<size_t>(at), data.size(), data);
}

}  // namespace

void CrashModel::write(Node& node, int64_t at, const std::string& data) {
  put(node.now, at, data);
  node.pending.push_back({Op::write, at, data});
}

void CrashModel::resize(Node& node, int64_t bytes) {
  node.now.resize(static_cast<size_t>(bytes));
  node.pending.push_back({Op::resize, bytes, ""});
}

void CrashModel::sync(int64_t number) {
  Node& node = nodes_[static_cast<size_t>(number)];
  if (!node.directory) {
    if (!node.pending.empty()) node.durable = content_of(node.now);
    node.pending.clear();
    return;
  }
  std::erase_if(pending_changes_, [&](const std::vector<Change>& changes) {
    if (std::none_of(changes.begin(), changes.end(), [&](const Change& c) { return c.directory == number; }))
      return false;
    for (const Change& c : changes) {
      auto& entries = nodes_[static_cast<size_t>(c.directory)].durable_entries;
      if (c.node < 0) entries.erase(c.name);
      else entries[c.name] = c.node;
    }
    return true;
  });
}

void CrashModel::apply(const Operation& o) {
  const bool makes_data = o.op == Op::write || o.op == Op::resize || o.op == Op::allocate;
  const Place place = makes_data ? find_or_make(o.path) : find(o.path);
  const bool makes_entry = o.op == Op::create || o.op == Op::mkdir;
  if (makes_entry ? place.directory < 0 : place.node < 0) {
    ++n_unknown_;
    return;
  }
  const Place to = o.to.empty() ? Place{} : find(o.to);
  if (!o.to.empty() && to.directory < 0) {
    ++n_unknown_;
    return;
  }
  Node* node = place.node < 0 ? nullptr : &nodes_[static_cast<size_t>(place.node)];
  switch (o.op) {
    case Op::open:
    case Op::close: break;
    case Op::create: change({{place.directory, place.name, new_node(false)}}); break;
    case Op::mkdir: change({{place.directory, place.name, new_node(true)}}); break;
    case Op::write: write(*node, o.at, o.data); break;
    case Op::resize: resize(*node, o.at); break;
    case Op::allocate:
      if (o.at > static_cast<int64_t>(node->now.size())) resize(*node, o.at);
      break;
    case Op::sync: sync(place.node); break;
    case Op::rename: change({{place.directory, place.name, -1}, {to.directory, to.name, place.node}}); break;
    case Op::exchange: change({{place.directory, place.name, to.node}, {to.directory, to.name, place.node}}); break;
    case Op::unlink:
    case Op::rmdir: change({{place.directory, place.name, -1}}); break;
    case Op::link: change({{to.directory, to.name, place.node}}); break;
  }
}

std::shared_ptr<const Content> CrashModel::content_after(int64_t number, const Cut& cut) const {
  const Node& node = nodes_[static_cast<size_t>(number)];
  if (node.pending.empty() || cut.data == Cut::Data::dropped) return node.durable;
  if (cut.data == Cut::Data::all) return content_of(node.now);
  std::mt19937_64 random(cut.seed * 7919 + static_cast<uint64_t>(number));
  std::string bytes = node.durable->bytes;
  // Some files get nearly all of it, some nearly nothing.
  const uint64_t eighths = 1 + random() % 7;
  const auto kept = [&] { return random() % 8 < eighths; };
  for (const Pending& p : node.pending) {
    if (p.op == Op::resize && kept()) bytes.resize(static_cast<size_t>(p.at));
    const auto n = static_cast<int64_t>(p.data.size());
    for (int64_t done = 0; done < n;) {
      const int64_t part = std::min(n - done, cut.sector - (p.at + done) % cut.sector);
      if (kept())
        put(bytes, p.at + done, std::string_view(p.data).substr(static_cast<size_t>(done), static_cast<size_t>(part)));
      done += part;
    }
  }
  return content_of(std::move(bytes));
}

Tree CrashModel::after(const Cut& cut) const {
  std::mt19937_64 random(cut.seed * 104729 + 1);
  std::map<int64_t, std::map<std::string, int64_t>> entries;  // of directories with changes that were not synced
  std::set<int64_t> ended;                                    // directories past the end of their prefix
  for (const std::vector<Change>& changes : pending_changes_) {
    if (cut.entries == Cut::Entries::dropped) break;
    bool kept = cut.entries == Cut::Entries::all || random() % 2 == 0;
    if (cut.entries == Cut::Entries::in_order) {
      kept = random() % 6 != 0;
      for (const Change& c : changes) kept = kept && !ended.contains(c.directory);
      for (const Change& c : changes)
        if (!kept) ended.insert(c.directory);
    }
    if (!kept) continue;
    for (const Change& c : changes) {
      auto& own =
          entries.try_emplace(c.directory, nodes_[static_cast<size_t>(c.directory)].durable_entries).first->second;
      if (c.node < 0) own.erase(c.name);
      else own[c.name] = c.node;
    }
  }
  Tree tree;
  const std::function<void(int64_t, const std::string&)> add = [&](int64_t directory, const std::string& prefix) {
    const auto changed = entries.find(directory);
    for (const auto& [name, node] :
         changed != entries.end() ? changed->second : nodes_[static_cast<size_t>(directory)].durable_entries) {
      const bool is_directory = nodes_[static_cast<size_t>(node)].directory;
      tree[prefix + name] = is_directory ? nullptr : content_after(node, cut);
      if (is_directory) add(node, prefix + name + "/");
    }
  };
  add(0, "");
  return tree;
}

}  // namespace faults
