// Page-aligned memory that is kept: the first touch of fresh memory costs many times a copy, so it is paid once.
#pragma once
#include <cstdint>

namespace rw {

class PagePool {
 public:
  PagePool() = default;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();
  // At least so many bytes; what was in it is lost when it has to grow. Error{runtime} when the system has none.
  void need(int64_t bytes);
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace rw
