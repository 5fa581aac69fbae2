#include "libcore/data/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/json.h"

namespace rw {
namespace {

constexpr size_t kReadBytes = 1 << 20;

struct Magic {
  std::string_view bytes;
  const char* what;
  const char* command;
};
constexpr Magic kForeign[] = {{"\x1f\x8b", "gzip", "zcat"},
                              {"\x28\xb5\x2f\xfd", "Zstandard", "zstdcat"},
                              {"\xfd"
                               "7zXZ",
                               "xz", "xzcat"},
                              {"BZh9", "bzip2", "bzcat"},
                              {"PK\x03\x04", "zip", "unzip -p"},
                              {"PAR1", "Parquet", nullptr},
                              {"\x89HDF\r\n", "HDF5", nullptr},
                              {"RWTOKENS ", "token file", nullptr}};

void refuse_foreign(std::string_view head, const std::string& name) {
  for (const Magic& m : kForeign) {
    if (head.substr(0, m.bytes.size()) != m.bytes) continue;
    if (m.command == nullptr) fail(ErrorKind::input, "{}: expected text or JSONL, found a {}", name, m.what);
    fail(ErrorKind::input,
         "{}: expected text or JSONL, found {} data; decompress it into a pipe: {} FILE | dtrain prepare --input - ...",
         name, m.what, m.command);
  }
}

// A file, or standard input, as bytes or as lines.
class Reader {
 public:
  Reader(const std::string& path, int stdin_descriptor)
      : name_(path == "-" ? "standard input" : path),
        owned_(path != "-"),
        fd_(owned_ ? open_file(path) : stdin_descriptor) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (owned_) ::close(fd_);
  }
  const std::string& name() const { return name_; }
  int64_t bytes_done() const { return bytes_read_ - static_cast<int64_t>(buffer_.size() - at_); }

  // Appends the next bytes; false at the end.
  bool read_some(std::string& to) {
    if (at_ == buffer_.size() && !fill()) return false;
    to.append(buffer_, at_);
    at_ = buffer_.size();
    return true;
  }

  // Appends the rest of the line without its end, at most about `limit` bytes of it; `is_whole` tells whether the
  // line's end was reached. False at the end of the file.
  bool read_line(std::string& to, size_t limit, bool& is_whole) {
    is_whole = false;
    if (at_ == buffer_.size() && !fill()) return false;
    const size_t before = to.size();
    while (to.size() - before < limit) {
      const size_t end = buffer_.find('\n', at_);
      to.append(buffer_, at_, end == std::string::npos ? end : end - at_);
      at_ = end == std::string::npos ? buffer_.size() : end + 1;
      is_whole = end != std::string::npos || (at_ == buffer_.size() && !fill());
      if (is_whole) return true;
    }
    return true;
  }

 private:
  int open_file(const std::string& path) const {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(ErrorKind::input, "{}: cannot be opened for reading: {}", path, std::strerror(errno));
    struct stat status {};
    if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
      ::close(fd);
      fail(ErrorKind::input, "{}: expected a text or JSONL file, found a directory; name the files in it", path);
    }
    return fd;
  }

  bool fill() {
    buffer_.resize(kReadBytes);
    at_ = 0;
    ssize_t n = 0;
    while ((n = ::read(fd_, buffer_.data(), kReadBytes)) < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::input, "{}: cannot be read: {}", name_, std::strerror(errno));
    buffer_.resize(static_cast<size_t>(n));
    if (bytes_read_ == 0) refuse_foreign(buffer_, name_);
    bytes_read_ += n;
    return n > 0;
  }

  std::string name_;
  bool owned_;
  int fd_;
  int64_t bytes_read_ = 0;
  std::string buffer_;
  size_t at_ = 0;
};

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool is_blank(std::string_view line) { return std::all_of(line.begin(), line.end(), is_space); }

bool has_suffix(const std::string& text, std::string_view suffix) {
  return text.size() >= suffix.size() && std::string_view(text).substr(text.size() - suffix.size()) == suffix;
}

int64_t size_of(const std::string& path, int stdin_descriptor) {
  struct stat status {};
  const int rc = path == "-" ? ::fstat(stdin_descriptor, &status) : ::stat(path.c_str(), &status);
  if (rc != 0 && path != "-")
    fail(ErrorKind::input, "{}: cannot be opened for reading: {}", path, std::strerror(errno));
  return rc == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

}  // namespace

struct TextSource::Impl {
  TextInput input;
  size_t next_path = 0;
  std::unique_ptr<Reader> reader;
  bool is_json = false;
  int64_t line_number = 0, done_before = 0, total = 0;
  std::string document;       // what has been read of the current one, less what was given out
  bool has_given = false;     // a piece of it
  bool in_long_line = false;  // in the middle of a line longer than a piece
  std::deque<TextPiece> ready;

  void give(std::string text, bool is_last) {
    ready.push_back({std::move(text), reader->name(), !has_given, is_last, false});
    has_given = !is_last;
  }

  void cut_long_document() {
    const size_t piece = static_cast<size_t>(input.piece_bytes);
    size_t at = 0;
    while (document.size() - at >= piece) {
      const std::string_view next = std::string_view(document).substr(at, piece);
      const size_t place = cut_place(next);
      give(std::string(next.substr(0, place)), false);
      at += place;
    }
    document.erase(0, at);
  }

  void end_document() {
    if (!document.empty() || has_given) give(std::move(document), true);
    document.clear();
  }

  // Each reads some of the open file into `document` and `ready`; false at its end.
  bool read_text() {
    if (!reader->read_some(document)) return false;
    cut_long_document();
    return true;
  }

  bool read_line_document() {
    bool is_whole = false;
    if (!reader->read_line(document, static_cast<size_t>(input.piece_bytes), is_whole)) return false;
    if (is_whole) {
      if (!document.empty() && document.back() == '\r') document.pop_back();
      end_document();
    } else {
      cut_long_document();
    }
    return true;
  }

  bool read_paragraph_line() {
    bool is_whole = false;
    std::string line;
    if (!reader->read_line(line, static_cast<size_t>(input.piece_bytes), is_whole)) return false;
    if (is_whole && !line.empty() && line.back() == '\r') line.pop_back();
    const bool is_blank_line = is_whole && !in_long_line && is_blank(line);
    if (is_blank_line) {
      end_document();
    } else {
      if (!in_long_line && (!document.empty() || has_given)) document += '\n';
      document += line;
      cut_long_document();
    }
    in_long_line = !is_whole;
    return true;
  }

  bool read_json_line() {
    bool is_whole = false;
    std::string line;
    if (!reader->read_line(line, SIZE_MAX, is_whole)) return false;
    ++line_number;
    if (!is_blank(line))
      ready.push_back({std::move(line), reader->name() + ":" + std::to_string(line_number), true, true, true});
    return true;
  }

  bool read_more() {
    if (is_json) return read_json_line();
    switch (input.document) {
      case DocumentRule::file: return read_text();
      case DocumentRule::line: return read_line_document();
      case DocumentRule::blank_line: return read_paragraph_line();
    }
    return false;
  }

  bool open_next() {
    if (reader != nullptr) done_before += reader->bytes_done();
    if (next_path == input.paths.size()) return false;
    const std::string& path = input.paths[next_path++];
    reader = std::make_unique<Reader>(path, input.stdin_descriptor);
    is_json = input.format == TextFormat::jsonl ||
              (input.format == TextFormat::by_suffix && (has_suffix(path, ".jsonl") || has_suffix(path, ".ndjson")));
    line_number = 0;
    in_long_line = false;
    return true;
  }
};

TextSource::TextSource(const TextInput& input) : impl_(std::make_unique<Impl>()) {
  impl_->input = input;
  if (std::count(input.paths.begin(), input.paths.end(), "-") > 1)
    fail(ErrorKind::usage, "--input -: standard input can be read only once, found it twice");
  for (const std::string& path : input.paths) {
    const int64_t bytes = size_of(path, input.stdin_descriptor);
    impl_->total = bytes < 0 || impl_->total < 0 ? -1 : impl_->total + bytes;
  }
  impl_->open_next();
}

TextSource::~TextSource() = default;

bool TextSource::next(TextPiece& piece) {
  Impl& s = *impl_;
  while (s.ready.empty()) {
    if (s.reader == nullptr) return false;
    if (s.read_more()) continue;
    s.end_document();
    if (!s.open_next()) s.reader = nullptr;
  }
  piece = std::move(s.ready.front());
  s.ready.pop_front();
  return true;
}

int64_t TextSource::bytes_done() const {
  return impl_->done_before + (impl_->reader != nullptr ? impl_->reader->bytes_done() : 0);
}
int64_t TextSource::bytes_total() const { return impl_->total; }

std::string json_line_text(const TextPiece& line, const std::string& key) {
  const Json json = parse_json(line.text, line.where);
  if (!json.is_object()) fail(ErrorKind::input, "{}: expected a JSON object, found {}", line.where, json.type_name());
  return json_string(json, key.c_str(), line.where);
}

size_t cut_place(std::string_view text) {
  for (size_t i = text.size(); i-- > 1;)
    if (is_space(text[i]) && is_alphanumeric(text[i - 1])) return i;
  if (const size_t line_end = text.rfind('\n'); line_end != std::string_view::npos) return line_end + 1;
  for (size_t i = text.size(); i-- > 1 && i + 4 > text.size();)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return i;
  return text.size();
}

}  // namespace rw
