#include "libcore/net/sse_parser.h"

#include <algorithm>
#include <cstring>

namespace rw {

void SseParser::reset() {
  first_ = true;
  after_cr_ = told_ = has_data_ = in_place_ = false;
  line_.clear();
  data_.clear();
}

// Lines end with LF, CR LF or CR. False when the line's end has not come; what there is of it is kept.
bool SseParser::take_line(std::string_view bytes, size_t& at, std::string_view& line) {
  if (after_cr_ && at < bytes.size()) {
    if (bytes[at] == '\n') ++at;
    after_cr_ = false;
  }
  if (at == bytes.size()) return false;
  const char* const begin = bytes.data() + at;
  const size_t n = bytes.size() - at;
  const auto* end = static_cast<const char*>(std::memchr(begin, '\n', n));
  const size_t to_feed = end != nullptr ? static_cast<size_t>(end - begin) : n;
  if (const auto* cr = static_cast<const char*>(std::memchr(begin, '\r', to_feed)); cr != nullptr) {
    end = cr;
    after_cr_ = true;
  }
  if (end == nullptr) {
    line_.append(begin, n);
    at = bytes.size();
    return false;
  }
  line = {begin, static_cast<size_t>(end - begin)};
  at += line.size() + 1;
  return true;
}

// Other fields and comments are passed over.
void SseParser::take_data(std::string_view line) {
  if (!line.starts_with("data") || (line.size() > 4 && line[4] != ':')) return;
  line.remove_prefix(std::min<size_t>(5, line.size()));
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (!has_data_) {
    has_data_ = in_place_ = true;
    view_ = line;
    return;
  }
  if (in_place_) data_.assign(view_);
  in_place_ = false;
  data_ += '\n';
  data_ += line;
}

SseParser::Step SseParser::feed(std::string_view bytes) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of UTF-8, legal at the beginning
  if (told_) told_ = has_data_ = in_place_ = false;
  size_t at = 0;
  std::string_view line;
  while (take_line(bytes, at, line)) {
    const bool kept = !line_.empty();
    if (kept) {
      line_ += line;
      line = line_;
    }
    if (first_ && line.starts_with(kMark)) line.remove_prefix(kMark.size());
    first_ = false;
    if (!line.empty()) {
      take_data(line);
      if (kept && in_place_) {  // line_ is needed again
        data_.assign(view_);
        in_place_ = false;
      }
      line_.clear();
      if (static_cast<int64_t>(data_.size()) > max_event_bytes_) return {Event::failed, at, {}};
      continue;
    }
    line_.clear();
    const std::string_view data = in_place_ ? view_ : std::string_view(data_);
    if (has_data_ && !data.empty()) {  // an event without data is none
      told_ = true;
      return {Event::event, at, data};
    }
    has_data_ = in_place_ = false;
  }
  if (in_place_) {
    data_.assign(view_);
    in_place_ = false;
  }
  const int64_t held = static_cast<int64_t>(line_.size() + (has_data_ ? data_.size() : 0));
  return {held > max_event_bytes_ ? Event::failed : Event::more, at, {}};
}

SseParser::Step SseParser::finish() {
  if (told_) told_ = has_data_ = in_place_ = false;
  std::string last;
  last.swap(line_);
  if (!last.empty()) take_data(last);
  if (in_place_) data_.assign(view_);
  in_place_ = false;
  if (!has_data_ || data_.empty()) return {Event::more, 0, {}};
  told_ = true;
  return {Event::event, 0, data_};
}

}  // namespace rw
