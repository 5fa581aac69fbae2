// Learning a byte-level BPE: count the distinct words, then merge the most frequent pair of neighbours again and again,
// with the pair counts kept up to date word by word (Sennrich et al. 2016; the merges are those of the Hugging Face
// trainer).
#include <algorithm>
#include <array>
#include <compare>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "libcore/base/error.h"
#include "libcore/text/bpe_model.h"
#include "libcore/text/byte_alphabet.h"
#include "libcore/text/pre_tokenizer.h"
#include "libcore/text/tokenizer.h"
#include "libcore/text/tokenizer_json.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

constexpr int64_t kMinCount = 2;

struct Pair {
  int32_t left, right;
  auto operator<=>(const Pair&) const = default;
};

struct PairHash {
  size_t operator()(const Pair& p) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(p.left)} << 32 | static_cast<uint32_t>(p.right);
    const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
    return mixed ^ mixed >> 32;
  }
};

struct PairUse {
  int64_t count = 0;
  std::vector<uint32_t> words;  // that hold it or once did, perhaps more than once
};

struct Candidate {
  int64_t count;
  Pair pair;
};

struct IsLess {  // the top of the heap: most frequent, then lowest left id, then lowest right id
  bool operator()(const Candidate& a, const Candidate& b) const {
    if (a.count != b.count) return a.count < b.count;
    return a.pair.left != b.pair.left ? a.pair.left > b.pair.left : a.pair.right > b.pair.right;
  }
};

// Symbols of all distinct words in one array; a word only shrinks, in place.
struct Word {
  size_t begin;
  uint32_t size;
  int64_t count;
};

using WordCounts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

class Learner {
 public:
  explicit Learner(const WordCounts& counts) {
    std::array<int32_t, 256> id_of{};
    for (const uint8_t byte : bytes_by_character()) {
      const char c = static_cast<char>(byte);
      id_of[byte] = add_token(alphabet_text({&c, 1}));
    }
    for (const auto& [text, count] : counts) {
      words_.push_back({symbols_.size(), static_cast<uint32_t>(text.size()), count});
      for (const char c : text) symbols_.push_back(id_of[static_cast<uint8_t>(c)]);
    }
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const int32_t* s = symbols_.data() + words_[w].begin;
      for (uint32_t i = 0; i + 1 < words_[w].size; ++i) add({s[i], s[i + 1]}, w, words_[w].count);
    }
    for (const auto& [pair, use] : uses_) heap_.push({use.count, pair});
  }

  void run(size_t n_tokens) {
    while (tokens_.size() < n_tokens && !heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      const auto use = uses_.find(top.pair);
      if (use == uses_.end()) continue;
      if (use->second.count != top.count) {  // an old figure: the pair goes back with the present one
        if (use->second.count >= kMinCount) heap_.push({use->second.count, top.pair});
        continue;
      }
      if (top.count < kMinCount) break;
      merge(top.pair, std::move(use->second.words));
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::pair<std::string, std::string>>& merges() const { return merges_; }

 private:
  int32_t add_token(const std::string& text) {
    const auto [found, is_new] = ids_.try_emplace(text, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(text);
    return found->second;
  }

  void add(Pair pair, uint32_t word, int64_t count) {
    PairUse& use = uses_[pair];
    use.count += count;
    if (use.words.empty() || use.words.back() != word) use.words.push_back(word);
  }

  void merge(Pair pair, std::vector<uint32_t> in_words) {
    const std::string left = tokens_[static_cast<size_t>(pair.left)], right = tokens_[static_cast<size_t>(pair.right)];
    const int32_t new_id = add_token(left + right);
    // A pair can come back when its left or right text is made again in another way; its first rank stands.
    if (merged_.insert(pair).second) merges_.emplace_back(left, right);
    uses_.erase(pair);
    std::sort(in_words.begin(), in_words.end());
    in_words.erase(std::unique(in_words.begin(), in_words.end()), in_words.end());
    grown_.clear();
    for (const uint32_t w : in_words) merge_in(w, pair, new_id);
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair& p : grown_) heap_.push({uses_[p].count, p});
  }

  // One word, left to right. The count of `pair` itself is gone already.
  void merge_in(uint32_t w, Pair pair, int32_t new_id) {
    Word& word = words_[w];
    int32_t* s = symbols_.data() + word.begin;
    const auto take = [&](Pair p) {
      if (const auto use = uses_.find(p); use != uses_.end()) use->second.count -= word.count;
    };
    const auto give = [&](Pair p) {
      add(p, w, word.count);
      grown_.push_back(p);
    };
    uint32_t out = 0;
    for (uint32_t i = 0; i < word.size; ++out) {
      if (i + 1 < word.size && s[i] == pair.left && s[i + 1] == pair.right) {
        if (out > 0) {
          take({s[out - 1], pair.left});
          give({s[out - 1], new_id});
        }
        if (i + 2 < word.size) {
          take({pair.right, s[i + 2]});
          give({new_id, s[i + 2]});
        }
        s[out] = new_id;
        i += 2;
      } else {
        s[out] = s[i++];
      }
    }
    word.size = out;
  }

  std::vector<std::string> tokens_;
  TokenIds ids_;
  std::vector<std::pair<std::string, std::string>> merges_;
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairUse, PairHash> uses_;
  std::priority_queue<Candidate, std::vector<Candidate>, IsLess> heap_;
  std::vector<Pair> grown_;  // pairs made by the merge under way
  std::unordered_set<Pair, PairHash> merged_;
};

}  // namespace

struct BpeTrainer::Impl {
  size_t n_tokens;
  WordCounts counts;
  std::vector<SplitStep> steps;
  RegexScratch scratch;
};

BpeTrainer::BpeTrainer(int64_t vocab_size) {
  if (vocab_size < 257) {
    fail(ErrorKind::usage, "a byte-level BPE of {} tokens: expected at least 257 (256 bytes and {})", vocab_size,
         kEndOfText);
  }
  impl_ = std::make_unique<Impl>();
  impl_->n_tokens = static_cast<size_t>(vocab_size) - 1;
  SplitStep step;
  step.pattern = Regex(kGpt2Pattern, "the trainer's pre-tokenizer");
  impl_->steps.push_back(std::move(step));
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::string_view document) {
  std::string repaired;
  if (!valid_utf8(document)) {
    repaired = replace_invalid_utf8(document);
    document = repaired;
  }
  split_words(impl_->steps, document, impl_->scratch, [&](std::string_view word) {
    const auto found = impl_->counts.find(word);
    if (found != impl_->counts.end()) {
      ++found->second;
    } else {
      impl_->counts.emplace(word, 1);
    }
  });
}

std::string BpeTrainer::finish() {
  Learner learner(impl_->counts);
  learner.run(impl_->n_tokens);
  return write_tokenizer_json(learner.tokens(), learner.merges());
}

}  // namespace rw
