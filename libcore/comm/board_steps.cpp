// What a rank does for a piece of each operation: posting, answering what the peers posted, collecting.
#include <algorithm>
#include <cstring>
#include <optional>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/board.h"
#include "libcore/comm/reduce.h"

namespace rw {
namespace {

// Up to here an all_reduce takes one round of waiting: reading all stages costs less than a second round.
constexpr int64_t kSmallBytes = 8 << 10;

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

std::string Board::describe(const Request& r) const {
  const int64_t bytes = r.task.n * dtype_bytes(r.task.t);
  if (r.task.op == BoardOp::barrier) return fmt::format("barrier #{} (group {})", r.id, config_.group);
  return fmt::format("{} #{} ({}, group {})", board_op_name(r.task.op), r.id, format_bytes(static_cast<double>(bytes)),
                     config_.group);
}

void Board::choose_way(Request& r) {
  const BoardTask& t = r.task;
  const int64_t element = dtype_bytes(t.t);
  std::optional<Place> place;
  r.piece_n = kStageBytes / element;
  switch (t.op) {
    case BoardOp::barrier: break;
    case BoardOp::all_reduce:
      CHECK(reinterpret_cast<uintptr_t>(t.output) % static_cast<uintptr_t>(element) == 0,
            "all_reduce of misaligned data");
      if (t.n * element <= kSmallBytes) {
        r.way = Way::small;
        return;
      }
      place = segments_.find(t.output, t.n * element, rank());
      // In place nothing is copied, so one piece is enough and one step of each rank completes it.
      if (place) r.piece_n = t.n;
      break;
    case BoardOp::reduce_scatter:
      r.piece_n = kStageBytes / size() / 64 * 64 / element;
      CHECK(r.piece_n > 0, "%d ranks on one node", size());
      place = segments_.find(t.input, t.n * size() * element, rank());
      break;
    case BoardOp::all_gather:
      place = segments_.find(static_cast<std::byte*>(t.output) + rank() * t.n, t.n, rank());
      if (!place) place = segments_.find(t.input, t.n, rank());
      break;
    case BoardOp::broadcast:
      if (rank() == t.root) place = segments_.find(t.output, t.n, rank());
      break;
  }
  if (place) {
    r.way = Way::in_place;
    r.place = std::move(*place);
  }
}

void Board::post(Piece& p, const Request& r) {
  const BoardTask& t = r.task;
  const int64_t element = dtype_bytes(t.t);
  Entry& mine = entry(p, rank());
  std::byte* stage = memory_.stage(rank(), slot(p));
  const bool in_place = r.way == Way::in_place;
  mine.request = r.id;
  mine.n = t.n;
  mine.root = t.root;
  mine.op = static_cast<uint8_t>(t.op);
  mine.dtype = static_cast<uint8_t>(t.t);
  mine.reduce = static_cast<uint8_t>(t.reduce);
  mine.in_place = in_place;
  mine.segment = in_place ? r.place.id : 0;
  mine.offset = in_place ? r.place.offset + p.begin * element : 0;
  switch (t.op) {
    case BoardOp::barrier: break;
    case BoardOp::all_reduce:
      // Of a staged piece nobody else reads this rank's own slice.
      for (int q = 0; q < size() && !in_place; ++q) {
        const Slice slice = r.way == Way::small ? Slice{0, p.n} : slice_of(p.n, element, q, size());
        if (r.way == Way::small ? q == 0 : q != rank())
          copy_bytes(stage + slice.begin * element,
                     static_cast<std::byte*>(t.output) + (p.begin + slice.begin) * element, slice.n * element);
      }
      break;
    case BoardOp::reduce_scatter:
      for (int q = 0; q < size() && !in_place; ++q)
        copy_bytes(stage + q * p.n * element, static_cast<const std::byte*>(t.input) + (q * t.n + p.begin) * element,
                   p.n * element);
      break;
    case BoardOp::all_gather: {
      // The part goes to its place in the result, and to the stage when peers can reach neither.
      std::byte* home = static_cast<std::byte*>(t.output) + rank() * t.n + p.begin;
      copy_bytes(home, static_cast<const std::byte*>(t.input) + p.begin, p.n);
      if (!in_place) copy_bytes(stage, home, p.n);
      break;
    }
    case BoardOp::broadcast:
      if (!in_place && rank() == t.root) copy_bytes(stage, static_cast<std::byte*>(t.output) + p.begin, p.n);
      break;
  }
  set_state(p, Phase::posted);
}

void Board::check_peers_agree(const Piece& p, const Request& r) const {
  const Entry& mine = entry(p, rank());
  for (int q = 0; q < size(); ++q) {
    if (r.task.op == BoardOp::broadcast && q != r.task.root) continue;
    const Entry& other = entry(p, q);
    if (other.op != mine.op || other.request != mine.request || other.n != mine.n || other.dtype != mine.dtype ||
        other.reduce != mine.reduce || other.root != mine.root)
      fail(ErrorKind::runtime,
           "{} of {}: {} called {} #{} ({}) instead; all ranks must call the same operations in the "
           "same order with the same sizes",
           describe(r), label(rank()), label(q), board_op_name(static_cast<BoardOp>(other.op)), other.request,
           format_bytes(static_cast<double>(other.n * dtype_bytes(static_cast<DType>(other.dtype)))));
    if (r.task.op == BoardOp::all_reduce && other.in_place != mine.in_place)
      fail(ErrorKind::runtime, "{}: {} passed {} and {} passed {}; pass memory of one kind on all ranks", describe(r),
           label(rank()), mine.in_place ? "memory from allocate()" : "private memory", label(q),
           other.in_place ? "memory from allocate()" : "private memory");
  }
}

// Where, in this rank's addresses, `rank` offers its data for the piece.
const std::byte* Board::offered(const Piece& p, int rank) const {
  const Entry& e = entry(p, rank);
  if (e.segment == 0) return memory_.stage(rank, slot(p));
  const auto segment = segments_.segment(e.segment);
  if (!segment)
    fail(ErrorKind::runtime, "{}: {} offers data in a shared buffer that {} has released", config_.group, label(rank),
         label(config_.rank));
  return segment->parts[static_cast<size_t>(rank)] + e.offset;
}

void Board::reduce_slice(const Piece& p, const Request& r) {
  const int64_t element = dtype_bytes(r.task.t);
  const bool scatter = r.task.op == BoardOp::reduce_scatter;
  const Slice slice = r.way == Way::small || scatter ? Slice{0, p.n} : slice_of(p.n, element, rank(), size());
  std::byte* output = static_cast<std::byte*>(r.task.output) + (p.begin + slice.begin) * element;
  sources_.clear();
  targets_.clear();
  for (int q = 0; q < size(); ++q) {
    int64_t offset = slice.begin * element;
    // Staged slices lie side by side; in the caller's memory they are n apart.
    if (scatter) offset = rank() * (entry(p, q).segment == 0 ? p.n : r.task.n) * element;
    const std::byte* data = offered(p, q) + offset;
    if (q == rank() && r.way == Way::staged && !scatter) data = output;
    sources_.push_back(data);
    if (!scatter && r.way == Way::in_place) targets_.push_back(const_cast<std::byte*>(data));
  }
  if (r.way != Way::in_place || scatter) targets_.push_back(output);
  if (r.way == Way::staged && !scatter) targets_.push_back(memory_.stage(rank(), slot(p)) + slice.begin * element);
  reduce_in_rank_order({.sources = sources_, .targets = targets_, .n = slice.n, .t = r.task.t, .op = r.task.reduce});
}

bool Board::answer(Piece& p, Request& r) {
  using At = Piece::At;
  const BoardTask& t = r.task;
  if (t.op == BoardOp::broadcast ? !reached(p, t.root, Phase::posted) : !all_reached(p, Phase::posted)) return false;
  check_peers_agree(p, r);
  bool lent = r.way == Way::in_place;  // peers read from, or write to, this rank's own memory
  switch (t.op) {
    case BoardOp::barrier: break;
    case BoardOp::all_reduce:
      reduce_slice(p, r);
      if (r.way == Way::staged) {
        set_state(p, Phase::reduced);
        p.at = At::reduced;
        return true;
      }
      break;
    case BoardOp::reduce_scatter: reduce_slice(p, r); break;
    case BoardOp::all_gather:
      for (int q = 0; q < size(); ++q)
        if (q != rank()) copy_bytes(static_cast<std::byte*>(t.output) + q * t.n + p.begin, offered(p, q), p.n);
      break;
    case BoardOp::broadcast:
      if (rank() != t.root) copy_bytes(static_cast<std::byte*>(t.output) + p.begin, offered(p, t.root), p.n);
      break;
  }
  set_state(p, Phase::finished);
  p.at = lent ? At::answered : At::finished;
  if (!lent) ++r.n_finished;
  return true;
}

// The slices that the other ranks reduced in their stages.
void Board::collect(Piece& p, const Request& r) {
  const int64_t element = dtype_bytes(r.task.t);
  for (int q = 0; q < size(); ++q) {
    if (q == rank()) continue;  // written by reduce_slice
    const Slice slice = slice_of(p.n, element, q, size());
    copy_bytes(static_cast<std::byte*>(r.task.output) + (p.begin + slice.begin) * element,
               memory_.stage(q, slot(p)) + slice.begin * element, slice.n * element);
  }
}

}  // namespace rw
