#include "libcore/serve/kv_pool.h"

#include "libcore/base/check.h"

namespace rw {

KvPool::KvPool(const ModelSpec& model, const KvPoolSpec& spec, Arena& arena, int threads) : spec_(spec) {
  const int64_t bytes = spec.n_pages * spec.page_tokens * model.kv_heads * model.head_dim * dtype_bytes(spec.t);
  for (int64_t l = 0; l < model.layers; ++l) {
    k_.push_back(arena.take(bytes, MemoryOwner::kv, threads));
    v_.push_back(arena.take(bytes, MemoryOwner::kv, threads));
  }
  for (int64_t p = spec.n_pages; p > 0; --p) free_.push_back(static_cast<int32_t>(p - 1));
}

int32_t KvPool::take() {
  CHECK(!free_.empty(), "the pool of %lld pages is empty", static_cast<long long>(spec_.n_pages));
  const int32_t page = free_.back();
  free_.pop_back();
  return page;
}

void KvPool::give(int32_t page) { free_.push_back(page); }

}  // namespace rw
