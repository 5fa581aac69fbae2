// Attention over pages: the way that a batch goes, and the merging of chunks that blocks went through apart.
#include "kernels/cuda/paged_work.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

// A block has a head of a decoding sequence.
__global__ void paged_merge_kernel(PagedWork a) {
  const int64_t s = blockIdx.x / a.heads, head = blockIdx.x % a.heads, chunks = chunks_of(a.context_len[s]);
  if (queries_of(a, s) != 1 || chunks == 1) return;
  for (int c = static_cast<int>(threadIdx.x); c < a.d; c += kPagedThreads) {
    const float* part = part_of(a, s, 0, head);
    float o = part[c], max = part[a.d], sum = part[a.d + 1];
    for (int64_t i = 1; i < chunks; ++i) {
      part = part_of(a, s, i, head);
      const MergeWeights w = merge_weights(max, part[a.d]);
      o = merged(w, o, part[c]);
      sum = merged(w, sum, part[a.d + 1]);
      max = w.max;
    }
    store_as(a.o, a.t, a.q_start[s] * a.ldo + head * a.d + c, o / sum);
  }
}

// A context's chunks are at most those of 256 positions each.
int most_chunks(const PagedAttention& a) {
  const int64_t context = a.max_pages * a.page_tokens, chunks = (context + kLeastChunk - 1) / kLeastChunk;
  return static_cast<int>(smaller(kMaxChunks, chunks < 1 ? 1 : chunks));
}

bool takes_16_bytes(const void* p, int64_t elements, DType t) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && elements * dtype_bytes(t) % 16 == 0;
}

}  // namespace

void paged_attention(const PagedAttention& a, Stream s) {
  CHECK(a.d > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
        "paged_attention: %lld heads over %lld kv heads of size %lld; heads must be a multiple of kv heads",
        static_cast<long long>(a.heads), static_cast<long long>(a.kv_heads), static_cast<long long>(a.d));
  CHECK(a.kv_t != DType::i8 || (a.k_scales != nullptr && a.v_scales != nullptr),
        "paged_attention: pages of i8 without scales");
  if (a.n_seq == 0) return;
  const int64_t ldo = a.ldo != 0 ? a.ldo : a.heads * a.d, ldq = a.ldq != 0 ? a.ldq : a.heads * a.d;
  const int chunks = a.workspace != nullptr ? most_chunks(a) : 1;
  const PagedWork w{
      .o = a.o,
      .q = a.q,
      .k = a.k_pages,
      .v = a.v_pages,
      .k_scales = a.k_scales,
      .v_scales = a.v_scales,
      .table = a.page_table,
      .q_start = a.q_start,
      .context_len = a.context_len,
      .n_seq = a.n_seq,
      .max_pages = a.max_pages,
      .ldo = ldo,
      .ldq = ldq,
      .page_tokens = a.page_tokens,
      .heads = static_cast<int>(a.heads),
      .kv_heads = static_cast<int>(a.kv_heads),
      .group = static_cast<int>(a.heads / a.kv_heads),
      .d = static_cast<int>(a.d),
      .scale_log2 = a.scale * 1.44269504F,
      .t = a.t,
      .tiles = !a.fixed_order && a.workspace != nullptr,
      .pieces = takes_16_bytes(a.k_pages, a.d, a.kv_t) && takes_16_bytes(a.v_pages, a.d, a.kv_t),
      .io_pieces = takes_16_bytes(a.q, a.d, a.t) && takes_16_bytes(a.o, a.d, a.t) &&
                   takes_16_bytes(nullptr, ldq, a.t) && takes_16_bytes(nullptr, ldo, a.t),
      .chunks = a.n_seq * a.kv_heads * chunks <= kDeviceChunkRoom ? chunks : 1,
      .parts = static_cast<float*>(a.workspace),
  };
  const bool in_tiles = a.d <= 256 && a.t != DType::f32 && (a.kv_t == a.t || a.kv_t == DType::i8);
  if (in_tiles) {
    paged_single_rows(w, a.kv_t, s);
    if (w.tiles) paged_tiled_rows(w, a.kv_t, s);
  } else {
    paged_in_floats(w, a.kv_t, s);
  }
  if (w.chunks > 1) LAUNCH(paged_merge_kernel, blocks_for(a.n_seq * a.heads, 1), dim3(kPagedThreads), 0, native(s), w);
}

int64_t paged_attention_workspace(const PagedAttention& a, Stream) { return device_paged_workspace(a); }

}  // namespace rw::cuda
