// The matrix product of another library, for the benchmark's second column.
#pragma once
#include <memory>

#include "kernels/dtype.h"

namespace rw::bench {

// c(m,n) f32 = op(a)(m,k) * b(k,n), the weights b packed beforehand, or all of it at run time when `packed` is no.
struct PeerProblem {
  int64_t m, n, k;
  DType t;
  bool packed, a_trans;
  int copies;  // of the packed weights, to rotate over
};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual void run(int copy) = 0;
};

// Null where the library is absent or refuses the type.
std::unique_ptr<Peer> make_peer(const PeerProblem& problem);
const char* peer_name();  // "oneDNN 2.6.3", or "" without one

}  // namespace rw::bench
