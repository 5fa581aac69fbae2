// Added tokens: contents that are looked for in the text before anything else, and become one id.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rw {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool is_special = false;
  bool is_single_word = false;                     // only between characters that are no word characters
  bool strips_left = false, strips_right = false;  // takes the white space beside it along
  bool is_normalized = false;                      // looked for in the normalized text, in normalized form
};

// Finds added tokens: the leftmost, and of those that start there the longest.
class TokenMatcher {
 public:
  // `pattern` is the content, or its normalized form; an empty one is never found.
  void add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  // Cuts `text` (valid UTF-8) at the tokens and calls `piece(part, token)` in order; token is null for the text
  // between. `skips_specials`: special tokens are text like any other.
  using Piece = std::function<void(std::string_view part, const AddedToken* token)>;
  void split(std::string_view text, bool skips_specials, const Piece& piece) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at, size_t& end) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<uint64_t, uint32_t> edges_;  // a trie: node << 8 | byte -> node
  std::vector<int32_t> token_at_{-1};             // node -> index into tokens_
  std::array<bool, 256> starts_{};                // bytes that a token starts with
};

}  // namespace rw
