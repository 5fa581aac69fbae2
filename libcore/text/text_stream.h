// From token ids to text that may be shown: whole UTF-8 characters only, stop strings found across tokens, nothing of
// them leaked.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "libcore/text/tokenizer.h"

namespace rw {

struct TextStreamSpec {
  std::vector<std::string> stop =
      {};  // not empty ones; of several that match, the one that ends first, of those the longest
  bool include_stop = false;
  bool skip_special_tokens = true;
};

class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, TextStreamSpec spec);  // the tokenizer outlives this
  // Text that is certain now: what could be the beginning of a stop string, or of a character, waits. Bytes that can
  // become no character are U+FFFD. After a stop string was found nothing more comes.
  std::string push(int32_t id);
  // What waits, when no more tokens come: half a character is one U+FFFD.
  std::string finish();
  int64_t stopped_by() const { return stopped_by_; }  // index of the stop string found; -1

 private:
  // A state of the automaton over all stop strings (Aho and Corasick 1975): a prefix of one of them, the longest that
  // the text's end matches.
  struct State {
    std::vector<std::pair<char, int32_t>> next = {};  // by the next byte, to a longer prefix
    int32_t shorter = 0;                              // the longest prefix that is a proper end of this one
    int32_t length = 0;                               // bytes
    int64_t stop = -1;                                // the longest stop string that ends here
  };
  void add_stop(const std::string& stop, int64_t index);
  void link_shorter();
  int32_t child(int32_t state, char byte) const;  // -1: none
  int32_t step(int32_t state, char byte) const;
  std::string certain(bool last);

  const Tokenizer& tokenizer_;
  TextStreamSpec spec_;
  std::vector<State> states_;  // [0]: the empty prefix
  int32_t state_ = 0;
  std::string bytes_;  // not yet characters
  std::string text_;   // characters; the first `shown_` bytes have been given out
  size_t shown_ = 0;
  int64_t stopped_by_ = -1;
};

}  // namespace rw
