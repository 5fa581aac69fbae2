// Attention over pages as the tests of the cuda table call it: on what the test lends, and on copies of pages, q and o
// that begin at 16 bytes, which kernels read in pieces.
#pragma once
#include "tests/cuda/cuda_attention.h"

namespace rw::test {

inline void paged_on_aligned(const PagedAttention& given, Stream s) {
  PagedAttention a = given;
  const int64_t sequences = a.n_seq, rows = sequences == 0 ? 0 : a.q_start[sequences];
  int64_t pages = 0;
  for (int64_t i = 0; i < sequences * a.max_pages; ++i) pages = std::max<int64_t>(pages, a.page_table[i] + 1);
  const auto bytes = static_cast<size_t>(pages * a.page_tokens * a.kv_heads * a.d * dtype_bytes(a.kv_t));
  std::vector<char> k(bytes + 16), v(bytes + 16);
  const auto aligned = [bytes](std::vector<char>& to, const void* from) {
    char* const at = to.data() + (16 - reinterpret_cast<uintptr_t>(to.data()) % 16) % 16;
    std::memcpy(at, from, bytes);
    return at;
  };
  a.k_pages = aligned(k, a.k_pages), a.v_pages = aligned(v, a.v_pages);
  AlignedCopy q(span_of(a.q, rows, a.heads * a.d, a.ldq, a.t)), o(span_of(a.o, rows, a.heads * a.d, a.ldo, a.t));
  a.q = q.data(), a.o = o.data(), a.ldq = q.ld(), a.ldo = o.ld();
  same_in_each_order([&] { waited_cuda_ops().paged_attention(a, s); }, {o.span()});
  o.return_to_owner();
}

// The backend whose rows are aligned takes aligned pages too.
template <class Backend>
void paged_of(const Backend& b, const PagedAttention& a, Stream s) {
  if (b.has_f32) b.paged(a, s);
  else paged_on_aligned(a, s);
}

}  // namespace rw::test
