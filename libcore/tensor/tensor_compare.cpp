#include "libcore/tensor/tensor_compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/tensor/element_stream.h"
#include "libcore/tensor/read_check.h"

namespace rw {

namespace {

struct Side {
  Side(const TensorSource& from, const std::string& name)
      : source(from), info(require_tensor(from, name)), width(dtype_bytes(info.dtype)) {
    const auto most = static_cast<size_t>(std::min(n_elements(info.shape), kStreamElements));
    raw.resize(most * static_cast<size_t>(width));
    x.resize(most);
  }
  void read(const Box& box) { source.read(info.name, box, info.dtype, raw.data()); }

  const TensorSource& source;
  const TensorInfo& info;
  int64_t width;
  std::vector<char> raw;  // of a part
  std::vector<double> x;
};

// |a - b| of large integers whose f64 neighbours are the same number.
double integer_distance(const Side& a, const Side& b, int64_t i) {
  int64_t p, q;
  std::memcpy(&p, a.raw.data() + i * 8, 8);
  std::memcpy(&q, b.raw.data() + i * 8, 8);
  const auto up = static_cast<uint64_t>(p), uq = static_cast<uint64_t>(q);
  return static_cast<double>(p > q ? up - uq : uq - up);
}

// Of element i of a row-major box.
Shape index_in(const Box& box, int64_t i) {
  Shape at = box.offset;
  for (size_t d = at.size(); d-- > 0; i /= box.extent[d]) at[d] += i % box.extent[d];
  return at;
}

void add_part(TensorComparison& result, Side& a, Side& b, const Box& box) {
  const int64_t n = box.size();
  to_f64(a.raw.data(), a.info.dtype, a.x.data(), n);
  to_f64(b.raw.data(), b.info.dtype, b.x.data(), n);
  const bool integers = a.info.dtype == DType::i64 && b.info.dtype == DType::i64;
  for (int64_t i = 0; i < n; ++i) {
    const double p = a.x[i], q = b.x[i];
    if (std::isfinite(p)) result.largest = std::max(result.largest, std::fabs(p));
    if (std::isfinite(q)) result.largest = std::max(result.largest, std::fabs(q));
    if (!integers && (p == q || (std::isnan(p) && std::isnan(q)))) continue;
    if (!std::isfinite(p) || !std::isfinite(q)) {
      ++result.n_different, ++result.n_unlike;
      if (result.n_unlike == 1 && result.max_abs == 0) result.at = index_in(box, i);
      continue;
    }
    const double distance = integers ? integer_distance(a, b, i) : std::fabs(p - q);
    if (distance == 0) continue;
    ++result.n_different;
    if (distance > result.max_abs) {
      result.max_abs = distance;
      result.at = index_in(box, i);
    }
  }
}

}  // namespace

TensorComparison compare_tensor(const TensorSource& a_source, const TensorSource& b_source, const std::string& name,
                                const std::function<void(int64_t bytes)>& progress) {
  Side a(a_source, name), b(b_source, name);
  CHECK(a.info.shape == b.info.shape, "%s: shapes %s and %s", name.c_str(), shape_text(a.info.shape).c_str(),
        shape_text(b.info.shape).c_str());
  TensorComparison result{.n = n_elements(a.info.shape), .at = {}};
  const bool comparable = a.info.dtype == b.info.dtype;
  // Most tensors are the same bytes, and comparing those is much faster. The first part that is not sends the whole
  // tensor through the slow comparison, which also finds the scale.
  bool same = comparable;
  int64_t told = 0;
  const auto tell = [&](int64_t read) {
    if (read <= told) return;
    if (progress) progress(read - told);
    told = read;
  };
  int64_t read = 0;
  for_each_part(a.info.shape, kStreamElements, [&](const Box& box) {
    if (!same) return;
    a.read(box), b.read(box);
    read += box.size() * (a.width + b.width);
    tell(read);
    same = std::memcmp(a.raw.data(), b.raw.data(), static_cast<size_t>(box.size() * a.width)) == 0;
  });
  if (same) return result;
  read = 0;
  for_each_part(a.info.shape, kStreamElements, [&](const Box& box) {
    a.read(box), b.read(box);
    add_part(result, a, b, box);
    read += box.size() * (a.width + b.width);
    tell(read);
  });
  return result;
}

}  // namespace rw
