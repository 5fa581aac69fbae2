// Every shard is a box of a named global tensor: offset and extent per dimension.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rw {

using Shape = std::vector<int64_t>;
// Product of the extents, 1 for a scalar (). CHECKs that it fits in int64: readers refuse such files before.
int64_t n_elements(const Shape& shape);
std::string shape_text(const Shape& shape);  // "(768, 2304)"

struct Box {
  Shape offset, extent;
  bool operator==(const Box&) const = default;
  int64_t size() const { return n_elements(extent); }
};

Box whole(const Shape& shape);
// The elements both hold; a dimension in which they do not meet gets extent 0. Both have the same number of dimensions.
Box intersect(const Box& a, const Box& b);
// Same number of dimensions, offset >= 0, extent >= 0, offset + extent <= shape; safe for any numbers a file may hold.
bool contains(const Shape& shape, const Box& box);
std::string box_text(const Box& box);  // "[0:768, 1536:2304]"

// Calls copy(src_offset, dst_offset, n) for each run of `part` (a box inside both `src` and `dst`) that is contiguous
// in both: the longest such runs, in row-major order of part, none when part is empty. Offsets are in elements from the
// start of row-major buffers that hold exactly the boxes src and dst.
void for_each_run(const Box& part, const Box& src, const Box& dst,
                  const std::function<void(int64_t src_offset, int64_t dst_offset, int64_t n)>& copy);

}  // namespace rw
