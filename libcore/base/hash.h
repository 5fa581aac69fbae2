// XXH3 digests of bytes, as 64-bit numbers and as 16 hex digits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

uint64_t hash64(const void* data, int64_t bytes, uint64_t seed = 0);
inline uint64_t hash64(std::string_view s, uint64_t seed = 0) {
  return hash64(s.data(), static_cast<int64_t>(s.size()), seed);
}
std::string hex64(uint64_t h);               // "00af..." 16 digits
uint64_t parse_hex64(const std::string& s);  // Error{input} when it is not 16 hex digits

// A digest over pieces that arrive in order.
class StreamHash {
 public:
  StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;
  ~StreamHash();
  void update(const void* data, int64_t bytes);
  uint64_t digest() const;

 private:
  void* state_;
};

}  // namespace rw
