// The byte pair encoding itself: a vocabulary of byte strings, ranked merges, and the ids of one word.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rw {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokenIds = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

// What tokenizer.json says of a BPE model. Tokens are in its spelling (byte_alphabet.h).
struct BpeSpec {
  std::vector<std::pair<std::string, int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::string unk_token;                                    // empty: a byte that is no token is dropped
  bool fuses_unk = false;                                   // a run of unknown bytes is one unk_token
  bool needs_all_bytes = false;  // byte_fallback: no byte may be missing, so that the fallback is never taken
  bool ignores_merges = false;   // a word that is a token is that token, whatever the merges say
};

// Ids of short words met lately; direct-mapped, one cache line a slot. One per thread at a time.
class WordCache {
 public:
  static constexpr size_t kMaxWord_bytes = 30, kMaxIds = 8;
  struct alignas(64) Slot {
    uint8_t word_bytes = 0, n_ids = 0;
    std::array<char, kMaxWord_bytes> word{};
    std::array<int32_t, kMaxIds> ids{};
  };
  WordCache() : slots_(kSlots) {}
  Slot& slot(std::string_view word);

 private:
  static constexpr size_t kSlots = size_t{1} << 15;
  std::vector<Slot> slots_;
};

struct MergeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // indices, -1 at the ends; a merged symbol has id -1
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;  // index of the left symbol
    int32_t new_id;
  };
  WordCache cache;
  std::vector<int32_t> ids;  // short words
  std::vector<uint32_t> ranks;
  std::vector<Symbol> symbols;  // long words
  std::vector<Candidate> heap;
};

// Immutable once made.
class BpeModel {
 public:
  // Error{input} naming `where`, the key, what was expected and found.
  BpeModel(const BpeSpec& spec, const std::string& where);

  void encode_word(std::string_view word, MergeScratch& scratch, std::vector<int32_t>& ids) const;
  int64_t n_tokens() const { return n_tokens_; }
  int32_t max_id() const { return max_id_; }      // -1: no token
  int32_t id_of(std::string_view spelled) const;  // as tokenizer.json spells it; -1: unknown
  // id and spelling of every token, in no order.
  const TokenIds& vocab() const { return vocab_; }

 private:
  struct Merge {
    uint64_t pair = kNoPair;  // left id << 32 | right id
    uint32_t rank = 0;
    int32_t new_id = 0;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;

  void add_merges(const BpeSpec& spec, const std::string& where);
  const Merge* merge_of(int32_t left, int32_t right) const;
  void first_symbols(std::string_view word, std::vector<int32_t>& ids) const;
  void merge_short(MergeScratch& scratch) const;
  void merge_long(MergeScratch& scratch) const;

  TokenIds vocab_;
  int64_t n_tokens_ = 0;
  int32_t max_id_ = -1;
  std::array<int32_t, 256> byte_id_{};
  int32_t unk_id_ = -1;
  bool fuses_unk_ = false, ignores_merges_ = false;
  std::vector<Merge> merges_;  // open addressing, a power of two of slots
  uint64_t slot_mask_ = 0;
};

}  // namespace rw
