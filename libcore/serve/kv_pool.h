// Pages of keys and values for all layers. The pool hands pages out and takes them back; who holds which is not its
// affair.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"
#include "libcore/device/arena.h"
#include "libcore/spec/model_spec.h"

namespace rw {

struct KvPoolSpec {
  int64_t n_pages, page_tokens;
  DType t;
};

class KvPool {
 public:
  KvPool(const ModelSpec& model, const KvPoolSpec& spec, Arena& arena, int threads);
  int64_t page_tokens() const { return spec_.page_tokens; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int32_t take();  // CHECKs that a page is free
  void give(int32_t page);
  void* k_pages(int64_t layer) const { return k_[static_cast<size_t>(layer)]; }  // (n_pages, page_tokens, Hkv, D)
  void* v_pages(int64_t layer) const { return v_[static_cast<size_t>(layer)]; }

 private:
  KvPoolSpec spec_;
  std::vector<int32_t> free_;
  std::vector<void*> k_, v_;  // (L)
};

}  // namespace rw
