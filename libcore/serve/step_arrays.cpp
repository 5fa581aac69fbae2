#include "libcore/serve/step_arrays.h"

#include <cstddef>

#include "libcore/base/check.h"

namespace rw {
namespace {

StepArrays::Views views(std::byte* at, const StepShape& s) {
  StepArrays::Views v{};
  v.slot = reinterpret_cast<int64_t*>(at);
  v.ids = reinterpret_cast<int32_t*>(v.slot + s.rows);
  v.pos = v.ids + s.rows;
  v.starts = v.pos + s.rows;
  v.context = v.starts + s.seqs + 1;
  v.table = v.context + s.seqs;
  return v;
}

}  // namespace

int64_t StepArrays::bytes(const StepShape& s) {
  constexpr int64_t kWide = sizeof(int64_t), kNarrow = sizeof(int32_t);
  return s.rows * (kWide + 2 * kNarrow) + (s.seqs * (2 + s.pages) + 1) * kNarrow;
}

StepArrays::StepArrays(const StepShape& most, Arena& arena)
    : most_(most), memory_(arena.take_mirrored<std::byte>(bytes(most), MemoryOwner::data)) {}

void StepArrays::place(const StepShape& s) {
  CHECK(s.rows <= most_.rows && s.seqs <= most_.seqs && s.pages <= most_.pages,
        "a step of %ld rows, %ld sequences, %ld pages; planned for %ld, %ld, %ld", s.rows, s.seqs, s.pages, most_.rows,
        most_.seqs, most_.pages);
  shape_ = s;
  host_ = views(memory_.host, s);
  device_ = views(memory_.device, s);
}

void StepArrays::upload(const Exec& exec) const {
  exec.ops.upload({.device = memory_.device, .host = memory_.host, .bytes = bytes(shape_)}, exec.stream);
}

}  // namespace rw
