#include "libcore/text/text_stream.h"

#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

// Whether more bytes can make a character of these (1 to 3, the first one a lead byte).
bool begins_character(std::string_view bytes) {
  // The second byte's range depends on the lead; one of these lies in each of them.
  for (const char second : {'\x80', '\x90', '\xA0'}) {
    std::string whole(bytes);
    if (whole.size() == 1) whole += second;
    whole.resize(4, '\x80');
    if (utf8_length(whole, 0) > static_cast<int>(bytes.size())) return true;
  }
  return false;
}

// Bytes at the end of `bytes` that are the beginning of a character. A lead byte is never part of an earlier character,
// so only the last one matters.
size_t unfinished_bytes(std::string_view bytes) {
  for (size_t n = 1; n <= std::min<size_t>(3, bytes.size()); ++n) {
    const unsigned char byte = static_cast<unsigned char>(bytes[bytes.size() - n]);
    if (byte < 0x80) return 0;
    if (byte >= 0xC0) return begins_character(bytes.substr(bytes.size() - n)) ? n : 0;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, TextStreamSpec spec)
    : tokenizer_(tokenizer), spec_(std::move(spec)), states_(1) {
  // The text has no ill-formed sequences, so a stop string that has some is compared as the text would show it.
  for (std::string& stop : spec_.stop) {
    CHECK(!stop.empty(), "TextStream: an empty stop string");
    stop = replace_invalid_utf8(stop);
  }
  for (size_t i = 0; i < spec_.stop.size(); ++i) add_stop(spec_.stop[i], static_cast<int64_t>(i));
  link_shorter();
}

int32_t TextStream::child(int32_t state, char byte) const {
  for (const auto& [label, to] : states_[static_cast<size_t>(state)].next)
    if (label == byte) return to;
  return -1;
}

void TextStream::add_stop(const std::string& stop, int64_t index) {
  int32_t state = 0;
  for (const char byte : stop) {
    int32_t next = child(state, byte);
    if (next < 0) {
      next = static_cast<int32_t>(states_.size());
      states_[static_cast<size_t>(state)].next.emplace_back(byte, next);
      states_.push_back({.length = states_[static_cast<size_t>(state)].length + 1});
    }
    state = next;
  }
  State& end = states_[static_cast<size_t>(state)];
  if (end.stop < 0) end.stop = index;  // of equal ones the first
}

// Breadth first: a state's links need those of shorter ones.
void TextStream::link_shorter() {
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const State& from = states_[static_cast<size_t>(order[i])];
    for (const auto& [byte, to] : from.next) {
      State& state = states_[static_cast<size_t>(to)];
      state.shorter = order[i] == 0 ? 0 : step(from.shorter, byte);
      if (state.stop < 0) state.stop = states_[static_cast<size_t>(state.shorter)].stop;
      order.push_back(to);
    }
  }
}

int32_t TextStream::step(int32_t state, char byte) const {
  for (;; state = states_[static_cast<size_t>(state)].shorter) {
    const int32_t next = child(state, byte);
    if (next >= 0) return next;
    if (state == 0) return 0;
  }
}

// Moves the bytes that are settled to the text and gives out what no stop string can claim any more.
std::string TextStream::certain(bool last) {
  const size_t settled = bytes_.size() - (last ? 0 : unfinished_bytes(bytes_));
  size_t read = text_.size();
  text_ += replace_invalid_utf8(std::string_view(bytes_).substr(0, settled));
  bytes_.erase(0, settled);
  size_t end = text_.size();
  for (; read < text_.size() && stopped_by_ < 0; ++read) {
    state_ = step(state_, text_[read]);
    stopped_by_ = states_[static_cast<size_t>(state_)].stop;
  }
  if (stopped_by_ >= 0) {
    end = spec_.include_stop ? read : read - spec_.stop[static_cast<size_t>(stopped_by_)].size();
  } else if (!last) {
    end -= static_cast<size_t>(states_[static_cast<size_t>(state_)].length);
  }
  std::string out = text_.substr(shown_, end - shown_);
  shown_ = end;
  if (shown_ * 2 > text_.size()) {  // not at every call: what waits may be long
    text_.erase(0, shown_);
    shown_ = 0;
  }
  return out;
}

std::string TextStream::push(int32_t id) {
  if (stopped_by_ >= 0 || (spec_.skip_special_tokens && tokenizer_.is_special(id))) return {};
  bytes_ += tokenizer_.token_bytes(id);
  return certain(false);
}

std::string TextStream::finish() { return stopped_by_ >= 0 ? std::string() : certain(true); }

}  // namespace rw
