#include "libcore/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {

uint64_t hash64(const void* data, int64_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, static_cast<size_t>(bytes), seed);
}

std::string hex64(uint64_t h) { return fmt::format("{:016x}", h); }

uint64_t parse_hex64(const std::string& s) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, 16);
  if (s.size() != 16 || error != std::errc() || end != s.data() + s.size())
    fail(ErrorKind::input, "expected a digest of 16 hex digits, found \"{}\"", s);
  return value;
}

StreamHash::StreamHash() : state_(XXH3_createState()) {
  CHECK(state_ != nullptr, "no memory for a hash state");
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}
StreamHash::StreamHash(StreamHash&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
StreamHash& StreamHash::operator=(StreamHash&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
StreamHash::~StreamHash() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void StreamHash::update(const void* data, int64_t bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), data, static_cast<size_t>(bytes));
}
uint64_t StreamHash::digest() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)); }

}  // namespace rw
