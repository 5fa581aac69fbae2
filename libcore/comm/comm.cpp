// The functions of Comm that are built on its other operations.
#include "libcore/comm/comm.h"

#include <algorithm>

namespace rw {

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
  std::string result = rank() == root ? text : std::string(static_cast<size_t>(bytes), '\0');
  broadcast(result.data(), bytes, root);
  return result;
}

std::vector<std::string> Comm::gather_text(const std::string& text) {
  const int64_t mine = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(static_cast<size_t>(size()));
  all_gather(&mine, lengths.data(), sizeof mine);
  // Texts are padded to the longest: they are few and short (host names, errors, phase times).
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = text;
  padded.resize(static_cast<size_t>(longest));
  std::string all(static_cast<size_t>(longest * size()), '\0');
  all_gather(padded.data(), all.data(), longest);
  std::vector<std::string> texts;
  for (int r = 0; r < size(); ++r)
    texts.push_back(all.substr(static_cast<size_t>(r * longest), static_cast<size_t>(lengths[r])));
  return texts;
}

}  // namespace rw
