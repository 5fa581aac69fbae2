// What a rank does for a piece of each operation: posting, answering what the peers posted, collecting.
#include <algorithm>
#include <cstring>
#include <optional>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/board.h"

namespace rw {
namespace {

// Up to here an all_reduce takes one round of waiting: reading all stages costs less than a second round.
constexpr int64_t kSmallBytes = 8 << 10;

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// What of `part` lies in [begin, begin + n).
Slice overlap(const Slice& part, int64_t begin, int64_t n) {
  const int64_t from = std::max(part.begin, begin), to = std::min(part.begin + part.n, begin + n);
  return {from, std::max<int64_t>(0, to - from)};
}

// FNV-1a: enough to tell that two ranks were given different cuts.
uint64_t hash_of(const std::vector<Slice>& parts) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const Slice& s : parts)
    for (int64_t v : {s.begin, s.n}) h = (h ^ static_cast<uint64_t>(v)) * 0x100000001b3u;
  return h;
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
  const int64_t element = dtype_bytes(t.t), bytes = t.n * element;
  r.piece_n = kStageBytes / element;
  r.parts_hash = hash_of(t.parts);
  if (t.op == BoardOp::all_reduce || t.op == BoardOp::reduce_scatter)
    CHECK(reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(element) == 0, "%s of misaligned data",
          board_op_name(t.op));
  if (t.op == BoardOp::all_reduce && bytes <= kSmallBytes) {
    r.way = Way::small;
    return;
  }
  const bool offers = t.op == BoardOp::broadcast ? rank() == t.root : bytes > kSmallBytes;
  if (t.op == BoardOp::barrier || !offers) return;
  auto place = segments_.find(t.data, bytes, rank());
  if (!place) return;
  r.way = Way::in_place;
  r.place = std::move(*place);
  // Where nothing is copied to stages one piece is enough, and one step of each rank completes it. Of a broadcast only
  // the root knows.
  if (t.op != BoardOp::broadcast) r.piece_n = t.n;
}

// All ranks must have cut the request alike.
bool Board::needs_one_kind(const Request& r) const {
  const BoardOp op = r.task.op;
  return op == BoardOp::all_reduce || op == BoardOp::reduce_scatter || op == BoardOp::all_gather;
}

void Board::post(Piece& p, const Request& r) {
  const BoardTask& t = r.task;
  const int64_t element = dtype_bytes(t.t);
  Entry& mine = entry(p, rank());
  std::byte* stage = memory_.stage(rank(), slot(p));
  auto* data = static_cast<std::byte*>(t.data);
  const bool in_place = r.way == Way::in_place;
  mine.request = r.id;
  mine.n = t.n;
  mine.root = t.root;
  mine.op = static_cast<uint8_t>(t.op);
  mine.dtype = static_cast<uint8_t>(t.t);
  mine.reduce = static_cast<uint8_t>(t.reduce);
  mine.parts = r.parts_hash;
  mine.in_place = in_place;
  mine.segment = in_place ? r.place.id : 0;
  mine.offset = in_place ? r.place.offset + p.begin * element : 0;
  auto stage_range = [&](const Slice& s) {
    if (s.n > 0) copy_bytes(stage + (s.begin - p.begin) * element, data + s.begin * element, s.n * element);
  };
  switch (t.op) {
    case BoardOp::barrier: break;
    case BoardOp::all_reduce:
      if (r.way == Way::small) stage_range({p.begin, p.n});
      // Of a staged piece nobody else reads this rank's own slice.
      for (int q = 0; q < size() && r.way == Way::staged; ++q) {
        const Slice slice = slice_of(p.n, element, q, size());
        if (q != rank()) stage_range({p.begin + slice.begin, slice.n});
      }
      break;
    case BoardOp::reduce_scatter:
      for (int q = 0; q < size() && !in_place; ++q)
        if (q != rank()) stage_range(overlap(t.parts[static_cast<size_t>(q)], p.begin, p.n));
      break;
    case BoardOp::all_gather: {
      // The part goes to its place in the result, and to the stage when peers cannot reach that.
      const Slice part = t.parts[static_cast<size_t>(rank())];
      const Slice here = overlap(part, p.begin, p.n);
      if (here.n > 0)
        copy_bytes(data + here.begin * element,
                   static_cast<const std::byte*>(t.part) + (here.begin - part.begin) * element, here.n * element);
      if (!in_place) stage_range(here);
      break;
    }
    case BoardOp::broadcast:
      if (!in_place && rank() == t.root) stage_range({p.begin, p.n});
      break;
  }
  set_state(p, Phase::posted);
}

void Board::check_peers_agree(const Piece& p, const Request& r) const {
  const Entry& mine = entry(p, rank());
  for (int q = 0; q < size(); ++q) {
    if (r.task.op == BoardOp::broadcast && q != r.task.root) continue;
    const Entry& other = entry(p, q);
    const bool same_call = other.op == mine.op && other.request == mine.request && other.n == mine.n &&
                           other.dtype == mine.dtype && other.reduce == mine.reduce && other.root == mine.root;
    if (!same_call)
      fail(ErrorKind::runtime,
           "{} of {}: {} called {} #{} ({}) instead; all ranks must call the same operations in the "
           "same order with the same sizes",
           describe(r), label(rank()), label(q), board_op_name(static_cast<BoardOp>(other.op)), other.request,
           format_bytes(static_cast<double>(other.n * dtype_bytes(static_cast<DType>(other.dtype)))));
    if (other.parts != mine.parts)
      fail(ErrorKind::runtime, "{} of {}: {} deals its elements out to the ranks differently; pass the same cuts",
           describe(r), label(rank()), label(q));
    if (needs_one_kind(r) && other.in_place != mine.in_place)
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
  const Slice slice = r.way == Way::small ? Slice{0, p.n} : slice_of(p.n, element, rank(), size());
  std::byte* output = static_cast<std::byte*>(r.task.data) + (p.begin + slice.begin) * element;
  sources_.clear();
  targets_.clear();
  for (int q = 0; q < size(); ++q) {
    const std::byte* data = offered(p, q) + slice.begin * element;
    if (q == rank() && r.way == Way::staged) data = output;
    sources_.push_back(data);
    if (r.way == Way::in_place) targets_.push_back(const_cast<std::byte*>(data));
  }
  if (r.way != Way::in_place) targets_.push_back(output);
  if (r.way == Way::staged) targets_.push_back(memory_.stage(rank(), slot(p)) + slice.begin * element);
  reduce_in_rank_order({.sources = sources_, .targets = targets_, .n = slice.n, .t = r.task.t, .op = r.task.reduce});
}

// reduce_scatter: what the piece holds of this rank's part.
void Board::reduce_part(const Piece& p, const Request& r) {
  const int64_t element = dtype_bytes(r.task.t);
  const Slice part = overlap(r.task.parts[static_cast<size_t>(rank())], p.begin, p.n);
  if (part.n == 0) return;
  std::byte* output = static_cast<std::byte*>(r.task.data) + part.begin * element;
  sources_.clear();
  targets_.assign(1, output);
  for (int q = 0; q < size(); ++q)
    sources_.push_back(q == rank() ? output : offered(p, q) + (part.begin - p.begin) * element);
  reduce_in_rank_order({.sources = sources_, .targets = targets_, .n = part.n, .t = r.task.t, .op = r.task.reduce});
}

bool Board::answer(Piece& p, Request& r) {
  using At = Piece::At;
  const BoardTask& t = r.task;
  if (t.op == BoardOp::broadcast ? !reached(p, t.root, Phase::posted) : !all_reached(p, Phase::posted)) return false;
  check_peers_agree(p, r);
  const bool lent = r.way == Way::in_place;  // peers read from, or write to, this rank's own memory
  const int64_t element = dtype_bytes(t.t);
  auto take = [&](int from, const Slice& s) {
    if (s.n > 0 && from != rank())
      copy_bytes(static_cast<std::byte*>(t.data) + s.begin * element, offered(p, from) + (s.begin - p.begin) * element,
                 s.n * element);
  };
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
    case BoardOp::reduce_scatter: reduce_part(p, r); break;
    case BoardOp::all_gather:
      for (int q = 0; q < size(); ++q) take(q, overlap(t.parts[static_cast<size_t>(q)], p.begin, p.n));
      break;
    case BoardOp::broadcast:
      take(t.root, t.parts.empty() ? Slice{p.begin, p.n} : overlap(t.parts[static_cast<size_t>(rank())], p.begin, p.n));
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
    copy_bytes(static_cast<std::byte*>(r.task.data) + (p.begin + slice.begin) * element,
               memory_.stage(q, slot(p)) + slice.begin * element, slice.n * element);
  }
}

}  // namespace rw
