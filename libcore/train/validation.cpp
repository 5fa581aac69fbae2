#include "libcore/train/validation.h"

#include <algorithm>

#include "libcore/text/tokenizer.h"

namespace rw {
namespace {

// Bytes of the text that the span's targets (all its tokens but the first) stand for.
int64_t target_bytes(const TokenFile& file, int64_t begin, int64_t end) {
  const std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer(file.tokenizer_json(), file.path().string());
  std::vector<int64_t> bytes_of(static_cast<size_t>(tokenizer->vocab_size()));
  for (size_t id = 0; id < bytes_of.size(); ++id) {
    const int32_t token = static_cast<int32_t>(id);
    bytes_of[id] = tokenizer->is_special(token) ? 0 : static_cast<int64_t>(tokenizer->token_bytes(token).size());
  }
  constexpr int64_t kPiece = 1 << 16;
  std::vector<int32_t> tokens(kPiece);
  int64_t bytes = 0;
  for (int64_t first = begin + 1; first < end; first += kPiece) {
    const int64_t n = std::min(kPiece, end - first);
    file.read(first, n, tokens.data());
    for (int64_t i = 0; i < n; ++i)
      if (const size_t id = static_cast<size_t>(tokens[static_cast<size_t>(i)]); id < bytes_of.size())
        bytes += bytes_of[id];
  }
  return bytes;
}

}  // namespace

Validation::Validation(std::vector<Part> parts, int64_t seq_len, int64_t micro_batch)
    : seq_len_(seq_len), micro_batch_(micro_batch), bytes_(0) {
  for (const Part& p : parts) {
    if (p.end - p.begin < 2) continue;
    spans_.emplace_back(p.file, p.begin, p.end, seq_len);
    bytes_ += target_bytes(*p.file, p.begin, p.end);
  }
}

ValidationResult Validation::run(TrainStep& step) const {
  Comm& dp = *step.mesh().dp;
  Comm& world = *step.mesh().world;
  std::vector<int32_t> ids(static_cast<size_t>(micro_batch_ * seq_len_)), targets(ids.size());
  double sum = 0;
  int64_t valid = 0, turn = 0, held = 0, batches = 0;
  const auto flush = [&] {
    if (held == 0) return;
    ++batches;
    sum += step.evaluate(ids.data(), targets.data(), held);
    valid += std::count_if(targets.begin(), targets.begin() + held * seq_len_, [](int32_t t) { return t >= 0; });
    held = 0;
  };
  for (const DataSpan& span : spans_)
    for (int64_t s = 0; s < span.n_samples(); ++s) {
      if (turn++ % dp.size() != dp.rank()) continue;
      span.read(s, ids.data() + held * seq_len_, targets.data() + held * seq_len_);
      if (++held == micro_batch_) flush();
    }
  flush();
  // ZeRO-3 ranks gather weights together: all run as many batches as the one that has most, with nothing to predict.
  const int64_t most = (turn + dp.size() - 1) / dp.size();
  std::fill_n(ids.begin(), seq_len_, 0);
  std::fill_n(targets.begin(), seq_len_, -1);
  for (; batches < (most + micro_batch_ - 1) / micro_batch_; ++batches) step.evaluate(ids.data(), targets.data(), 1);
  ValidationResult result;
  // Every tensor-parallel rank of the last stage has the sum, every rank the count: one speaks for the others.
  sum = world.all_reduce_value(step.mesh().place.tp == 0 ? sum : 0.0, ReduceOp::sum);
  result.tokens = world.all_reduce_value(step.speaks_for_its_samples() ? valid : 0, ReduceOp::sum);
  if (result.tokens > 0) result.loss = sum / static_cast<double>(result.tokens);
  if (bytes_ > 0) result.loss_per_byte = sum / static_cast<double>(bytes_);
  return result;
}

}  // namespace rw
