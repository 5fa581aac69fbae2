#include "libcore/plan/price/collective_seconds.h"

#include <limits>

#include "libcore/base/error.h"

namespace rw {
namespace {

double rounds_of(CommKind kind, int64_t p) {
  if (kind == CommKind::send) return 1;
  return static_cast<double>(kind == CommKind::all_reduce ? 2 * (p - 1) : p - 1);
}

// Bytes through a rank's link for one byte of the collective's data.
double ring_share(CommKind kind, int64_t p) {
  if (kind == CommKind::send) return 1;
  return rounds_of(kind, p) / static_cast<double>(p);
}

bool stands_for(CommKind have, CommKind wanted) {
  const auto parts = [](CommKind k) { return k == CommKind::reduce_scatter || k == CommKind::all_gather; };
  return have == wanted || (parts(have) && parts(wanted));
}

}  // namespace

Provenance provenance_of(const std::string& name) {
  for (const Provenance p : {Provenance::measured, Provenance::table, Provenance::roofline})
    if (name == provenance_name(p)) return p;
  return Provenance::guess;
}

FittedCollective FittedCollective::of(const CollectiveFit& fit, const std::string& where) {
  FittedCollective f{.ranks = fit.ranks, .segments = fit.segments, .provenance = provenance_of(fit.provenance)};
  bool known = false;
  std::vector<std::string> names;
  for (const CommKind k : {CommKind::all_reduce, CommKind::reduce_scatter, CommKind::all_gather, CommKind::send}) {
    names.push_back(comm_kind_name(k));
    if (fit.kind == names.back()) f.kind = k, known = true;
  }
  if (!known)
    fail(ErrorKind::usage, "{}: collective kind {} is not known; known are {}, {}, {}, {}", where, fit.kind, names[0],
         names[1], names[2], names[3]);
  if (fit.ranks < 2)
    fail(ErrorKind::usage, "{}: collective {}: ranks is {}, expected at least 2", where, fit.kind, fit.ranks);
  if (fit.segments.empty()) fail(ErrorKind::usage, "{}: collective {} has no segments", where, fit.kind);
  for (const LinkSegment& s : fit.segments)
    if (s.bandwidth <= 0 || s.alpha < 0)
      fail(ErrorKind::usage,
           "{}: collective {}: a segment has alpha {} s and bandwidth {} B/s, expected alpha >= 0 and bandwidth > 0",
           where, fit.kind, s.alpha, s.bandwidth);
  return f;
}

double fitted_seconds(const FittedCollective& fit, const FitScale& scale) {
  const double latency =
      (scale.base_hops + rounds_of(fit.kind, scale.ranks)) / (scale.base_hops + rounds_of(fit.kind, fit.ranks));
  const double flow = ring_share(fit.kind, scale.ranks) / ring_share(fit.kind, fit.ranks) * scale.slowdown;
  const auto line = [&](const LinkSegment& l, double n) { return l.alpha * latency + n / l.bandwidth * flow; };
  // From the last line to the one that holds the bytes; never above where a later line starts.
  double s = std::numeric_limits<double>::infinity();
  for (size_t i = fit.segments.size(); i-- > 0;) {
    const LinkSegment& l = fit.segments[i];
    const auto from = static_cast<double>(l.from_bytes);
    if (i == 0 || from <= scale.bytes) return std::min(s, line(l, scale.bytes));
    s = std::min(s, line(l, from));
  }
  return s;
}

const FittedCollective* find_fit(const std::vector<FittedCollective>& fits, CommKind kind, int64_t ranks) {
  const FittedCollective* best = nullptr;
  double best_ratio = 0;
  for (const FittedCollective& f : fits) {
    if (!stands_for(f.kind, kind)) continue;
    double ratio = static_cast<double>(f.ranks) / static_cast<double>(ranks);
    ratio = std::max(ratio, 1 / ratio);
    if (f.kind != kind) ratio *= 1.0001;  // of two alike, the kind itself
    if (best == nullptr || ratio < best_ratio) best = &f, best_ratio = ratio;
  }
  return best;
}

}  // namespace rw
