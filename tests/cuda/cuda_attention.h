// The cuda table's attention as its tests call it: in every order of the threads, which must give the same bits, on the
// rows that the test lends or on copies of them that begin at 16 bytes, as tensor cores take them.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/ops.h"
#include "tests/cuda/cuda_tables.h"

namespace rw::test {

enum class Place : uint8_t { as_is, aligned };

// Rows of an operand: `width` elements of `bytes` at every `ld`-th.
struct Span {
  void* at;
  int64_t rows, width, ld, bytes;

  char* row(int64_t r) const { return static_cast<char*>(at) + r * ld * bytes; }
  size_t row_bytes() const { return static_cast<size_t>(width * bytes); }
  std::vector<char> contents() const {
    std::vector<char> all;
    for (int64_t r = 0; r < rows; ++r) all.insert(all.end(), row(r), row(r) + row_bytes());
    return all;
  }
};
inline Span span_of(const void* at, int64_t rows, int64_t width, int64_t ld, DType t) {
  return {const_cast<void*>(at), rows, width, ld != 0 ? ld : width, dtype_bytes(t)};
}

// A copy of a span at an aligned place, with a row stride of whole 16-byte pieces and canaries (NaN) between.
class AlignedCopy {
 public:
  explicit AlignedCopy(const Span& of) : of_(of) {
    const int64_t stride = (of.width * of.bytes + 15) / 16 * 16 + 32;
    store_.assign(static_cast<size_t>(of.rows * stride + 64), 0xff);
    copy_ = {store_.data() + (16 - reinterpret_cast<uintptr_t>(store_.data()) % 16) % 16, of.rows, of.width,
             stride / of.bytes, of.bytes};
    for (int64_t r = 0; r < of.rows; ++r) std::memcpy(copy_.row(r), of.row(r), of.row_bytes());
  }
  AlignedCopy(const AlignedCopy&) = delete;
  AlignedCopy& operator=(const AlignedCopy&) = delete;
  void* data() const { return copy_.at; }
  int64_t ld() const { return copy_.ld; }
  const Span& span() const { return copy_; }
  void return_to_owner() {
    for (int64_t r = 0; r < of_.rows; ++r) {
      std::memcpy(of_.row(r), copy_.row(r), of_.row_bytes());
      std::memset(copy_.row(r), 0xff, of_.row_bytes());
    }
    CHECK(std::all_of(store_.begin(), store_.end(), [](unsigned char c) { return c == 0xff; }));
  }

 private:
  Span of_, copy_;
  std::vector<unsigned char> store_;
};

// run() in each order; what it leaves in `outputs` is the same.
template <class F>
void same_in_each_order(const F& run, const std::vector<Span>& outputs) {
  std::vector<std::vector<char>> first;
  in_each_order([&] {
    run();
    std::vector<std::vector<char>> found;
    for (const Span& o : outputs) found.push_back(o.contents());
    if (first.empty()) first = found;
    CHECK(first == found);
  });
}

template <Place place>
void fwd_in_each_order(const AttentionFwd& given, Stream s) {
  AttentionFwd a = given;
  const int64_t rows = a.cu_seqlens[a.n_seq], q_width = a.heads * a.d, kv_width = a.kv_heads * a.d;
  const Span lse = span_of(a.lse, rows, a.heads, 0, DType::f32);
  const auto run = [&] { waited_cuda_ops().attention_fwd(a, s); };
  if constexpr (place == Place::as_is) {
    same_in_each_order(run, {span_of(a.o, rows, q_width, a.ldo, a.t), lse});
  } else {
    AlignedCopy q(span_of(a.q, rows, q_width, a.ldq, a.t)), k(span_of(a.k, rows, kv_width, a.ldkv, a.t));
    AlignedCopy v(span_of(a.v, rows, kv_width, a.ldkv, a.t)), o(span_of(a.o, rows, q_width, a.ldo, a.t));
    a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
    a.ldq = q.ld(), a.ldkv = k.ld(), a.ldo = o.ld();
    same_in_each_order(run, {o.span(), lse});
    o.return_to_owner();
  }
}

template <Place place>
void bwd_in_each_order(const AttentionBwd& given, Stream s) {
  AttentionBwd a = given;
  const int64_t rows = a.cu_seqlens[a.n_seq], q_width = a.heads * a.d, kv_width = a.kv_heads * a.d;
  const Span d_q = span_of(a.d_q, rows, q_width, a.ldq, a.t), d_k = span_of(a.d_k, rows, kv_width, a.ldkv, a.t),
             d_v = span_of(a.d_v, rows, kv_width, a.ldkv, a.t);
  const auto run = [&] { waited_cuda_ops().attention_bwd(a, s); };
  if constexpr (place == Place::as_is) {
    same_in_each_order(run, {d_q, d_k, d_v});
  } else {
    AlignedCopy q(span_of(a.q, rows, q_width, a.ldq, a.t)), k(span_of(a.k, rows, kv_width, a.ldkv, a.t));
    AlignedCopy v(span_of(a.v, rows, kv_width, a.ldkv, a.t)), o(span_of(a.o, rows, q_width, a.ldo, a.t));
    AlignedCopy d_o(span_of(a.d_o, rows, q_width, a.ldo, a.t)), to_q(d_q), to_k(d_k), to_v(d_v);
    a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data(), a.d_o = d_o.data();
    a.d_q = to_q.data(), a.d_k = to_k.data(), a.d_v = to_v.data();
    a.ldq = q.ld(), a.ldkv = k.ld(), a.ldo = o.ld();
    same_in_each_order(run, {to_q.span(), to_k.span(), to_v.span()});
    for (AlignedCopy* copy : {&to_q, &to_k, &to_v}) copy->return_to_owner();
  }
}

inline void paged_in_each_order(const PagedAttention& a, Stream s) {
  const int64_t rows = a.n_seq == 0 ? 0 : a.q_start[a.n_seq];
  same_in_each_order([&] { waited_cuda_ops().paged_attention(a, s); }, {span_of(a.o, rows, a.heads * a.d, a.ldo, a.t)});
}
inline void kv_write_in_each_order(const KvWrite& a, Stream s) {
  const int64_t slots = a.rows == 0 ? 0 : *std::max_element(a.slot, a.slot + a.rows) + 1;
  std::vector<Span> outputs;
  for (const void* pages : {a.k_pages, a.v_pages})
    outputs.push_back(span_of(pages, slots, a.kv_heads * a.d, 0, a.kv_t));
  if (a.kv_t == DType::i8)
    for (const float* scales : {a.k_scales, a.v_scales})
      outputs.push_back(span_of(scales, slots, a.kv_heads, 0, DType::f32));
  same_in_each_order([&] { waited_cuda_ops().kv_write(a, s); }, outputs);
}

}  // namespace rw::test
