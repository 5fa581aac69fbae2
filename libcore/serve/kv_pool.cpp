#include "libcore/serve/kv_pool.h"

#include "libcore/base/check.h"

namespace rw {

KvPool::KvPool(int64_t n_pages) : n_pages_(n_pages) {
  for (int64_t p = n_pages; p > 0; --p) free_.push_back(static_cast<int32_t>(p - 1));
}

int32_t KvPool::take() {
  CHECK(!free_.empty(), "the pool of %lld pages is empty", static_cast<long long>(n_pages_));
  const int32_t page = free_.back();
  free_.pop_back();
  return page;
}

void KvPool::give(int32_t page) {
  free_.push_back(page);
  CHECK(free_pages() <= n_pages_, "page %d was given back twice", page);
}

}  // namespace rw
