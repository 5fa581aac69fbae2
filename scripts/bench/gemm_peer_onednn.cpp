#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "scripts/bench/gemm_peer.h"

namespace rw::bench {
namespace {

using dnnl::memory;

class OneDnn : public Peer {
 public:
  explicit OneDnn(const PeerProblem& p) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const auto t = p.t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::desc a({p.m, p.k}, t, p.a_trans ? memory::dims{1, p.m} : memory::dims{p.k, 1});
    const memory::desc b({p.k, p.n}, t, p.packed ? memory::format_tag::any : memory::format_tag::ab);
    const memory::desc c({p.m, p.n}, memory::data_type::f32, memory::format_tag::ab);
    dnnl::primitive_attr attr;
    if (!p.packed) {  // a gradient of weights: accumulated
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    const dnnl::matmul::primitive_desc d({a, b, c}, attr, engine_);
    primitive_ = dnnl::matmul(d);
    a_ = zeros(d.src_desc()), c_ = zeros(d.dst_desc());
    for (int i = 0; i < p.copies; ++i) b_.push_back(zeros(d.weights_desc()));
  }
  void run(int copy) override {
    primitive_.execute(stream_,
                       {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_[static_cast<size_t>(copy)]}, {DNNL_ARG_DST, c_}});
  }

 private:
  memory zeros(const memory::desc& d) {
    memory m(d, engine_);
    std::memset(m.get_data_handle(), 0, d.get_size());
    return m;
  }
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  memory a_, c_;
  std::vector<memory> b_;
};

}  // namespace

std::unique_ptr<Peer> make_peer(const PeerProblem& p) {
  try {
    return std::make_unique<OneDnn>(p);
  } catch (const dnnl::error&) {  // bf16 below AVX-512
    return nullptr;
  }
}

const char* peer_name() {
  static const std::string name = [] {
    const auto* v = dnnl::version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
  }();
  return name.c_str();
}

}  // namespace rw::bench
