// Regular expressions of tokenizer files, over PCRE2 (UTF-8, Unicode classes of version 14, JIT where the machine
// allows it). The dialect is that of the Hugging Face library (Oniguruma's Ruby syntax): see regex_dialect.h.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace rw {

// What a search writes into; one per thread at a time, for any number of expressions.
class RegexScratch {
 public:
  RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;
  ~RegexScratch();

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct RegexMatch {
  size_t begin, end;  // bytes
};

// Immutable once made: any number of threads may search with one.
class Regex {
 public:
  // Error{input} naming `where`, the pattern and what is wrong with it.
  Regex(std::string_view pattern, const std::string& where);
  static Regex literal(std::string_view text);  // matches exactly `text`
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The leftmost match that starts at or after `from`; `text` is valid UTF-8. Error{input} when the pattern needs more
  // steps than the limit: a pattern that backtracks without end stops the call, not the program.
  bool search(std::string_view text, size_t from, RegexMatch& match, RegexScratch& scratch) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Walks all matches as Oniguruma's find_iter does: an empty match right behind the last one is passed over.
class RegexWalk {
 public:
  RegexWalk(const Regex& regex, std::string_view text, RegexScratch& scratch)
      : regex_(regex), text_(text), scratch_(scratch) {}
  bool next(RegexMatch& match);

 private:
  const Regex& regex_;
  std::string_view text_;
  RegexScratch& scratch_;
  size_t from_ = 0;
  size_t last_end_ = std::string_view::npos;
};

}  // namespace rw
