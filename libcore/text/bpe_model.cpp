#include "libcore/text/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/text/byte_alphabet.h"

namespace rw {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
// Up to here a scan for the lowest rank beats a heap; beyond it the scan's quadratic cost shows.
constexpr size_t kShortWord_bytes = 64;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t pair_slot(uint64_t key) { return (key * 0x9E3779B97F4A7C15u) >> 20; }

// A heap with the lowest rank on top, the leftmost of equals first.
bool comes_later(const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

WordCache::Slot& WordCache::slot(std::string_view word) { return slots_[hash64(word) & (kSlots - 1)]; }

BpeModel::BpeModel(const BpeSpec& spec, const std::string& where)
    : fuses_unk_(spec.fuses_unk), ignores_merges_(spec.ignores_merges) {
  vocab_.reserve(spec.vocab.size());
  std::unordered_map<int32_t, const std::string*> by_id;
  by_id.reserve(spec.vocab.size());
  for (const auto& [token, id] : spec.vocab) {
    const auto [other, is_new] = by_id.try_emplace(id, &token);
    if (!is_new) {
      fail(ErrorKind::input, "{}: model.vocab: id {} is given to \"{}\" and to \"{}\", expected one token an id", where,
           id, *other->second, token);
    }
    vocab_[token] = id;
    max_id_ = std::max(max_id_, id);
  }
  n_tokens_ = static_cast<int64_t>(vocab_.size());
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_id_[byte] = id_of(alphabet_text({&c, 1}));
  }
  const bool lacks_bytes = std::find(byte_id_.begin(), byte_id_.end(), -1) != byte_id_.end();
  if (spec.needs_all_bytes && lacks_bytes) {
    fail(ErrorKind::input,
         "{}: model.byte_fallback: expected false, or all 256 bytes in model.vocab, found bytes missing", where);
  }
  if (!spec.unk_token.empty()) {
    unk_id_ = id_of(spec.unk_token);
    if (unk_id_ < 0 && lacks_bytes) {
      fail(ErrorKind::input, "{}: model.unk_token: \"{}\" is not in model.vocab", where, spec.unk_token);
    }
  }
  add_merges(spec, where);
}

void BpeModel::add_merges(const BpeSpec& spec, const std::string& where) {
  merges_.resize(std::bit_ceil(2 * spec.merges.size() + 2));
  slot_mask_ = merges_.size() - 1;
  uint32_t rank = 0;
  for (const auto& [left, right] : spec.merges) {
    const int32_t left_id = id_of(left), right_id = id_of(right), new_id = id_of(left + right);
    if (left_id < 0 || right_id < 0 || new_id < 0) {
      fail(ErrorKind::input, "{}: model.merges[{}]: \"{}\" is not in model.vocab", where, rank,
           left_id < 0    ? left
           : right_id < 0 ? right
                          : left + right);
    }
    const uint64_t key = pair_key(left_id, right_id);
    uint64_t slot = pair_slot(key) & slot_mask_;
    while (merges_[slot].pair != kNoPair && merges_[slot].pair != key) slot = (slot + 1) & slot_mask_;
    merges_[slot] = {key, rank++, new_id};
  }
}

int32_t BpeModel::id_of(std::string_view spelled) const {
  const auto found = vocab_.find(spelled);
  return found == vocab_.end() ? -1 : found->second;
}

const BpeModel::Merge* BpeModel::merge_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (uint64_t slot = pair_slot(key) & slot_mask_;; slot = (slot + 1) & slot_mask_) {
    if (merges_[slot].pair == key) return &merges_[slot];
    if (merges_[slot].pair == kNoPair) return nullptr;
  }
}

void BpeModel::first_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  ids.clear();
  bool was_unk = false;
  for (const char c : word) {
    const int32_t id = byte_id_[static_cast<uint8_t>(c)];
    const bool is_unk = id < 0;
    if (!is_unk) {
      ids.push_back(id);
    } else if (unk_id_ >= 0 && !(fuses_unk_ && was_unk)) {
      ids.push_back(unk_id_);
    }
    was_unk = is_unk;
  }
}

void BpeModel::merge_short(MergeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::vector<uint32_t>& ranks = scratch.ranks;  // ranks[i]: of the pair (i, i + 1)
  size_t n = ids.size();
  if (n < 2) return;
  const auto rank_at = [&](size_t i) {
    const Merge* m = merge_of(ids[i], ids[i + 1]);
    return m == nullptr ? kNoRank : m->rank;
  };
  ranks.resize(n - 1);
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = rank_at(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = merge_of(ids[best], ids[best + 1])->new_id;
    std::copy(ids.begin() + static_cast<ptrdiff_t>(best) + 2, ids.begin() + static_cast<ptrdiff_t>(n),
              ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    if (best + 2 < n) {
      std::copy(ranks.begin() + static_cast<ptrdiff_t>(best) + 1, ranks.begin() + static_cast<ptrdiff_t>(n) - 1,
                ranks.begin() + static_cast<ptrdiff_t>(best));
    }
    --n;
    if (best > 0) ranks[best - 1] = rank_at(best - 1);
    if (best + 1 < n) ranks[best] = rank_at(best);
  }
  ids.resize(n);
}

void BpeModel::merge_long(MergeScratch& scratch) const {
  std::vector<MergeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<MergeScratch::Candidate>& heap = scratch.heap;
  const auto n = static_cast<int32_t>(scratch.ids.size());
  symbols.resize(static_cast<size_t>(n));
  heap.clear();
  const auto symbol = [&](int32_t i) -> MergeScratch::Symbol& { return symbols[static_cast<size_t>(i)]; };
  for (int32_t i = 0; i < n; ++i) symbol(i) = {scratch.ids[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
  const auto offer = [&](int32_t at) {
    if (at < 0 || symbol(at).next < 0) return false;
    const Merge* m = merge_of(symbol(at).id, symbol(symbol(at).next).id);
    if (m != nullptr) heap.push_back({m->rank, at, m->new_id});
    return m != nullptr;
  };
  for (int32_t i = 0; i < n; ++i) offer(i);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const MergeScratch::Candidate top = heap.back();
    heap.pop_back();
    MergeScratch::Symbol& left = symbol(top.at);
    if (left.id < 0 || left.next < 0) continue;
    const int32_t right_at = left.next;
    const Merge* m = merge_of(left.id, symbol(right_at).id);
    if (m == nullptr || m->rank != top.rank) continue;  // one of the two has changed since it was offered
    left.id = m->new_id;
    left.next = symbol(right_at).next;
    symbol(right_at).id = -1;
    if (left.next >= 0) symbol(left.next).previous = top.at;
    if (offer(left.previous)) std::push_heap(heap.begin(), heap.end(), comes_later);
    if (offer(top.at)) std::push_heap(heap.begin(), heap.end(), comes_later);
  }
  scratch.ids.clear();
  for (const MergeScratch::Symbol& s : symbols) {
    if (s.id >= 0) scratch.ids.push_back(s.id);
  }
}

void BpeModel::encode_word(std::string_view word, MergeScratch& scratch, std::vector<int32_t>& ids) const {
  const bool is_cached = word.size() <= WordCache::kMaxWord_bytes;
  WordCache::Slot* slot = is_cached ? &scratch.cache.slot(word) : nullptr;
  if (is_cached && slot->word_bytes == word.size() && std::memcmp(slot->word.data(), word.data(), word.size()) == 0) {
    ids.insert(ids.end(), slot->ids.begin(), slot->ids.begin() + slot->n_ids);
    return;
  }
  scratch.ids.clear();
  const int32_t whole = ignores_merges_ ? id_of(alphabet_text(word)) : -1;
  if (whole >= 0) {
    scratch.ids.push_back(whole);
  } else {
    first_symbols(word, scratch.ids);
    if (scratch.ids.size() <= kShortWord_bytes) {
      merge_short(scratch);
    } else {
      merge_long(scratch);
    }
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  if (is_cached && scratch.ids.size() <= WordCache::kMaxIds) {
    slot->word_bytes = static_cast<uint8_t>(word.size());
    slot->n_ids = static_cast<uint8_t>(scratch.ids.size());
    std::copy(word.begin(), word.end(), slot->word.begin());
    std::copy(scratch.ids.begin(), scratch.ids.end(), slot->ids.begin());
  }
}

}  // namespace rw
