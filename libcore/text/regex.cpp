#include "libcore/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/text/regex_dialect.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;    // backtracking steps of one search
constexpr uint32_t kHeapLimit_KiB = 64 * 1024;  // of one search in the interpreter
constexpr size_t kJitStackStart_bytes = 32 * 1024;
constexpr size_t kJitStackMax_bytes = 8 * 1024 * 1024;
constexpr size_t kPatternMax_bytes = 64 * 1024;

std::string pcre_message(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct RegexScratch::Impl {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart_bytes, kJitStackMax_bytes, nullptr);

  Impl() {
    CHECK(data != nullptr && context != nullptr, "no memory for a regex scratch");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimit_KiB);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Impl {
  pcre2_code* code = nullptr;
  bool has_jit = false;
  std::string pattern;  // as the file has it, for messages

  Impl(const std::string& translated, std::string_view original, const std::string& where) : pattern(original) {
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    CHECK(context != nullptr, "no memory to compile a regex");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(context, 8 * kPatternMax_bytes);
    int error = 0;
    PCRE2_SIZE at = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
    pcre2_compile_context_free(context);
    if (code == nullptr) fail(ErrorKind::input, "{}: regex \"{}\": {}", where, original, pcre_message(error));
    has_jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, const std::string& where) {
  if (pattern.size() > kPatternMax_bytes) {
    fail(ErrorKind::input, "{}: regex of {} bytes, expected at most {}", where, pattern.size(), kPatternMax_bytes);
  }
  impl_ = std::make_unique<Impl>(pcre_pattern(pattern, where), pattern, where);
}

Regex Regex::literal(std::string_view text) {
  return Regex(std::make_unique<Impl>(pcre_literal(text), text, "literal"));
}

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

bool Regex::search(std::string_view text, size_t from, RegexMatch& match, RegexScratch& scratch) const {
  const RegexScratch::Impl& s = *scratch.impl_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (impl_->has_jit) {
    rc = pcre2_jit_match(impl_->code, subject, text.size(), from, 0, s.data, s.context);
  }
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(impl_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s.data, s.context);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    fail(ErrorKind::input, "regex \"{}\" on a text of {} bytes: {}; the tokenizer's pattern backtracks too much",
         impl_->pattern, text.size(), pcre_message(rc));
  }
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(s.data);
  match = {ovector[0], ovector[1]};
  // \K can move the start; an expression that turns around makes no pieces.
  if (match.begin > match.end || match.begin < from) {
    fail(ErrorKind::input, "regex \"{}\": a match that starts at {} and ends at {}", impl_->pattern, match.begin,
         match.end);
  }
  return true;
}

bool RegexWalk::next(RegexMatch& match) {
  if (text_.empty()) return false;
  while (from_ <= text_.size()) {
    if (!regex_.search(text_, from_, match, scratch_)) return false;
    if (match.begin == match.end && match.end == last_end_) {
      from_ += from_ < text_.size() ? static_cast<size_t>(utf8_length(text_, from_)) : 1;
      continue;
    }
    from_ = last_end_ = match.end;
    return true;
  }
  return false;
}

}  // namespace rw
