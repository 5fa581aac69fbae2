// Exact duplicate documents in a token file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/data/token_file.h"

namespace rw {

struct DuplicateReport {
  int64_t n_documents = 0, n_tokens = 0;
  int64_t n_duplicates = 0;      // documents equal to an earlier one
  int64_t duplicate_tokens = 0;  // the tokens in those
  struct Pair {
    int64_t document, earlier;
  };
  std::vector<Pair> first_pairs;  // in document order
  double token_share() const {
    return n_tokens == 0 ? 0 : static_cast<double>(duplicate_tokens) / static_cast<double>(n_tokens);
  }
};

// Compares by digest, then token for token, so a collision of digests is not reported. Empty documents do not count.
// Memory: 16 bytes a document. `max_pairs`: how many examples to keep.
DuplicateReport find_duplicates(const TokenFile& file, int64_t max_pairs);
std::string duplicates_text(const DuplicateReport& report);  // one or a few lines for people

}  // namespace rw
