#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

// Whether the table, a range of the vocabulary's rows, has this id.
template <class Args>
bool held(const Args& a, int64_t id) {
  return id >= a.id_begin && id < a.id_end;
}

template <class W, class T>
void look_up(const EmbeddingFwd& a, W, T, Stream s) {
  parallel_ranges(s.threads, a.rows, row_grain(a.c), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* x = static_cast<T*>(a.x) + r * a.c;
      const W* row = held(a, a.id[r]) ? static_cast<const W*>(a.table) + (a.id[r] - a.id_begin) * a.c : nullptr;
      const float* pos_row = a.pos_table ? a.pos_table + a.pos[r] * a.c : nullptr;
      if (row && pos_row) {
        each_vector(0, a.c, [&](int64_t i, auto part) RW_LAMBDA {
          store(x + i, load(row + i, part) + load(pos_row + i, part), part);
        });
      } else if (row) {
        each_vector(0, a.c, [&](int64_t i, auto part) RW_LAMBDA { store(x + i, load(row + i, part), part); });
      } else if (pos_row) {
        each_vector(0, a.c, [&](int64_t i, auto part) RW_LAMBDA { store(x + i, load(pos_row + i, part), part); });
      } else {
        __builtin_memset(x, 0, static_cast<uint64_t>(a.c) * sizeof(T));
      }
    }
  });
}

template <class T>
void add_to(float* d_row, const T* d_x, int64_t begin, int64_t end) {
  each_vector(begin, end, [&](int64_t i, auto part) RW_LAMBDA {
    store(d_row + i, load(d_row + i, part) + load(d_x + i, part), part);
  });
}

}  // namespace

void embedding_fwd(const EmbeddingFwd& a, Stream s) {
  CHECK(!a.pos_table || a.pos || a.rows == 0, "embedding_fwd: pos_table is given without pos");
  with_type(a.table_t, [&](auto entry) { with_type(a.t, [&](auto element) { look_up(a, entry, element, s); }); });
}

// An id may occur in many rows: threads take columns, so that each element of the tables is summed in row order by one
// thread.
void embedding_bwd(const EmbeddingBwd& a, Stream s) {
  CHECK(!a.d_pos_table || a.pos || a.rows == 0, "embedding_bwd: d_pos_table is given without pos");
  const int64_t worth = a.rows * a.c / kElementGrain + 1;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const T* d_x = static_cast<const T*>(a.d_x);
    parallel_ranges(worth < s.threads ? worth : s.threads, a.c, 64, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < a.rows; ++r) {
        if (a.d_table && held(a, a.id[r])) add_to(a.d_table + (a.id[r] - a.id_begin) * a.c, d_x + r * a.c, begin, end);
        if (a.d_pos_table) add_to(a.d_pos_table + a.pos[r] * a.c, d_x + r * a.c, begin, end);
      }
    });
  });
}

}  // namespace rw::RW_ISA
