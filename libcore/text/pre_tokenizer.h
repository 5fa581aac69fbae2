// Pre-tokenizers: how a text is cut into the words that the merges never cross.
#pragma once
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "libcore/text/regex.h"

namespace rw {

// What becomes of the matches of a split, and of the gaps between them (Hugging Face's SplitDelimiterBehavior).
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  bool has_prefix_space = false;  // ByteLevel's add_prefix_space: a piece that starts otherwise gets a space in front
  std::optional<Regex> pattern;   // none: the piece stays whole
  SplitBehavior behavior = SplitBehavior::isolated;
  bool is_inverted = false;  // matches and gaps change roles
};

extern const char* const kGpt2Pattern;

// Cuts `text` by the steps in turn and calls `word` with every piece, in order; pieces are never empty and live until
// the call returns.
void split_words(const std::vector<SplitStep>& steps, std::string_view text, RegexScratch& scratch,
                 const std::function<void(std::string_view)>& word);

}  // namespace rw
