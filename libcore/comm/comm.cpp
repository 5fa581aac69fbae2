// The functions of Comm that are built on its other operations.
#include "libcore/comm/comm.h"

#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/comm/cuts.h"

namespace rw {

std::vector<int64_t> even_cuts(int64_t n, int ranks) {
  CHECK(n >= 0 && ranks >= 1, "%lld elements for %d ranks", static_cast<long long>(n), ranks);
  std::vector<int64_t> cuts;
  const int64_t part = n / ranks, rest = n % ranks;  // n * r / ranks without its overflow
  for (int64_t r = 0; r <= ranks; ++r) cuts.push_back(part * r + rest * r / ranks);
  return cuts;
}

void check_cuts(Cuts cuts, int ranks) {
  CHECK(static_cast<int64_t>(cuts.size()) == ranks + 1 && cuts[0] >= 0 && std::is_sorted(cuts.begin(), cuts.end()),
        "%lld cuts for %d ranks; expected one more than ranks, ascending from 0 or more",
        static_cast<long long>(cuts.size()), ranks);
}

std::vector<int> Comm::nodes() const {
  std::vector<int> all;
  for (const Placement& p : places()) all.push_back(p.node);
  return all;
}

std::vector<int> Comm::world_ranks() const {
  std::vector<int> all;
  for (const Placement& p : places()) all.push_back(p.rank);
  return all;
}

void Comm::all_gather(const void* shard, void* data, int64_t bytes) {
  all_gather(shard, data, even_cuts(bytes * size(), size()), DType::u8);
}

int64_t Comm::all_reduce_value(int64_t v, ReduceOp op) {
  all_reduce(&v, 1, DType::i64, op);
  return v;
}

double Comm::all_reduce_value(double v, ReduceOp op) {
  all_reduce(&v, 1, DType::f64, op);
  return v;
}

std::string Comm::broadcast_text(const std::string& text, int root) {
  int64_t bytes = static_cast<int64_t>(text.size());
  broadcast(&bytes, sizeof bytes, root);
  std::string result = text;
  result.resize(static_cast<size_t>(bytes));
  broadcast(result.data(), bytes, root);
  return result;
}

std::vector<std::string> Comm::gather_text(const std::string& text) {
  const int64_t mine = static_cast<int64_t>(text.size());
  // Buffers start as if all had this rank's text: so they stay where there are no other ranks (make_meta_comm).
  std::vector<int64_t> lengths(static_cast<size_t>(size()), mine);
  all_gather(&mine, lengths.data(), sizeof mine);
  // Texts are padded to the longest: they are few and short (host names, errors, phase times).
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = text;
  padded.resize(static_cast<size_t>(longest));
  std::string all;
  for (int r = 0; r < size(); ++r) all += padded;
  all_gather(padded.data(), all.data(), longest);
  std::vector<std::string> texts;
  for (int r = 0; r < size(); ++r)
    texts.push_back(all.substr(static_cast<size_t>(r * longest), static_cast<size_t>(lengths[r])));
  return texts;
}

}  // namespace rw
