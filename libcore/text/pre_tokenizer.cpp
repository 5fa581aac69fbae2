#include "libcore/text/pre_tokenizer.h"

#include <string>

namespace rw {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

struct Span {
  size_t begin, end;
};

// Joins or drops the spans (matches and gaps, in order) as the behaviour says; holds back at most one.
template <typename Emit>
class SpanJoiner {
 public:
  SpanJoiner(SplitBehavior behavior, const Emit& emit) : behavior_(behavior), emit_(emit) {}

  void add(Span span, bool is_match) {
    switch (behavior_) {
      case SplitBehavior::isolated: emit_(span); return;
      case SplitBehavior::removed:
        if (!is_match) emit_(span);
        return;
      case SplitBehavior::contiguous: join(span, is_match == was_match_); break;
      case SplitBehavior::merged_with_previous: join(span, is_match && !was_match_); break;
      case SplitBehavior::merged_with_next: join(span, was_match_ && !is_match); break;
    }
    was_match_ = is_match;
  }
  void finish() {
    if (has_held_) emit_(held_);
    has_held_ = false;
  }

 private:
  void join(Span span, bool with_held) {
    if (has_held_ && with_held) {
      held_.end = span.end;
      return;
    }
    finish();
    held_ = span;
    has_held_ = true;
  }

  SplitBehavior behavior_;
  const Emit& emit_;
  Span held_{0, 0};
  bool has_held_ = false;
  bool was_match_ = false;
};

struct Splitter {
  const std::vector<SplitStep>& steps;
  RegexScratch& scratch;
  const std::function<void(std::string_view)>& word;

  void run(size_t i, std::string_view piece) const {
    if (piece.empty()) return;
    if (i == steps.size()) return word(piece);
    const SplitStep& step = steps[i];
    std::string prefixed;
    if (step.has_prefix_space && piece.front() != ' ') {
      prefixed.reserve(piece.size() + 1);
      prefixed += ' ';
      prefixed += piece;
      piece = prefixed;
    }
    if (!step.pattern) return run(i + 1, piece);
    const auto emit = [&](Span span) { run(i + 1, piece.substr(span.begin, span.end - span.begin)); };
    SpanJoiner joiner(step.behavior, emit);
    RegexWalk walk(*step.pattern, piece, scratch);
    RegexMatch match{};
    size_t done = 0;
    while (walk.next(match)) {
      if (match.begin != done) joiner.add({done, match.begin}, step.is_inverted);
      joiner.add({match.begin, match.end}, !step.is_inverted);
      done = match.end;
    }
    if (done != piece.size()) joiner.add({done, piece.size()}, step.is_inverted);
    joiner.finish();
  }
};

}  // namespace

void split_words(const std::vector<SplitStep>& steps, std::string_view text, RegexScratch& scratch,
                 const std::function<void(std::string_view)>& word) {
  Splitter{steps, scratch, word}.run(0, text);
}

}  // namespace rw
