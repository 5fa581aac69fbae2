// Laws of a device's layouts: ranks that share the work, each on a device of its own and joined by NCCL, train as one
// rank of the CPU does.
#include "libcore/train/replica_check.h"
#include "tests/device_train/small_case.h"

using namespace rw;
using namespace rw::parallel;

namespace {

// One and the same for all layouts of a family: made once.
const Reference& reference(const Case& c, const std::string& family) {
  static std::map<std::string, Reference> made;
  const std::string key = family + std::to_string(c.model.layers);
  if (const auto found = made.find(key); found != made.end()) return found->second;
  return made[key] = cpu_reference(c);
}

template <typename Change>
void check_layout(const std::string& family, int64_t layers, Change change) {
  Case c = small_case(family, layers);
  const Reference& r = reference(c, family);
  change(c.layout);
  const Curve got = train(c, [](TrainStep& step) { CHECK(replica_difference(step) == ""); });
  check_close(got, r, family + ", " + c.layout.text());
  CHECK(first_step_close(got, r.curve));
}

}  // namespace

TEST_CASE("law 1: tensor parallelism on devices trains as one rank of the CPU does") {
  check_layout("gpt2", 2, [](Layout& l) { l.tp = 2; });
  check_layout("qwen2", 2, [](Layout& l) { l.tp = 2; });  // a key/value head that both hold
}

TEST_CASE("law 2: sequence parallelism on devices trains as one rank of the CPU does") {
  check_layout("gpt2", 2, [](Layout& l) { l.tp = 2, l.sp = true; });  // rows that do not divide
}

TEST_CASE("law 3: a 1F1B pipeline on devices trains as one rank of the CPU does") {
  check_layout("gpt2", 2, [](Layout& l) { l.pp = 2; });  // a tied embedding at both ends
}

TEST_CASE("law 4: an interleaved pipeline on devices trains as one rank of the CPU does") {
  check_layout("llama", 4, [](Layout& l) { l.pp = 2, l.vpp = 2, l.schedule = ScheduleKind::interleaved; });
}

TEST_CASE("law 5: data parallelism on devices trains as one rank of the CPU does") {
  check_layout("llama", 2, [](Layout& l) { l.dp = 2; });
}

TEST_CASE("law 6: ZeRO 1, 2 and 3 on devices train as one rank of the CPU does") {
  for (const int64_t zero : {1, 2, 3}) check_layout("llama", 2, [&](Layout& l) { l.dp = 2, l.zero = zero; });
  check_layout("llama", 2, [](Layout& l) { l.zero = 3; });  // sharded among one
}

TEST_CASE("law 7: tensor and pipeline parallelism together on devices train as one rank of the CPU does") {
  check_layout("llama", 2, [](Layout& l) { l.tp = 2, l.pp = 2, l.schedule = ScheduleKind::zb_h1; });
}
