// The memory of a rank's keys and values: pages for all layers. Which page is whose is the scheduler's affair.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/block.h"

namespace rw {

struct KvPagesSpec {
  int64_t layers, kv_heads, head_dim;  // kv_heads: this rank's
  int64_t n_pages, page_tokens;
  DType t;  // f32, bf16, or i8 with a scale for each token and head
};

class KvPages {
 public:
  KvPages(const KvPagesSpec& spec, Arena& arena);
  // Touches the first pages, which are handed out first; the others become resident as they are used.
  void touch(int threads);
  // Pages of a layer; what belongs to the batch is the caller's to fill in.
  PagedKv layer(int64_t l) const;
  static int64_t page_bytes(const KvPagesSpec& spec);  // of one page, all layers

 private:
  struct Layer {
    void *k, *v;               // (n_pages, page_tokens, Hkv, D)
    float *k_scale, *v_scale;  // (n_pages, page_tokens, Hkv); null unless i8
  };
  KvPagesSpec spec_;
  std::vector<Layer> layers_;
};

}  // namespace rw
