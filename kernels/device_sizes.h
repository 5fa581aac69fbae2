// What the cuda table takes beside operands, for itself and for dry runs and plans of GPUs on machines without one.
#pragma once
#include "kernels/ops.h"
#include "kernels/quant_shape.h"

namespace rw {

// What NVIDIA recommends as cuBLASLt's workspace for Hopper (cuBLAS documentation, cublasSetWorkspace).
constexpr int64_t kGemmLibraryBytes = 32 << 20;
// And room for a bias of the result's type, which is what cuBLASLt adds, at an address that it takes: whoever asks for
// room may not have the bias yet.
inline int64_t device_gemm_workspace(const Gemm& g) { return kGemmLibraryBytes + g.n * dtype_bytes(g.ct); }

// A weight (n,k) has one copy, in the type of the activations: as it is for the forward, and the b of the backward.
inline int64_t device_packed_bytes(const GemmPack& p) {
  return p.b_trans == Trans::yes ? p.n * p.k * dtype_bytes(p.t) : 0;
}

// delta: of each row and head the sum of d_o * o in f32, begun at a multiple of 4 bytes. cu_seqlens is the host's here.
constexpr int64_t kDeltaAlignment = 4;
inline int64_t device_attention_workspace(const AttentionBwd& a) {
  const int64_t rows = a.n_seq == 0 ? 0 : a.cu_seqlens[a.n_seq] - a.cu_seqlens[0];
  return rows * a.heads * int64_t{sizeof(float)} + kDeltaAlignment;
}

// Attention over pages: a context is gone through in at most so many chunks, by a block each where they have room in
// the workspace: so that up to 128 (sequence, kv head) pairs, about as many as a GPU has multiprocessors, may be split.
// A chunk leaves (d) of o, a maximum and a sum for each query head.
constexpr int64_t kDeviceMostChunks = 64, kDeviceChunkRoom = 128 * kDeviceMostChunks;
inline int64_t device_paged_workspace(const PagedAttention& a) {
  return kDeviceChunkRoom / (a.kv_heads < 1 ? 1 : a.kv_heads) * a.heads * (a.d + 2) * int64_t{sizeof(float)};
}

inline int64_t device_quant_packed_bytes(const QuantPack& p) { return quant_shape(p.bits, p.group, p.n, p.k).bytes; }
inline int64_t device_quant_workspace(const QuantGemm& g) {
  return quant_rows_bytes(g.m, quant_shape(g.bits, g.group, g.n, g.k));
}

}  // namespace rw
