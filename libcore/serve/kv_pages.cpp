#include "libcore/serve/kv_pages.h"

#include <algorithm>
#include <cstring>

#include "libcore/base/workers.h"

namespace rw {
namespace {

// Of the pool, at the start: what a start can spare the time for, and a first load uses.
constexpr int64_t kTouchedBytes = 256 << 20;

int64_t elements(const KvPagesSpec& s) { return s.page_tokens * s.kv_heads * s.head_dim; }
int64_t scales(const KvPagesSpec& s) { return s.t == DType::i8 ? s.page_tokens * s.kv_heads : 0; }

}  // namespace

int64_t KvPages::page_bytes(const KvPagesSpec& s) {
  return 2 * s.layers * (elements(s) * dtype_bytes(s.t) + scales(s) * static_cast<int64_t>(sizeof(float)));
}

KvPages::KvPages(const KvPagesSpec& spec, Arena& arena) : spec_(spec) {
  const auto pages = [&] {
    return arena.take_untouched(spec.n_pages * elements(spec) * dtype_bytes(spec.t), MemoryOwner::kv);
  };
  const auto scale = [&]() -> float* {
    if (spec.t != DType::i8) return nullptr;
    return static_cast<float*>(
        arena.take_untouched(spec.n_pages * scales(spec) * static_cast<int64_t>(sizeof(float)), MemoryOwner::kv));
  };
  for (int64_t l = 0; l < spec.layers; ++l) {
    void *k = pages(), *v = pages();
    float *k_scale = scale(), *v_scale = scale();
    layers_.push_back({.k = k, .v = v, .k_scale = k_scale, .v_scale = v_scale});
  }
}

void KvPages::touch(int threads) {
  const int64_t pages = std::min(spec_.n_pages, kTouchedBytes / page_bytes(spec_)),
                bytes = pages * elements(spec_) * dtype_bytes(spec_.t);
  run_jobs(layers_.size(), threads, [&](size_t l) {
    std::memset(layers_[l].k, 0, static_cast<size_t>(bytes));
    std::memset(layers_[l].v, 0, static_cast<size_t>(bytes));
  });
}

PagedKv KvPages::layer(int64_t l) const {
  const Layer& x = layers_[static_cast<size_t>(l)];
  PagedKv kv{};
  kv.k_pages = x.k;
  kv.v_pages = x.v;
  kv.k_scales = x.k_scale;
  kv.v_scales = x.v_scale;
  kv.kv_t = spec_.t;
  kv.page_tokens = spec_.page_tokens;
  return kv;
}

}  // namespace rw
