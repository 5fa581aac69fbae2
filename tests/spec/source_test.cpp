#include "libcore/tensor/source.h"

#include <doctest/doctest.h>

namespace rw {
namespace {

class NamesOnly : public TensorSource {
 public:
  explicit NamesOnly(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {}
  std::string where() const override { return "names"; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read(const std::string&, const Box&, DType, void*) const override { FAIL("nothing is read here"); }

 private:
  std::vector<TensorInfo> tensors_;
};

TEST_CASE("find gives the tensor of that exact name, or null") {
  const NamesOnly empty({});
  CHECK(empty.find("a") == nullptr);
  const NamesOnly three({{"a", DType::f32, {2}}, {"b.weight", DType::bf16, {3, 5}}, {"b.weight2", DType::f16, {}}});
  REQUIRE(three.find("b.weight") != nullptr);
  CHECK(three.find("b.weight")->shape == Shape{3, 5});
  CHECK(three.find("a")->dtype == DType::f32);
  CHECK(three.find("b.weight2")->shape == Shape{});
  for (const char* missing : {"", "A", "b", "b.weight1", "c"}) CHECK(three.find(missing) == nullptr);
}

}  // namespace
}  // namespace rw
