// all_reduce of f32 sums, in place and staged, against MPI_Allreduce: `mpirun -n N comm_bench [SECONDS_PER_CASE]`.
// One JSON object a line on stdout, by rank 0. busbw = 2 (n-1)/n * bytes / median time: what each rank's link would
// carry in a ring, comparable between numbers of ranks. The three take turns inside one run, so that a slow phase of
// the machine hits all. "used" rewrites the whole buffer before each round, as gradients do; the plain figures find it
// where the last round left it. A round's time is the slowest rank's.
#include <fmt/core.h>
#include <malloc.h>

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/comm/comm.h"

using namespace rw;

namespace {

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct Way {
  const char* name;
  float* data;
  std::function<void(float*, int64_t)> run;
  std::vector<double> plain_s, used_s;
};

}  // namespace

int main(int argc, char** argv) {
  // As the tools do: fresh pages cost more than the collectives (glibc's own default unmaps MPI's big temporaries).
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.3;
  auto comm = make_world_comm();
  if (comm->size() == 1) {
    fmt::print(stderr, "comm_bench: run it as mpirun -n 2 comm_bench\n");
    return 2;
  }
  constexpr int64_t kMaxBytes = 64 << 20;
  auto shared = comm->allocate(kMaxBytes);
  std::vector<float> staged(kMaxBytes / 4), mpi(kMaxBytes / 4);
  auto ours = [&](float* x, int64_t n) { comm->all_reduce(x, n, DType::f32, ReduceOp::sum); };
  std::array<Way, 3> ways{{{"in_place", static_cast<float*>(shared.data), ours, {}, {}},
                           {"staged", staged.data(), ours, {}, {}},
                           {"mpi_allreduce",
                            mpi.data(),
                            [](float* x, int64_t n) {
                              MPI_Allreduce(MPI_IN_PLACE, x, static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                            },
                            {},
                            {}}}};
  for (int64_t bytes = 1 << 10; bytes <= kMaxBytes; bytes *= 4) {
    const int64_t n = bytes / 4;
    for (Way& w : ways) {
      w.plain_s.clear();
      w.used_s.clear();
    }
    const int64_t batch = std::max<int64_t>(1, (256 << 10) / bytes);  // one clock reading for several small ones
    const double end = now_s() + seconds * static_cast<double>(ways.size());
    bool more = true;
    for (int round = 0; more; ++round) {
      for (Way& w : ways) {
        comm->barrier();
        double start = now_s();
        for (int64_t b = 0; b < batch; ++b) w.run(w.data, n);
        const double plain = (now_s() - start) / static_cast<double>(batch);
        std::fill(w.data, w.data + n, 1.0f);
        comm->barrier();
        start = now_s();
        w.run(w.data, n);
        const double used = now_s() - start;
        std::fill(w.data, w.data + n, 0.0f);
        if (round < 2) continue;  // warm-up
        w.plain_s.push_back(comm->all_reduce_value(plain, ReduceOp::max));
        w.used_s.push_back(comm->all_reduce_value(used, ReduceOp::max));
      }
      more = comm->all_reduce_value(static_cast<int64_t>(now_s() < end || round < 7), ReduceOp::max) != 0;
    }
    if (comm->rank() != 0) continue;
    fmt::print(
        "{{\"op\": \"all_reduce\", \"type\": \"f32\", \"ranks\": {}, \"comm\": \"{}\", \"bytes\": {}, \"rounds\": {}",
        comm->size(), comm->name(), bytes, ways[0].plain_s.size());
    const double volume = 2.0 * (comm->size() - 1) / comm->size() * static_cast<double>(bytes);
    for (const Way& w : ways)
      fmt::print(", \"{0}_us\": {1:.2f}, \"{0}_busbw_gb_s\": {2:.2f}, \"{0}_used_us\": {3:.2f}", w.name,
                 median(w.plain_s) * 1e6, volume / median(w.plain_s) / 1e9, median(w.used_s) * 1e6);
    fmt::print("}}\n");
    std::fflush(stdout);
  }
  return 0;
}
