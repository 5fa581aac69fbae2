#include "libcore/text/added_tokens.h"

#include <algorithm>

#include "libcore/text/word_character.h"

namespace rw {

void TokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const auto [edge, is_new] =
        edges_.try_emplace(uint64_t{node} << 8 | static_cast<uint8_t>(c), static_cast<uint32_t>(token_at_.size()));
    if (is_new) token_at_.push_back(-1);
    node = edge->second;
  }
  token_at_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<uint8_t>(pattern.front())] = true;
}

const AddedToken* TokenMatcher::longest_at(std::string_view text, size_t at, size_t& end) const {
  const AddedToken* found = nullptr;
  uint32_t node = 0;
  while (at < text.size()) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[at]));
    if (edge == edges_.end()) break;
    node = edge->second;
    ++at;
    if (token_at_[node] >= 0) {
      found = &tokens_[static_cast<size_t>(token_at_[node])];
      end = at;
    }
  }
  return found;
}

void TokenMatcher::split(std::string_view text, bool skips_specials, const Piece& piece) const {
  if (tokens_.empty()) {
    if (!text.empty()) piece(text, nullptr);
    return;
  }
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const AddedToken* token = starts_[static_cast<uint8_t>(text[at])] ? longest_at(text, at, end) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    at = end;  // the search goes on behind the content, whether the match is taken or not
    if (skips_specials && token->is_special) continue;
    if (token->is_single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
      continue;
    if (token->strips_left) begin = std::max(begin - spaces_at_end(text.substr(0, begin)), done);
    if (token->strips_right) end += spaces_at_start(text.substr(end));
    if (done < begin) piece(text.substr(done, begin - done), nullptr);
    piece(text.substr(begin, end - begin), token);
    done = end;
  }
  if (done < text.size()) piece(text.substr(done), nullptr);
}

}  // namespace rw
