// Which tokens a sample holds: a pure function of (seed, global sample index). Resuming needs only the step number, and
// changing the number of ranks changes nothing.
//
// A file's training range [begin, end) is cut into samples of seq_len + 1 tokens that start seq_len apart (a sample's
// last token is the next one's first: it is only a target). Each epoch has its own shuffle and its own start offset;
// for that freedom an epoch has one sample fewer than would fit. With several files, the k-th sample's file follows the
// weights in every window of samples (blend.h), and each file runs through its own epochs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libcore/data/blend.h"
#include "libcore/data/token_file.h"

namespace rw {

struct DataPart {
  std::shared_ptr<const TokenFile> file;  // shared by the training and the validation order
  int64_t begin, end;                     // range of tokens
  double weight = 1.0;                    // relative; normalised
};

class DataOrder {
 public:
  // Error{input} when a range is shorter than seq_len + 1, naming the file and both numbers.
  DataOrder(std::vector<DataPart> parts, int64_t seq_len, uint64_t seed);

  struct Place {
    int64_t part, epoch, first_token;
  };
  Place place(int64_t sample) const;  // sample >= 0, unbounded
  // input(seq_len) and target(seq_len), target = input shifted by one. Returns the digest of the sample's tokens.
  uint64_t read(int64_t sample, int32_t* input, int32_t* target) const;
  int64_t samples_per_epoch(int64_t part) const;
  const std::vector<DataPart>& parts() const { return parts_; }

 private:
  std::vector<DataPart> parts_;
  Blend blend_;
  int64_t seq_len_;
  uint64_t seed_;
};

// Validation: samples in file order, seq_len apart, the last one short; targets past the end are -1 (ignored), inputs
// there 0.
class DataSpan {
 public:
  // Error{input} when the range holds fewer than two tokens.
  DataSpan(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end, int64_t seq_len);
  int64_t n_samples() const;
  void read(int64_t sample, int32_t* input, int32_t* target) const;

 private:
  std::shared_ptr<const TokenFile> file_;
  int64_t begin_, end_, seq_len_;
};

// "a.h5:0.7" -> path and weight (1 without). Error{usage} on a weight that is not positive.
struct WeightedPath {
  std::string path;
  double weight;
};
WeightedPath parse_weighted_path(const std::string& text);

}  // namespace rw
