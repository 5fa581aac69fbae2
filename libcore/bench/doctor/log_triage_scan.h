// Which of many literals a line holds, in one pass over its bytes (Aho & Corasick 1975), letters of ASCII in any case.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rw {

class LiteralSet {
 public:
  // In lower case; none may be empty. Numbered as they are given; equal ones have one number each.
  explicit LiteralSet(const std::vector<std::string_view>& literals);
  // Calls found(number) for each literal in `line`, again for each place where it is.
  template <class Found>
  void scan(std::string_view line, Found&& found) const {
    uint32_t state = 0;
    for (const char c : line) {
      state = next_[state][lower(static_cast<unsigned char>(c))];
      for (int32_t end = first_end_[state]; end >= 0; end = ends_[static_cast<size_t>(end)].next)
        found(ends_[static_cast<size_t>(end)].literal);
    }
  }

 private:
  struct End {
    int32_t literal, next;  // next: of the same state, -1: no more
  };
  static unsigned char lower(unsigned char c) { return c >= 'A' && c <= 'Z' ? static_cast<unsigned char>(c + 32) : c; }

  std::vector<std::array<uint32_t, 256>> next_;
  std::vector<int32_t> first_end_;  // by state, -1: none
  std::vector<End> ends_;
};

}  // namespace rw
