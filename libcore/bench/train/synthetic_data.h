// Random tokens to train on where only the speed counts.
#pragma once
#include <cstdint>
#include <filesystem>

namespace rw {

// A token file of one document of n ids, uniform in [0, vocab_size), the same for the same seed. It says that its
// tokenizer is the byte tokenizer, which no vocabulary is too small for.
void write_random_tokens(const std::filesystem::path& file, int64_t n, int64_t vocab_size, uint64_t seed);

}  // namespace rw
