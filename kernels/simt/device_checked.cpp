// The table that looks whether its operands lie in device memory, whole, before it calls the cuda table: what a GPU
// would answer with a crash, or with the wrong numbers of a stale copy.
//
// Index arrays lie on the device too: rows that hang on them are looked at when the stream has come there.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/table.h"
#include "kernels/operands.h"
#include "kernels/simt/runtime.cuh"
#include "kernels/wrap_ops.h"

namespace rw {
namespace {

using simt::device_block;

[[noreturn]] void misplaced(const char* op, const char* field, const std::string& what) {
  throw std::logic_error(std::string("device memory: ") + op + ": " + field + " " + what);
}

class Look {
 public:
  explicit Look(const char* op) : op_(op) {}
  void on_device(const char* field, const void* data, int64_t bytes) const {
    if (bytes <= 0) return;
    const simt::DeviceBlock block = device_block(data);
    if (block.begin == nullptr)
      misplaced(op_, field,
                data == nullptr ? "is null" : "lies in the host's memory: upload it, and pass its place on the device");
    const int64_t room = block.begin + block.bytes - static_cast<const char*>(data);
    if (bytes > room)
      misplaced(
          op_, field,
          "has " + std::to_string(bytes) + " bytes, its block of device memory ends after " + std::to_string(room));
  }
  void on_host(const char* field, const void* data, int64_t bytes) const {
    if (bytes > 0 && (data == nullptr || device_block(data).begin != nullptr))
      misplaced(op_, field, "lies in device memory, expected the host's");
  }
  template <class T>
  void array(const char* field, const T* data, int64_t n) const {
    on_device(field, data, n * static_cast<int64_t>(sizeof(T)));
  }
  void matrix(const Operand& o) const {
    if (o.data == nullptr || o.rows <= 0 || o.cols <= 0) return;
    const int64_t bytes = dtype_bytes(o.t), ld = o.ld != 0 ? o.ld : o.cols;
    int64_t rows = o.at.empty() ? o.rows : 0;
    for (const int64_t row : o.at) {
      if (row < 0) misplaced(op_, o.field, "is asked for row " + std::to_string(row));
      rows = std::max(rows, row + 1);
    }
    on_device(o.field, o.data, ((rows - 1) * ld + o.cols) * bytes);
  }

 private:
  const char* op_;
};

// What operands() leaves out. Index arrays: before anybody reads them.
template <class Args>
struct Indices : std::false_type {
  static void look(const Look&, const Args&) {}
};
template <>
struct Indices<Rope> : std::true_type {
  static void look(const Look& l, const Rope& a) { l.array("pos", a.pos, a.rows); }
};
template <class Args>
struct Sequences : std::true_type {
  static void look(const Look& l, const Args& a) {
    if (a.n_seq > 0) l.array("cu_seqlens", a.cu_seqlens, a.n_seq + 1);
  }
};
template <>
struct Indices<AttentionFwd> : Sequences<AttentionFwd> {};
template <>
struct Indices<AttentionBwd> : Sequences<AttentionBwd> {};
template <>
struct Indices<KvWrite> : std::true_type {
  static void look(const Look& l, const KvWrite& a) { l.array("slot", a.slot, a.rows); }
};
template <>
struct Indices<PagedAttention> : std::true_type {
  static void look(const Look& l, const PagedAttention& a) {
    if (a.n_seq == 0) return;
    l.array("page_table", a.page_table, a.n_seq * a.max_pages);
    l.array("q_start", a.q_start, a.n_seq + 1);
    l.array("context_len", a.context_len, a.n_seq);
  }
};
template <>
struct Indices<EmbeddingFwd> : std::true_type {
  static void look(const Look& l, const EmbeddingFwd& a) {
    l.array("id", a.id, a.rows);
    if (a.pos_table != nullptr) l.array("pos", a.pos, a.rows);
  }
};
template <>
struct Indices<EmbeddingBwd> : std::true_type {
  static void look(const Look& l, const EmbeddingBwd& a) {
    l.array("id", a.id, a.rows);
    if (a.d_pos_table != nullptr) l.array("pos", a.pos, a.rows);
  }
};
template <>
struct Indices<CrossEntropyPart> : std::false_type {  // targets choose no rows
  static void look(const Look& l, const CrossEntropyPart& a) { l.array("target", a.target, a.rows); }
};
template <>
struct Indices<CrossEntropyFinish> : std::false_type {
  static void look(const Look& l, const CrossEntropyFinish& a) { l.array("target", a.target, a.rows); }
};

void look_at_rest(const Look& l, const Gemm& g, Stream s) {
  if (g.m == 0 || g.n == 0 || g.k == 0) return;
  l.on_device("workspace", g.workspace, cuda::gemm_workspace(g, s));
  const GemmPack packed{
      .packed = nullptr, .b = nullptr, .n = g.n, .k = g.k, .b_trans = Trans::yes, .src_t = g.t, .t = g.t};
  if (g.b_packed != nullptr) l.on_device("b_packed", g.b_packed, cuda::packed_bytes(packed, s));
}
void look_at_rest(const Look& l, const GemmPack& g, Stream s) {
  l.on_device("packed", g.packed, cuda::packed_bytes(g, s));
}
int64_t quant_bytes(int64_t n, int64_t k, QuantBits bits, int64_t group, Stream s) {
  return cuda::quant_packed_bytes({.packed = nullptr, .b = nullptr, .n = n, .k = k, .bits = bits, .group = group}, s);
}
void look_at_rest(const Look& l, const QuantPack& g, Stream s) {
  l.on_device("packed", g.packed, cuda::quant_packed_bytes(g, s));
}
void look_at_rest(const Look& l, const QuantUnpack& g, Stream s) {
  l.on_device("packed", g.packed, quant_bytes(g.n, g.k, g.bits, g.group, s));
}
void look_at_rest(const Look& l, const QuantGemm& g, Stream s) {
  if (g.m == 0 || g.n == 0 || g.k == 0) return;
  l.on_device("b_packed", g.b_packed, quant_bytes(g.n, g.k, g.bits, g.group, s));
  l.on_device("workspace", g.workspace, cuda::quant_gemm_workspace(g, s));
}
// The forward has no scratch of its own on this device.
void look_at_rest(const Look& l, const AttentionBwd& a, Stream s) {
  if (a.n_seq > 0) l.on_device("workspace", a.workspace, cuda::attention_workspace(a, s));
}
void look_at_rest(const Look& l, const PagedAttention& a, Stream s) {
  if (a.n_seq > 0 && a.workspace != nullptr)
    l.on_device("workspace", a.workspace, cuda::paged_attention_workspace(a, s));
}
void look_at_rest(const Look& l, const SampleScan& a, Stream) {
  if (a.n == 0) return;
  l.array("facts", a.facts, a.n);
  l.array("best_z", a.best_z, a.n * a.most_best);
  l.array("best_column", a.best_column, a.n * a.most_best);
  l.array("ask", a.ask, a.n);
}
void look_at_rest(const Look& l, const Zero& a, Stream) { l.on_device("y", a.y, a.bytes); }
void look_at_rest(const Look& l, const Read& a, Stream) { l.on_host("host", a.host, a.n * dtype_bytes(a.t)); }
void look_at_rest(const Look& l, const Upload& a, Stream) {
  if (a.device == a.host) return;  // nothing is done: an arena that only counts has no memory of the device
  l.on_device("device", a.device, a.bytes);
  l.on_host("host", a.host, a.bytes);
}
template <class Args>
void look_at_rest(const Look&, const Args&, Stream) {}

template <class Args>
void look_at_all(const Look& l, const Args& a, Stream s) {
  const Operands all = operands(a);
  const auto each = [&](const std::vector<Operand>& some) {
    for (const Operand& o : some) {
      const auto* at = static_cast<const char*>(o.data);
      const auto* own = reinterpret_cast<const char*>(&a);
      if (at >= own && at < own + sizeof a) continue;  // a number among the arguments
      if constexpr (std::is_same_v<Args, Read>)
        if (o.data == a.host) continue;
      l.matrix(o);
    }
  };
  each(all.in);
  each(all.out);
  look_at_rest(l, a, s);
}

struct LookedAt {
  template <auto op, OpName name, class Args>
  static void call(const Args& a, Stream s) {
    const Look look(name.text);
    Indices<Args>::look(look, a);
    if constexpr (Indices<Args>::value)
      simt::enqueue(static_cast<cudaStream_t>(s.native), [=] { look_at_all(look, a, s); });
    else look_at_all(look, a, s);
    (cuda_ops().*op)(a, s);
  }
  template <auto op, class Args>
  static int64_t size(const Args& a, Stream s) {
    return (cuda_ops().*op)(a, s);
  }
};

}  // namespace

namespace cuda {

const Ops& device_ops() {
  static constexpr Ops looked_at = wrap_ops<LookedAt>("cuda");
  return simt::guarded() ? looked_at : cuda_ops();
}

}  // namespace cuda
}  // namespace rw
