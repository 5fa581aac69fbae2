#include <cstdlib>
#include <stdexcept>

#include "tests/kernels/array.h"

namespace rw::test {
namespace {

// RANKWRIGHT_ISA for a scope; tests run on one thread.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    if (const char* was = std::getenv("RANKWRIGHT_ISA")) was_ = was;
    if (value) setenv("RANKWRIGHT_ISA", value, 1);
    else unsetenv("RANKWRIGHT_ISA");
  }
  ~IsaVariable() {
    if (was_.empty()) unsetenv("RANKWRIGHT_ISA");
    else setenv("RANKWRIGHT_ISA", was_.c_str(), 1);
  }

 private:
  std::string was_;
};

TEST_CASE("cpu_ops picks the best set, the one named, or the one in the environment") {
  {
    const IsaVariable unset(nullptr);
    CHECK(std::string(cpu_ops().name) == std::string("cpu/") + isa_name(best_isa()));
  }
  const IsaVariable scalar("scalar");
  CHECK(std::string(cpu_ops().name) == "cpu/scalar");
  for (Isa isa : kIsas) {
    if (isa_supported(isa)) CHECK(std::string(cpu_ops(isa_name(isa)).name) == std::string("cpu/") + isa_name(isa));
  }
}

TEST_CASE("cpu_ops refuses unknown names and says what there is") {
  const IsaVariable bad("sse9");
  for (const char* name : {static_cast<const char*>(nullptr), "mmx"}) {
    std::string message;
    try {
      cpu_ops(name);
    } catch (const std::invalid_argument& e) {
      message = e.what();
    }
    CHECK(message.find(name ? "mmx" : "sse9") != std::string::npos);
    CHECK(message.find("scalar") != std::string::npos);
  }
}

// The table is functions after the name; none may be missing.
TEST_CASE("no op is missing from any table") {
  for (Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    const void* const* f = reinterpret_cast<const void* const*>(&cpu_ops(isa_name(isa)));
    for (size_t i = 0; i < sizeof(Ops) / sizeof *f; ++i) {
      INFO(std::string(isa_name(isa)) << ", entry " << i);
      CHECK(f[i] != nullptr);
    }
  }
}

}  // namespace
}  // namespace rw::test
