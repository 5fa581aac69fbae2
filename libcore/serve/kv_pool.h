// Which pages of keys and values are free: their numbers. Who holds which of the others is not its affair.
#pragma once
#include <cstdint>
#include <vector>

namespace rw {

class KvPool {
 public:
  explicit KvPool(int64_t n_pages);
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int32_t take();  // CHECKs that a page is free
  void give(int32_t page);

 private:
  int64_t n_pages_;
  std::vector<int32_t> free_;
};

}  // namespace rw
