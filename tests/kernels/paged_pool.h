// A pool of pages that holds the sequences of a shape, and the backends of attention over it.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/kernels/attention_backends.h"
#if defined(RW_TEST_CUDA)
#include "tests/cuda/cuda_paged.h"
#endif

namespace rw::test {

#if defined(RW_TEST_CUDA)
constexpr bool kFewer = true;  // runs that would differ in the number of threads alone
#else
constexpr bool kFewer = false;
template <class Backend>
void paged_of(const Backend& b, const PagedAttention& a, Stream s) {
  b.paged(a, s);
}
#endif
inline std::vector<int> teams(const std::vector<int>& all) { return kFewer ? std::vector<int>{1} : all; }

// A pool of pages that holds sequences of a shape, each page in a scattered place, filled through kv_write.
struct Pool {
  Shape shape;
  DType t, kv_t;  // of the batch, of the pages
  int64_t page_tokens, max_pages;
  std::vector<int32_t> table;
  std::vector<int64_t> slots;
  Rows k, v;  // (pool rows, Hkv D); as bytes, with canaries behind, when the pages are i8
  std::vector<float> k_scales, v_scales;
  bool fixed_order = false, lends_workspace = true;
  std::vector<uint8_t> workspace;

  static int64_t longest(const Shape& s) {
    return s.lengths.empty() ? 0 : *std::max_element(s.lengths.begin(), s.lengths.end());
  }
  static int64_t pages_each(const Shape& s, int64_t page) { return longest(s) / page + 1; }
  static int64_t pool_rows(const Shape& s, int64_t page) {
    return static_cast<int64_t>(s.lengths.size()) * pages_each(s, page) * page;
  }

  Pool(const Shape& s, DType type, int64_t page) : Pool(s, type, page, type) {}
  Pool(const Shape& s, DType type, int64_t page, DType pages)
      : shape(s),
        t(type),
        kv_t(pages),
        page_tokens(page),
        max_pages(pages_each(s, page)),
        k(pages, pool_rows(s, page), s.kv_heads * s.d),
        v(pages, pool_rows(s, page), s.kv_heads * s.d) {
    if (pages == DType::i8) {
      const auto n = static_cast<size_t>(pool_rows(s, page) * s.kv_heads);
      k_scales.assign(n + 3, -7.0f);
      v_scales.assign(n + 3, -7.0f);
    }
    const int64_t n = static_cast<int64_t>(s.lengths.size()) * max_pages;
    for (int64_t i = 0; i < n; ++i) table.push_back(static_cast<int32_t>(n - 1 - i));
    for (size_t seq = 0; seq < s.lengths.size(); ++seq) {
      for (int64_t i = 0; i < s.lengths[seq]; ++i)
        slots.push_back(table[static_cast<size_t>(static_cast<int64_t>(seq) * max_pages + i / page)] * page + i % page);
    }
  }
  void fill(const Backend& b, Run& run, int threads) {
    b.kv_write({.k_pages = k.data(),
                .v_pages = v.data(),
                .k = run.qkv.data(run.k_column()),
                .v = run.qkv.data(run.v_column()),
                .slot = slots.data(),
                .rows = static_cast<int64_t>(slots.size()),
                .kv_heads = shape.kv_heads,
                .d = shape.d,
                .ld = run.qkv.stride(),
                .t = t,
                .kv_t = kv_t,
                .k_scales = k_scales.data(),
                .v_scales = v_scales.data()},
               Stream{threads});
    CHECK((k.intact_outside(0, shape.kv_heads * shape.d) && v.intact_outside(0, shape.kv_heads * shape.d)));
    for (const std::vector<float>* x : {&k_scales, &v_scales}) {
      const auto behind = std::min<int64_t>(3, std::ssize(*x));
      CHECK(std::count(x->end() - behind, x->end(), -7.0f) == behind);
    }
  }
  // What the pages hold of the sequences, in the order of the batch.
  Values held(Rows& pages, const std::vector<float>& scales) {
    const int64_t width = shape.kv_heads * shape.d;
    const std::vector<double> all = pages.get(0, width);
    Values values;
    for (int64_t slot : slots) {
      for (int64_t i = 0; i < width; ++i) {
        const auto scale = static_cast<size_t>(slot * shape.kv_heads + i / shape.d);
        const double x = all[static_cast<size_t>(slot * width + i)];
        values.push_back(kv_t == DType::i8 ? x * static_cast<double>(scales[scale]) : x);
      }
    }
    return values;
  }
  Inputs held_inputs(const Inputs& in) {
    Inputs kept = in;
    kept.k = held(k, k_scales);
    kept.v = held(v, v_scales);
    return kept;
  }
  // The queries first[s] .. first[s] + n[s] of each sequence, read from run.qkv and written to run.o where the dense
  // attention would write them (the batch in between is packed).
  void attend(const Backend& b, Run& run, const std::vector<int32_t>& first, const std::vector<int32_t>& n,
              int threads) {
    const int64_t width = run.q_width();
    const std::vector<double> all = run.qkv.get(0, run.q_width());
    std::vector<double> picked;
    std::vector<int32_t> start{0}, context;
    for (size_t s = 0; s < n.size(); ++s) {
      const int64_t row = run.cu[s] + first[s];
      picked.insert(picked.end(), all.begin() + row * width, all.begin() + (row + n[s]) * width);
      start.push_back(start.back() + n[s]);
      context.push_back(first[s] + n[s]);
    }
    Rows q(t, start.back(), run.q_width() + 7), o(t, start.back(), run.q_width() + 1);
    q.put(0, run.q_width(), picked);
    PagedAttention a{.o = o.data(),
                     .q = q.data(),
                     .k_pages = k.data(),
                     .v_pages = v.data(),
                     .page_table = table.data(),
                     .q_start = start.data(),
                     .context_len = context.data(),
                     .n_seq = static_cast<int64_t>(n.size()),
                     .max_pages = max_pages,
                     .page_tokens = page_tokens,
                     .heads = shape.heads,
                     .kv_heads = shape.kv_heads,
                     .d = shape.d,
                     .ldo = o.stride(),
                     .ldq = q.stride(),
                     .scale = run.scale,
                     .t = t,
                     .kv_t = kv_t,
                     .k_scales = k_scales.data(),
                     .v_scales = v_scales.data(),
                     .fixed_order = fixed_order};
    const int64_t bytes = b.paged_workspace(a, Stream{threads});
    workspace.assign(static_cast<size_t>(bytes) + 128, 0xa7);
    uint8_t* const aligned = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
    a.workspace = lends_workspace ? aligned : nullptr;
    paged_of(b, a, Stream{threads});
    CHECK(std::all_of(aligned + bytes, workspace.data() + workspace.size(), [](uint8_t x) { return x == 0xa7; }));
    CHECK(o.intact_outside(0, run.q_width()));
    const std::vector<double> got = o.get(0, run.q_width());
    for (size_t s = 0; s < n.size(); ++s)
      std::copy(got.begin() + start[s] * width, got.begin() + start[s + 1] * width,
                result.begin() + (run.cu[s] + first[s]) * width);
  }
  std::vector<double> result;
};

inline std::string describe(const Shape& s, const Backend& b, DType t) {
  return std::string(b.name) + " " + dtype_name(t) + " H" + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
         " D" + std::to_string(s.d) + " T" + std::to_string(s.tokens());
}

}  // namespace rw::test
