// A file of one JSON object a line (metrics.jsonl, events.jsonl): appended whole lines, so that a reader and a crash
// see no half line but the last.
#pragma once
#include <filesystem>
#include <string>

#include "libcore/base/json.h"

namespace rw {

class JsonLines {
 public:
  JsonLines() = default;  // writes nothing: ranks other than 0
  explicit JsonLines(const std::filesystem::path& file);
  JsonLines(JsonLines&&) noexcept;
  JsonLines& operator=(JsonLines&&) noexcept;
  ~JsonLines();
  // Returns false, and keeps quiet, when the disk is full: a metrics line is not worth a training run.
  bool write(const Json& line);

 private:
  int fd_ = -1;
};

// Cuts off, in place, the lines whose "step" is beyond `last_step`: what a resumed run computes again; and a torn last
// line.
void drop_lines_after(const std::filesystem::path& file, int64_t last_step);

}  // namespace rw
