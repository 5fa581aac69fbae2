#include "libcore/data/data_order.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/rng.h"

namespace rw {
namespace {

std::vector<double> weights_of(const std::vector<DataPart>& parts) {
  std::vector<double> weights;
  for (const DataPart& part : parts) weights.push_back(part.weight);
  return weights;
}

// Uniform in [0, n): the high half of a 128-bit product (Lemire 2019; its bias, below n / 2^64, does not matter here).
int64_t random_below(int64_t n, uint64_t key, uint64_t counter) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(Wide{random_bits(key, counter)} * static_cast<uint64_t>(n) >> 64);
}

void check_range(const TokenFile& file, int64_t begin, int64_t end) {
  CHECK(begin >= 0 && begin <= end && end <= file.n_tokens(), "tokens [%ld, %ld) of %ld", static_cast<long>(begin),
        static_cast<long>(end), static_cast<long>(file.n_tokens()));
}

}  // namespace

DataOrder::DataOrder(std::vector<DataPart> parts, int64_t seq_len, uint64_t seed)
    : parts_(std::move(parts)), blend_(weights_of(parts_)), seq_len_(seq_len), seed_(seed) {
  CHECK(seq_len >= 1 && !parts_.empty(), "seq_len %ld, %zu parts", static_cast<long>(seq_len), parts_.size());
  for (const DataPart& part : parts_) {
    check_range(*part.file, part.begin, part.end);
    if (part.end - part.begin < seq_len + 1)
      fail(ErrorKind::input,
           "{}: expected at least seq-len + 1 = {} tokens to train on, found {}; use a smaller --seq-len or more text",
           part.file->path().string(), seq_len + 1, part.end - part.begin);
  }
}

int64_t DataOrder::samples_per_epoch(int64_t part) const {
  const DataPart& p = parts_[static_cast<size_t>(part)];
  return std::max<int64_t>(1, (p.end - p.begin) / seq_len_ - 1);
}

DataOrder::Place DataOrder::place(int64_t sample) const {
  const Blend::Turn turn = blend_.at(sample);
  const DataPart& part = parts_[static_cast<size_t>(turn.source)];
  const int64_t n = samples_per_epoch(turn.source), epoch = turn.index / n;
  // Two keys an epoch: one shuffles, one offsets.
  const uint64_t source_key =
      rng_key(random_bits(rng_key(seed_, "data order"), static_cast<uint64_t>(turn.source)), "epochs");
  const uint64_t shuffle_key = random_bits(source_key, 2 * static_cast<uint64_t>(epoch));
  const int64_t slack = (part.end - part.begin) - (n * seq_len_ + 1);
  const int64_t offset = random_below(slack + 1, source_key, 2 * static_cast<uint64_t>(epoch) + 1);
  const uint64_t slot = Permutation(static_cast<uint64_t>(n), shuffle_key)(static_cast<uint64_t>(turn.index % n));
  return {turn.source, epoch, part.begin + offset + static_cast<int64_t>(slot) * seq_len_};
}

uint64_t DataOrder::read(int64_t sample, int32_t* input, int32_t* target) const {
  const Place at = place(sample);
  const TokenFile& file = *parts_[static_cast<size_t>(at.part)].file;
  file.read(at.first_token, seq_len_, input);
  std::memcpy(target, input + 1, static_cast<size_t>(seq_len_ - 1) * sizeof *target);
  file.read(at.first_token + seq_len_, 1, target + seq_len_ - 1);
  return hash64(input, seq_len_ * 4, static_cast<uint64_t>(target[seq_len_ - 1]));
}

DataSpan::DataSpan(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end, int64_t seq_len)
    : file_(std::move(file)), begin_(begin), end_(end), seq_len_(seq_len) {
  CHECK(seq_len >= 1, "seq_len %ld", static_cast<long>(seq_len));
  check_range(*file_, begin, end);
  if (end - begin < 2)
    fail(ErrorKind::input, "{}: expected at least 2 tokens to validate on, found {}; raise --val-fraction",
         file_->path().string(), end - begin);
}

int64_t DataSpan::n_samples() const { return (end_ - begin_ - 1 + seq_len_ - 1) / seq_len_; }

void DataSpan::read(int64_t sample, int32_t* input, int32_t* target) const {
  CHECK(sample >= 0 && sample < n_samples(), "sample %ld of %ld", static_cast<long>(sample),
        static_cast<long>(n_samples()));
  const int64_t first = begin_ + sample * seq_len_, n = std::min(seq_len_, end_ - 1 - first);
  file_->read(first, n, input);
  file_->read(first + 1, n, target);
  std::fill(input + n, input + seq_len_, 0);
  std::fill(target + n, target + seq_len_, -1);
}

WeightedPath parse_weighted_path(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::error_code ignored;
  if (colon == std::string::npos || std::filesystem::is_regular_file(text, ignored)) return {text, 1.0};
  const std::string number = text.substr(colon + 1);
  double weight = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), weight);
  const bool is_number = error == std::errc() && end == number.data() + number.size();
  // A colon may be part of a file's name; what begins like a number is meant as one.
  if (!is_number && !number.empty() && std::string("+-.0123456789").find(number[0]) == std::string::npos)
    return {text, 1.0};
  if (!is_number || !std::isfinite(weight) || weight <= 0 || colon == 0)
    fail(ErrorKind::usage, "--data {}: expected FILE or FILE:WEIGHT with a positive weight, found weight \"{}\"", text,
         number);
  return {text.substr(0, colon), weight};
}

}  // namespace rw
