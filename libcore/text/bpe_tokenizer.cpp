#include "libcore/text/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/text/byte_alphabet.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

// What one encode call works with; kept for the next call, so that its cache stays warm.
struct EncodeState {
  RegexScratch regex;
  MergeScratch merge;
};

class StatePool {
 public:
  class Lease {
   public:
    explicit Lease(StatePool& pool) : pool_(pool), state_(pool.take()) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give(std::move(state_)); }
    EncodeState& operator*() const { return *state_; }

   private:
    StatePool& pool_;
    std::unique_ptr<EncodeState> state_;
  };

 private:
  std::unique_ptr<EncodeState> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<EncodeState> state = std::move(idle_.back());
        idle_.pop_back();
        return state;
      }
    }
    return std::make_unique<EncodeState>();
  }
  void give(std::unique_ptr<EncodeState> state) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(state));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeState>> idle_;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(TokenizerParts parts, std::string json, const std::string& where)
      : model_(parts.model, where),
        normalizer_(std::move(parts.normalizer)),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        text_template_(std::move(parts.text_template)),
        json_(std::move(json)) {
    add_tokens(parts.added, where);
    index_tokens(where);
    make_matchers();
    find_end_of_text();
  }

  int64_t vocab_size() const override { return entries_.empty() ? 0 : int64_t{entries_.back().id} + 1; }

  void encode(std::string_view text, std::vector<int32_t>& ids, Specials specials) const override {
    if (text.size() > INT32_MAX) {
      fail(ErrorKind::input, "a text of {} bytes: expected at most {} at once; split it into documents", text.size(),
           INT32_MAX);
    }
    std::string repaired;
    if (!valid_utf8(text)) {
      repaired = replace_invalid_utf8(text);
      text = repaired;
    }
    const StatePool::Lease lease(states_);
    EncodeState& state = *lease;
    const bool skips_specials = specials == Specials::as_text;
    const auto word = [&](std::string_view w) { model_.encode_word(w, state.merge, ids); };
    std::string buffer;
    before_normalizing_.split(text, skips_specials, [&](std::string_view raw, const AddedToken* raw_token) {
      if (raw_token != nullptr) return ids.push_back(raw_token->id);
      const std::string_view normal = normalize(normalizer_, raw, buffer, state.regex);
      after_normalizing_.split(normal, skips_specials, [&](std::string_view part, const AddedToken* token) {
        if (token != nullptr) return ids.push_back(token->id);
        split_words(pre_tokenizer_, part, state.regex, word);
      });
    });
  }

  std::string_view token_bytes(int32_t id) const override {
    const Entry* entry = find(id);
    return entry == nullptr ? std::string_view{} : std::string_view(bytes_).substr(entry->begin, entry->size);
  }
  bool is_special(int32_t id) const override {
    const Entry* entry = find(id);
    return entry != nullptr && entry->is_special;
  }
  int32_t id_of(std::string_view content) const override {
    const auto added = added_ids_.find(content);
    return added != added_ids_.end() ? added->second : model_.id_of(content);
  }
  const std::string& json() const override { return json_; }
  const TextTemplate& text_template() const override { return text_template_; }
  int32_t end_of_text() const override { return end_of_text_; }

 private:
  struct Entry {
    int32_t id;
    size_t begin, size;  // in bytes_
    bool is_special;
  };

  // Ids are given as Hugging Face gives them: the vocabulary's where it has the content, else the next free one counted
  // from the vocabulary's size. The file's own id is not asked, so one that differs is reported.
  void add_tokens(const std::vector<AddedToken>& added, const std::string& where) {
    std::unordered_map<std::string_view, size_t> index;  // content -> place in added_; the views look into `added`
    int64_t next_id = model_.n_tokens();
    int64_t n_moved = 0;
    for (const AddedToken& token : added) {
      if (token.content.empty()) continue;
      const auto [place, is_new] = index.try_emplace(token.content, added_.size());
      if (is_new) {
        const int32_t vocab_id = model_.id_of(token.content);
        added_.push_back(token);
        added_.back().id = vocab_id >= 0 ? vocab_id : static_cast<int32_t>(next_id++);
        n_moved += token.id >= 0 && token.id != added_.back().id;
      } else {  // told again: the later flags hold, but what was special stays so
        AddedToken& mine = added_[place->second];
        const bool was_special = mine.is_special;
        const int32_t id = mine.id;
        mine = token;
        mine.id = id;
        mine.is_special = mine.is_special || was_special;
      }
    }
    for (const AddedToken& token : added_) added_ids_.emplace(token.content, token.id);
    if (n_moved > 0) {
      log_warning("{}: added_tokens: {} ids differ from those that the vocabulary gives; the vocabulary's are used",
                  where, n_moved);
    }
  }

  void index_tokens(const std::string& where) {
    entries_.reserve(model_.vocab().size() + added_.size());
    for (const AddedToken& token : added_) {
      entries_.push_back({token.id, bytes_.size(), token.content.size(), token.is_special});
      bytes_ += token.content;
    }
    const auto is_lower = [](const Entry& a, const Entry& b) { return a.id < b.id; };
    std::sort(entries_.begin(), entries_.end(), is_lower);
    const auto n_added = static_cast<ptrdiff_t>(entries_.size());
    for (const auto& [token, id] : model_.vocab()) {
      const auto added =
          std::lower_bound(entries_.begin(), entries_.begin() + n_added, Entry{id, 0, 0, false}, is_lower);
      if (added != entries_.begin() + n_added && added->id == id) {
        const std::string_view content = std::string_view(bytes_).substr(added->begin, added->size);
        if (content == token) continue;
        fail(ErrorKind::input,
             "{}: id {} belongs to the added token \"{}\" and to \"{}\" in model.vocab, expected one token an id",
             where, id, content, token);
      }
      const size_t begin = bytes_.size();
      if (!append_alphabet_bytes(token, bytes_)) bytes_ += token;
      entries_.push_back({id, begin, bytes_.size() - begin, false});
    }
    std::sort(entries_.begin(), entries_.end(), is_lower);
  }

  void make_matchers() {
    RegexScratch scratch;
    std::string buffer;
    for (const AddedToken& token : added_) {
      if (token.is_normalized) {
        after_normalizing_.add(token, normalize(normalizer_, token.content, buffer, scratch));
      } else {
        before_normalizing_.add(token, token.content);
      }
    }
  }

  void find_end_of_text() {
    constexpr std::array<std::string_view, 7> kNames{kEndOfText,
                                                     "<|end_of_text|>",
                                                     "<\xEF\xBD\x9C"
                                                     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                                     "</s>",
                                                     "<eos>",
                                                     "<|eos|>",
                                                     "[EOS]"};
    for (const std::string_view name : kNames) {
      const auto added = added_ids_.find(name);
      if (added != added_ids_.end()) {
        end_of_text_ = added->second;
        return;
      }
    }
  }

  const Entry* find(int32_t id) const {
    if (id < 0) return nullptr;
    // Nearly all vocabularies have no holes: entry i is id i.
    if (static_cast<size_t>(id) < entries_.size() && entries_[static_cast<size_t>(id)].id == id) {
      return &entries_[static_cast<size_t>(id)];
    }
    const auto at =
        std::lower_bound(entries_.begin(), entries_.end(), id, [](const Entry& e, int32_t i) { return e.id < i; });
    return at != entries_.end() && at->id == id ? &*at : nullptr;
  }

  BpeModel model_;
  std::vector<NormalizerStep> normalizer_;
  std::vector<SplitStep> pre_tokenizer_;
  TextTemplate text_template_;
  std::string json_;
  std::vector<AddedToken> added_;
  TokenIds added_ids_;
  TokenMatcher before_normalizing_, after_normalizing_;
  std::vector<Entry> entries_;  // by id
  std::string bytes_;           // of all tokens, one after the other
  int32_t end_of_text_ = -1;
  mutable StatePool states_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerParts parts, std::string json, const std::string& where) {
  return std::make_unique<BpeTokenizer>(std::move(parts), std::move(json), where);
}

}  // namespace rw
