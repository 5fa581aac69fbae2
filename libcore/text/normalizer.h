// Normalizers: what is done to the text before it is split.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/text/regex.h"

namespace rw {

struct NormalizerStep {
  enum class Kind { nfc, nfd, nfkc, nfkd, lowercase, replace, prepend, strip };
  Kind kind;
  std::optional<Regex> pattern = {};  // replace: what
  std::string content = {};           // replace: by what; prepend: what
  bool strips_left = false, strips_right = false;
};

// The normalized form of `text` (valid UTF-8): a view of `text` where nothing changes, else of `buffer`.
std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text, std::string& buffer,
                           RegexScratch& scratch);

}  // namespace rw
