// What a power cut can leave of a directory whose file operations were recorded.
//
// The model is that of Linux file systems, taken at their word and no more:
//   - fsync of a file makes its data and its length durable. Its name in the directory is NOT promised by POSIX; ext4
//     and xfs persist it along with the journal, this model does not count on that.
//   - fsync of a directory makes all that happened to its entries durable (names made, renamed, removed). Entries of
//   the
//     directories below or above are their own affair.
//   - rename and exchange are atomic: both names change or none.
//   - Whatever is not synced may be on the disk or not, in any order: sectors of a write each for itself, a file's
//   length
//     before its data (it then reads as zeros, as from unwritten extents of ext4 and xfs), a later file before an
//     earlier one.
//   - Entries that are not synced: as a journal would leave them, a prefix of each directory's changes in order; or,
//   for
//     file systems without one, any of them without the others.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/op_record.h"

namespace faults {

struct Content {
  std::string bytes;
  uint64_t digest;
};
std::shared_ptr<const Content> content_of(std::string bytes);

// Path below the root -> content; null: a directory.
using Tree = std::map<std::string, std::shared_ptr<const Content>>;

struct Cut {
  enum class Data { dropped, all, sectors };
  enum class Entries { dropped, all, in_order, any };
  Data data = Data::dropped;           // of what was not synced
  Entries entries = Entries::dropped;  // of what was not synced
  int64_t sector = 4096;
  uint64_t seed = 0;
};

class CrashModel {
 public:
  // `root` is the recorded directory, empty and durable at first, or holding `before`, all durable.
  explicit CrashModel(std::string root, const Tree& before = {});
  void apply(const Operation& operation);
  Tree after(const Cut& cut) const;
  // Operations whose path the model did not know: 0, or the record is not of this directory.
  int64_t n_unknown() const { return n_unknown_; }

 private:
  struct Pending {
    Op op;  // write, resize
    int64_t at;
    std::string data;
  };
  struct Node {
    bool directory = false;
    std::shared_ptr<const Content> durable = content_of("");
    std::string now;
    std::vector<Pending> pending;
    std::map<std::string, int64_t> entries, durable_entries;  // name -> node
  };
  struct Change {  // of one entry; node -1: it goes
    int64_t directory;
    std::string name;
    int64_t node;
  };
  struct Place {
    int64_t directory = -1;  // -1: not below the root, or not there
    std::string name;
    int64_t node = -1;
  };

  Place find(const std::string& path) const;
  Place find_or_make(const std::string& path);
  int64_t new_node(bool directory);
  void change(std::vector<Change> changes);
  void write(Node& node, int64_t at, const std::string& data);
  void resize(Node& node, int64_t bytes);
  void sync(int64_t node);
  std::shared_ptr<const Content> content_after(int64_t node, const Cut& cut) const;

  std::string root_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Change>> pending_changes_;  // in order, each atomic
  int64_t n_unknown_ = 0;
};

}  // namespace faults
