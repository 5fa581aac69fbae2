// The implementations of the matrix product that this CPU runs, and one product with canaries around all it may touch.
#pragma once
#include <string>
#include <vector>

#include "tests/kernels/array.h"
#if !defined(RW_TEST_CUDA)
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_amx.h"
#endif

namespace rw::test {

#if defined(RW_TEST_CUDA)
constexpr bool kRoundsBias = true;  // to c's type, before it is added
// The table's products under the names that the CPU's have.
struct PanelKernel {};
inline int64_t panels_packed_bytes(const PanelKernel&, const GemmPack& p) {
  return waited_cuda_ops().packed_bytes(p, {});
}
inline void panels_pack(const PanelKernel&, const GemmPack& p, Stream s) { waited_cuda_ops().gemm_pack(p, s); }
inline int64_t panels_workspace(const PanelKernel&, const Gemm& g, Stream s) {
  return waited_cuda_ops().gemm_workspace(g, s);
}
inline void panels_gemm(const PanelKernel&, const Gemm& g, Stream s) { waited_cuda_ops().gemm(g, s); }
#else
constexpr bool kRoundsBias = false;
#endif

struct GemmBackend {
  std::string name;
  const PanelKernel& kernel;
};

#if defined(RW_TEST_CUDA)
inline std::vector<GemmBackend> gemm_backends(DType) {
  static const PanelKernel kernel;
  return {{"cuda", kernel}};
}
#else
inline std::vector<GemmBackend> gemm_backends(DType t) {
  std::vector<GemmBackend> all;
  for (Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    all.push_back({isa_name(isa), gemm_kernel(isa, t)});
    const PanelKernel& vector = gemm_kernel(isa, t, Bf16Unit::vector);
    if (&vector != &all.back().kernel) all.push_back({std::string(isa_name(isa)) + " without tiles", vector});
  }
  return all;
}
#endif

// `bytes` at a 64-byte boundary, with canaries behind.
class Aligned {
 public:
  explicit Aligned(int64_t bytes) : bytes_(bytes), store_(static_cast<size_t>(bytes + 64 + kGuard), kCanary) {}
  char* data() { return store_.data() + (64 - reinterpret_cast<uintptr_t>(store_.data()) % 64) % 64; }
  bool canaries_alive() {
    return std::all_of(data() + bytes_, store_.data() + store_.size(), [](char c) { return c == kCanary; });
  }

 private:
  static constexpr int64_t kGuard = 256;
  static constexpr char kCanary = 0x5a;
  int64_t bytes_;
  std::vector<char> store_;
};

enum class Packed : uint8_t { no, yes };

// g without its workspace and packed B, which are made here; returns whether all canaries lived.
inline bool run_gemm(const PanelKernel& kernel, Gemm g, Packed packed, int threads) {
  const Stream stream{threads};
  const GemmPack pack{
      .packed = nullptr, .b = g.b, .n = g.n, .k = g.k, .ldb = g.ldb, .b_trans = g.b_trans, .src_t = g.t, .t = g.t};
  const int64_t bytes = packed == Packed::yes ? panels_packed_bytes(kernel, pack) : 0;
  Aligned b(bytes);
  if (bytes > 0) {  // else b serves as it is
    GemmPack into = pack;
    into.packed = b.data();
    panels_pack(kernel, into, stream);
    g.b_packed = b.data();
    g.b = nullptr;
  }
  Aligned workspace(panels_workspace(kernel, g, stream));
  g.workspace = workspace.data();
  panels_gemm(kernel, g, stream);
  return b.canaries_alive() && workspace.canaries_alive();
}

}  // namespace rw::test
