// parallel_ranks RANKS_PER_NODE: trains, on the processes of an mpirun job of 8, layouts of 8 ranks in which every pair
// of choices is met, and holds them to one rank's losses and norms. Ranks of one node add in the order that threads do:
// there the bits are those of thread ranks.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>

#include "tests/support/layout_matrix.h"

using namespace rw;
using namespace rw::parallel;

namespace {

struct Reference {
  Curve curve, bound;
};

const Reference& reference(const std::string& family) {
  static std::map<std::string, Reference> made;
  if (const auto found = made.find(family); found != made.end()) return found->second;
  const Case c{.model = family_model(family), .layout = base_layout(), .steps = 3};
  return made[family] = {train(c), rounding_bound(c)};
}

// "" when all is well, on rank 0.
std::string fault(const Curve& got, const Case& c, const std::string& family, bool as_threads) {
  const Reference& r = reference(family);
  const double ratio = worst_ratio(got, r.curve, r.bound);
  std::printf("%s, %s: loss %.6f -> %.6f, %.3f of the bound\n", family.c_str(), c.layout.text().c_str(),
              got.losses.front(), got.losses.back(), ratio);
  if (!(ratio <= 1) || !first_step_close(got, r.curve)) return "not as one rank";
  if (as_threads && got != train(c)) return "not the bits of thread ranks";
  return "";
}

int run(int ranks_per_node) {
  const std::unique_ptr<Comm> world = make_world_comm({.ranks_per_node = ranks_per_node});
  std::vector<Combination> combinations;
  for (const Combination& c : layout_matrix())
    if (c.layout().ranks() == world->size()) combinations.push_back(c);
  combinations = pairwise_cover(combinations);
  int64_t faults = 0;
  for (const Combination& combination : combinations) {
    const std::string family = combination.family_name();
    const Case c{.model = family_model(family), .layout = combination.layout(), .steps = 3};
    const Curve got = train_rank(*world, c);
    std::string what;
    if (world->rank() == 0) what = fault(got, c, family, ranks_per_node == 0);
    if (!what.empty()) std::printf("  %s\n", what.c_str()), ++faults;
  }
  faults = world->all_reduce_value(faults, ReduceOp::sum);
  if (world->rank() == 0)
    std::printf("%zu layouts on %d ranks, %lld faults\n", combinations.size(), world->size(),
                static_cast<long long>(faults));
  return faults == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoi(argv[1]) : 0);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    abort_world(1);
  }
}
