// What the fault shim writes down and the crash model plays back: file operations under one directory, of all
// processes, in the order in which they took effect.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace faults {

enum class Op : uint8_t {
  open,
  create,
  write,
  resize,
  allocate,
  sync,
  rename,
  exchange,
  mkdir,
  unlink,
  rmdir,
  link,
  close
};
constexpr const char* kOpNames[] = {"open",     "create", "write",  "resize", "allocate", "sync", "rename",
                                    "exchange", "mkdir",  "unlink", "rmdir",  "link",     "close"};

struct Operation {
  Op op = Op::open;
  std::string path, to;  // absolute; `to` of renames, exchanges and links
  int64_t at = 0;        // write: where; resize, allocate: the file's length is now this, or at least this
  std::string data;      // write
};

inline std::string op_name(Op op) { return kOpNames[static_cast<size_t>(op)]; }

// One operation: op, at, three lengths, then the texts.
inline std::string to_bytes(const Operation& o) {
  const int64_t head[5] = {static_cast<int64_t>(o.op), o.at, static_cast<int64_t>(o.path.size()),
                           static_cast<int64_t>(o.to.size()), static_cast<int64_t>(o.data.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
  return bytes.append(o.path).append(o.to).append(o.data);
}

// A last operation that is cut short (its process was killed while it wrote it down) is left out.
inline std::vector<Operation> parse_record(std::string_view bytes) {
  std::vector<Operation> all;
  int64_t head[5];
  while (bytes.size() >= sizeof head) {
    std::memcpy(head, bytes.data(), sizeof head);
    bytes.remove_prefix(sizeof head);
    if (bytes.size() < static_cast<size_t>(head[2] + head[3] + head[4])) break;
    const auto take = [&](int64_t n) {
      const std::string text(bytes.substr(0, static_cast<size_t>(n)));
      bytes.remove_prefix(static_cast<size_t>(n));
      return text;
    };
    Operation o{static_cast<Op>(head[0]), take(head[2]), "", head[1], ""};
    o.to = take(head[3]);
    o.data = take(head[4]);
    all.push_back(std::move(o));
  }
  return all;
}

}  // namespace faults
