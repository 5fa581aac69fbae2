#include "libcore/bench/train/synthetic_data.h"

#include <algorithm>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/data/token_file.h"
#include "libcore/text/tokenizer_json.h"

namespace rw {

void write_random_tokens(const std::filesystem::path& file, int64_t n, int64_t vocab_size, uint64_t seed) {
  constexpr int64_t kPiece = 1 << 16;
  const uint64_t key = rng_key(seed, "random tokens");
  TokenFileWriter writer(file, vocab_size, byte_tokenizer_json(), "bytes");
  std::vector<int32_t> tokens;
  for (int64_t first = 0; first < n; first += kPiece) {
    tokens.resize(static_cast<size_t>(std::min(kPiece, n - first)));
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] =
          static_cast<int32_t>(random_uniform(key, static_cast<uint64_t>(first) + i) * static_cast<double>(vocab_size));
    writer.append(tokens, static_cast<int64_t>(tokens.size()));
  }
  writer.end_document();
  writer.finish();
}

}  // namespace rw
