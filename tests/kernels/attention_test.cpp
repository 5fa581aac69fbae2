#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/kernels/attention_backends.h"

using namespace rw;
using namespace rw::test;

namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {1, 1, 64, {1}},         {2, 2, 64, {63}},        {2, 1, 64, {64, 65}},
      {3, 3, 1, {37, 0, 2}},   {4, 2, 20, {33, 129}},   {7, 1, 80, {31, 0, 97, 1}},
      {2, 2, 128, {127, 32}},  {6, 3, 64, {5, 7, 200}}, {2, 1, 96, {66}},
      {1, 1, 256, {70}},       {2, 2, 33, {0, 0, 130}}, {2, 2, 64, {256}},
      {4, 4, 7, {1, 1, 1, 1}}, {2, 2, 8, {}},           {2, 2, 8, {0}},
      {2, 1, 64, {3, 323}},    {1, 1, 128, {261}},      {2, 1, 256, {131, 6}},
  };
  return all;
}

std::string describe(const Shape& s, const Backend& b, DType t) {
  std::string text = std::string(b.name) + " " + dtype_name(t) + " H" + std::to_string(s.heads) + "/" +
                     std::to_string(s.kv_heads) + " D" + std::to_string(s.d) + " T";
  for (int32_t n : s.lengths) text += " " + std::to_string(n);
  return text;
}

void check_within(const std::string& what, const Bounded& expected, const std::vector<double>& found) {
  REQUIRE(expected.value.size() == found.size());
  const Worst w = worst(expected, found);
  INFO(what << "[" << w.index << "]: found " << (found.empty() ? 0 : found[w.index]) << ", expected "
            << (found.empty() ? 0 : expected.value[w.index]) << ", error over bound " << w.ratio);
  CHECK(w.ratio <= 1);
}

std::vector<double> as_double(const std::vector<float>& x, int64_t n) { return {x.begin(), x.begin() + n}; }

// The forward's results as another would have left them: from the reference, rounded to the type.
void install_forward(Run& run, const Reference& r) {
  run.o.put(0, run.q_width(), r.o.value);
  for (size_t i = 0; i < r.lse.value.size(); ++i) run.lse[i] = static_cast<float>(r.lse.value[i]);
}

void check_all(const Shape& s, DType t, double range, double scale_by) {
  const Inputs in = random_inputs(s, t, range);
  Run probe(s, t, in, scale_by);
  const Reference r = reference(s, in, t, true, static_cast<double>(probe.scale));
  for (const Backend& b : attention_backends(t)) {
    CAPTURE(describe(s, b, t));
    Run run(s, t, in, scale_by);
    const std::vector<uint8_t> inputs = run.qkv.bytes();
    run.forward(b, 2);
    check_within("o", r.o, run.o.get(0, run.q_width()));
    check_within("lse", r.lse, as_double(run.lse, s.tokens() * s.heads));
    CHECK(run.o.intact_outside(0, run.q_width()));
    CHECK(std::all_of(run.lse.end() - 8, run.lse.end(), [](float x) { return x == Run::kCanary; }));
    CHECK(run.workspace_intact());

    install_forward(run, r);
    run.backward(b, 2);
    check_within("d_q", r.d_q, run.d_qkv.get(0, run.q_width()));
    check_within("d_k", r.d_k, run.d_qkv.get(run.k_column(), run.kv_width()));
    check_within("d_v", r.d_v, run.d_qkv.get(run.v_column(), run.kv_width()));
    CHECK(run.d_qkv.intact_outside(0, run.all_width()));
    CHECK(run.workspace_intact());
    CHECK(run.qkv.bytes() == inputs);
  }
}

}  // namespace

TEST_CASE("attention: the definition in double precision, forward and backward") {
  const Values q = random_inputs(shapes()[1], DType::bf16).q;
  REQUIRE(*std::max_element(q.begin(), q.end()) > *std::min_element(q.begin(), q.end()));
  for (DType t : kTypes) {
    for (const Shape& s : shapes()) check_all(s, t, 2, 1);
  }
}

TEST_CASE("attention: a growing maximum rescales what was summed before; a negative scale is legal") {
  const Shape s{2, 1, 16, {150}};
  for (DType t : kTypes) {
    check_all(s, t, 6, 1);
    check_all(s, t, 2, -1);
  }
  // Keys that grow along the sequence: every block brings a new maximum.
  Inputs in = random_inputs(s, DType::f32);
  for (size_t i = 0; i < in.k.size(); ++i) {
    in.k[i] = std::fabs(in.k[i]) * static_cast<double>(i / 16) / 8;
    in.k[i] = static_cast<double>(rounded(in.k[i], DType::f32));
  }
  for (double& x : in.q) x = std::fabs(x);
  const Reference r = reference(s, in, DType::f32, false, static_cast<double>(Run(s, DType::f32, in).scale));
  for (const Backend& b : attention_backends(DType::f32)) {
    CAPTURE(b.name);
    Run run(s, DType::f32, in);
    run.forward(b, 1);
    check_within("o", r.o, run.o.get(0, run.q_width()));
    check_within("lse", r.lse, as_double(run.lse, s.tokens() * s.heads));
  }
}

TEST_CASE("attention: gradients agree with finite differences of the definition") {
  const Shape s{4, 2, 5, {9, 70}};
  const DType t = DType::f32;
  const Inputs in = random_inputs(s, t, 1);
  const double scale = static_cast<double>(Run(s, t, in).scale);
  const auto loss = [&](const Inputs& x) {
    const Reference r = reference(s, x, t, false, scale);
    double sum = 0;
    for (size_t i = 0; i < x.d_o.size(); ++i) sum += r.o.value[i] * x.d_o[i];
    return sum;
  };
  for (const Backend& b : attention_backends(t)) {
    CAPTURE(b.name);
    Run run(s, t, in);
    run.forward(b, 1);
    run.backward(b, 1);
    const std::vector<double> found[] = {run.d_qkv.get(0, run.q_width()), run.d_qkv.get(run.k_column(), run.kv_width()),
                                         run.d_qkv.get(run.v_column(), run.kv_width())};
    int which = 0;
    for (Values Inputs::*member : {&Inputs::q, &Inputs::k, &Inputs::v}) {
      const std::vector<double>& gradient = found[which++];
      for (size_t i = 0; i < gradient.size(); i += 97) {
        const double h = 1e-4;
        Inputs up = in, down = in;
        (up.*member)[i] += h;
        (down.*member)[i] -= h;
        // h^2 of the third derivative, and f32's rounding of sums of up to 70 terms of size below 5
        CHECK(std::fabs((loss(up) - loss(down)) / (2 * h) - gradient[i]) < 1e-5 + 70 * 5 * 0x1p-23);
      }
    }
  }
}

#if !defined(RW_TEST_CUDA)  // whose every run compares the orders of its threads
TEST_CASE("attention: bit-equal for any number of threads") {
  const Shape s{6, 2, 64, {130, 3, 0, 71, 200}};
  for (DType t : kTypes) {
    const Inputs in = random_inputs(s, t);
    for (const Backend& b : attention_backends(t)) {
      CAPTURE(describe(s, b, t));
      Run one(s, t, in);
      one.forward(b, 1);
      one.backward(b, 1);
      for (int threads : {2, 3, 5}) {
        Run many(s, t, in);
        many.forward(b, threads);
        many.backward(b, threads);
        CHECK(many.o.bytes() == one.o.bytes());
        CHECK(many.lse == one.lse);
        CHECK(many.d_qkv.bytes() == one.d_qkv.bytes());
      }
    }
  }
}
#endif

TEST_CASE("attention: a sequence's results do not depend on its batch mates") {
  for (const int64_t d : {32, 64}) {
    const Shape alone{4, 2, d, {101}}, among{4, 2, d, {65, 101, 0, 17}};
    for (DType t : kTypes) {
      const Inputs in = random_inputs(among, t);
      const auto cut = [](const Values& v, int64_t row) { return Values(v.begin() + 65 * row, v.begin() + 166 * row); };
      const Inputs mine{cut(in.q, 4 * d), cut(in.k, 2 * d), cut(in.v, 2 * d), cut(in.d_o, 4 * d)};
      for (const Backend& b : attention_backends(t)) {
        CAPTURE(describe(among, b, t));
        Run x(alone, t, mine), y(among, t, in);
        for (Run* run : {&x, &y}) {
          run->forward(b, 2);
          run->backward(b, 2);
        }
        CHECK(x.o.get(0, 4 * d) == cut(y.o.get(0, 4 * d), 4 * d));
        CHECK(x.d_qkv.get(0, 8 * d) == cut(y.d_qkv.get(0, 8 * d), 8 * d));
      }
    }
  }
}
