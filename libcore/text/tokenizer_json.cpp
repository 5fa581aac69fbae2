#include "libcore/text/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

namespace rw {
namespace {

// The plain map type: a vocabulary of 128k keys in the ordered one would be searched from the front for every key.
using Value = nlohmann::json;

constexpr int kMaxNesting = 16;  // of Sequence in Sequence
constexpr int64_t kMaxId = INT32_MAX - 1;

std::string describe(const Value& v) {
  if (v.is_object()) return "an object";
  if (v.is_array()) return fmt::format("a list of {}", v.size());
  std::string text = v.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// A value of the file and the way to it, for messages.
struct Node {
  const Value* value;
  const std::string* file;
  std::string path;
  int depth = 0;

  [[noreturn]] void refuse(const std::string& expected) const {
    fail(ErrorKind::input, "{}: {}: expected {}, found {}", *file, path.empty() ? "the file" : path, expected,
         value == nullptr ? "nothing" : describe(*value));
  }
  bool is_null() const { return value == nullptr || value->is_null(); }
  Node key(const char* name) const {
    if (value == nullptr || !value->is_object()) refuse("an object");
    const auto found = value->find(name);
    return {found == value->end() ? nullptr : &*found, file, path.empty() ? name : path + "." + name, depth + 1};
  }
  std::vector<Node> items() const {
    if (value == nullptr || !value->is_array()) refuse("a list");
    std::vector<Node> out;
    out.reserve(value->size());
    for (size_t i = 0; i < value->size(); ++i) {
      out.push_back({&(*value)[i], file, fmt::format("{}[{}]", path, i), depth + 1});
    }
    return out;
  }
  const std::string& text() const {
    if (value == nullptr || !value->is_string()) refuse("a string");
    return value->get_ref<const std::string&>();
  }
  std::string text_or_empty() const { return is_null() ? std::string() : text(); }
  bool flag(bool otherwise) const {
    if (is_null()) return otherwise;
    if (!value->is_boolean()) refuse("true or false");
    return value->get<bool>();
  }
  int32_t id() const {
    if (value == nullptr || !value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<uint64_t>() > kMaxId) || value->get<int64_t>() < 0) {
      refuse(fmt::format("an id from 0 to {}", kMaxId));
    }
    return static_cast<int32_t>(value->get<int64_t>());
  }
};

Regex read_pattern(const Node& step) {
  const Node pattern = step.key("pattern");
  const Node regex = pattern.key("Regex");
  if (!regex.is_null()) return Regex(regex.text(), *regex.file + ": " + regex.path);
  const Node literal = pattern.key("String");
  if (literal.is_null()) pattern.refuse("{\"Regex\": ...} or {\"String\": ...}");
  return Regex::literal(literal.text());
}

SplitBehavior read_behavior(const Node& node) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors{{
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  for (const auto& [name, behavior] : kBehaviors) {
    if (node.text() == name) return behavior;
  }
  node.refuse("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

void check_nesting(const Node& node) {
  if (node.depth > 2 * kMaxNesting) {
    fail(ErrorKind::input, "{}: {:.60}...: expected at most {} sequences inside each other", *node.file, node.path,
         kMaxNesting);
  }
}

SplitStep split_by(const char* pattern, SplitBehavior behavior, const Node& node) {
  SplitStep step;
  step.pattern = Regex(pattern, *node.file + ": " + node.path);
  step.behavior = behavior;
  return step;
}

// Appends the steps of a pre-tokenizer; true when the last of them maps bytes to the alphabet, after which none may
// follow.
bool read_pre_tokenizer(const Node& node, bool is_mapped, std::vector<SplitStep>& steps) {
  check_nesting(node);
  const std::string type = node.key("type").text();
  if (type == "Sequence") {
    for (const Node& item : node.key("pretokenizers").items()) is_mapped = read_pre_tokenizer(item, is_mapped, steps);
    return is_mapped;
  }
  if (is_mapped) node.refuse("nothing after the ByteLevel step");
  if (type == "ByteLevel") {
    SplitStep step;
    if (node.key("use_regex").flag(true)) step = split_by(kGpt2Pattern, SplitBehavior::isolated, node);
    step.has_prefix_space = node.key("add_prefix_space").flag(true);
    steps.push_back(std::move(step));
    return true;
  }
  if (type == "Split") {
    SplitStep step;
    step.pattern = read_pattern(node);
    step.behavior = read_behavior(node.key("behavior"));
    step.is_inverted = node.key("invert").flag(false);
    steps.push_back(std::move(step));
  } else if (type == "Digits") {
    const bool is_each = node.key("individual_digits").flag(false);
    steps.push_back(split_by("\\p{N}", is_each ? SplitBehavior::isolated : SplitBehavior::contiguous, node));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(split_by("\\s", SplitBehavior::removed, node));
  } else if (type == "Whitespace") {
    // Rust's \w holds the two joiners.
    steps.push_back(split_by("[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+", SplitBehavior::removed, node));
    steps.back().is_inverted = true;
  } else {
    node.key("type").refuse("a pre-tokenizer of ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, Sequence");
  }
  return false;
}

void read_normalizer(const Node& node, std::vector<NormalizerStep>& steps) {
  using Kind = NormalizerStep::Kind;
  check_nesting(node);
  const std::string type = node.key("type").text();
  if (type == "Sequence") {
    for (const Node& item : node.key("normalizers").items()) read_normalizer(item, steps);
    return;
  }
  constexpr std::array<std::pair<std::string_view, Kind>, 8> kKinds{{{"NFC", Kind::nfc},
                                                                     {"NFD", Kind::nfd},
                                                                     {"NFKC", Kind::nfkc},
                                                                     {"NFKD", Kind::nfkd},
                                                                     {"Lowercase", Kind::lowercase},
                                                                     {"Replace", Kind::replace},
                                                                     {"Prepend", Kind::prepend},
                                                                     {"Strip", Kind::strip}}};
  const auto* kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& k) { return k.first == type; });
  if (kind == kKinds.end()) {
    node.key("type").refuse("a normalizer of NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, Sequence");
  }
  NormalizerStep step{.kind = kind->second};
  if (step.kind == Kind::replace) {
    step.pattern = read_pattern(node);
    step.content = node.key("content").text();
  } else if (step.kind == Kind::prepend) {
    step.content = node.key("prepend").text();
  } else if (step.kind == Kind::strip) {
    step.strips_left = node.key("strip_left").flag(true);
    step.strips_right = node.key("strip_right").flag(true);
  }
  steps.push_back(std::move(step));
}

// There are 280,000 of them in Llama 3's file: the way to one is only spelled out when it is wrong.
void read_merges(const Node& list, std::vector<std::pair<std::string, std::string>>& merges) {
  if (list.value == nullptr || !list.value->is_array()) list.refuse("a list");
  merges.reserve(list.value->size());
  for (size_t i = 0; i < list.value->size(); ++i) {
    const Value& merge = (*list.value)[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    if (text.starts_with("#version")) continue;  // a merges.txt pasted in
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      Node{&merge, list.file, fmt::format("{}[{}]", list.path, i)}.refuse("two tokens, as [\"a\", \"b\"] or \"a b\"");
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

BpeSpec read_model(const Node& model) {
  const Node type = model.key("type");
  const Node merges = model.key("merges");
  // Files from before the key was written are told by their merges.
  if (type.is_null() ? merges.is_null() : type.text() != "BPE") {
    type.refuse("\"BPE\", byte-level (WordPiece, Unigram and WordLevel are not supported)");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.key(affix).text_or_empty().empty()) model.key(affix).refuse("none in a byte-level BPE");
  }
  const Node dropout = model.key("dropout");
  if (!dropout.is_null() && !(dropout.value->is_number() && dropout.value->get<double>() == 0)) {
    dropout.refuse("none (merges dropped at random give other ids every time)");
  }
  BpeSpec spec;
  spec.unk_token = model.key("unk_token").text_or_empty();
  spec.fuses_unk = model.key("fuse_unk").flag(false);
  spec.ignores_merges = model.key("ignore_merges").flag(false);
  const Node vocab = model.key("vocab");
  if (vocab.value == nullptr || !vocab.value->is_object()) vocab.refuse("an object of tokens and ids");
  spec.vocab.reserve(vocab.value->size());
  for (const auto& [token, id] : vocab.value->items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > kMaxId) {
      Node{&id, vocab.file, fmt::format("{}[{:.60}]", vocab.path, token)}.refuse(
          fmt::format("an id from 0 to {}", kMaxId));
    }
    spec.vocab.emplace_back(token, static_cast<int32_t>(id.get<uint64_t>()));
  }
  read_merges(merges, spec.merges);
  if (model.key("byte_fallback").flag(false)) spec.needs_all_bytes = true;
  return spec;
}

std::vector<AddedToken> read_added(const Node& list) {
  std::vector<AddedToken> added;
  if (list.is_null()) return added;
  for (const Node& item : list.items()) {
    AddedToken token;
    token.content = item.key("content").text();
    token.id = item.key("id").is_null() ? -1 : item.key("id").id();
    token.is_special = item.key("special").flag(false);
    token.is_single_word = item.key("single_word").flag(false);
    token.strips_left = item.key("lstrip").flag(false);
    token.strips_right = item.key("rstrip").flag(false);
    token.is_normalized = item.key("normalized").flag(!token.is_special);
    added.push_back(std::move(token));
  }
  return added;
}

void append_ids(const Node& ids, std::vector<int32_t>& out) {
  for (const Node& id : ids.items()) out.push_back(id.id());
}

// Of the post-processors only what they put around a single text; the rest moves offsets, which nobody asks for here.
void read_post_processor(const Node& node, TextTemplate& text) {
  check_nesting(node);
  const std::string type = node.key("type").text();
  if (type == "Sequence") {
    for (const Node& item : node.key("processors").items()) read_post_processor(item, text);
  } else if (type == "TemplateProcessing") {
    bool is_behind = false;
    for (const Node& item : node.key("single").items()) {
      if (!item.key("Sequence").is_null()) {
        is_behind = true;
        continue;
      }
      const std::string name = item.key("SpecialToken").key("id").text();
      const Node special = node.key("special_tokens").key(name.c_str());
      append_ids(special.key("ids"), is_behind ? text.after : text.before);
    }
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (const auto& [key, ids] : {std::pair{"cls", &text.before}, std::pair{"sep", &text.after}}) {
      const std::vector<Node> pair = node.key(key).items();
      if (pair.size() != 2) node.key(key).refuse("a token and its id");
      ids->push_back(pair[1].id());
    }
  } else if (type != "ByteLevel") {
    node.key("type").refuse(
        "a post-processor of ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence");
  }
}

}  // namespace

TokenizerParts read_tokenizer_json(std::string_view json, const std::string& where) {
  Value value;
  try {
    value = Value::parse(json.begin(), json.end());
  } catch (const Value::exception& e) {
    fail(ErrorKind::input, "{}: expected a tokenizer.json, found text that is not JSON: {}", where, e.what());
  }
  const Node root{&value, &where, ""};
  TokenizerParts parts;
  if (root.key("model").is_null()) root.key("model").refuse("the model of a tokenizer.json");
  parts.model = read_model(root.key("model"));
  if (!root.key("normalizer").is_null()) read_normalizer(root.key("normalizer"), parts.normalizer);
  const Node pre_tokenizer = root.key("pre_tokenizer");
  if (pre_tokenizer.is_null() || !read_pre_tokenizer(pre_tokenizer, false, parts.pre_tokenizer)) {
    pre_tokenizer.refuse("a ByteLevel step (the tokenizer must be a byte-level BPE)");
  }
  parts.added = read_added(root.key("added_tokens"));
  if (!root.key("post_processor").is_null()) read_post_processor(root.key("post_processor"), parts.text_template);
  return parts;
}

std::string write_tokenizer_json(const std::vector<std::string>& tokens,
                                 const std::vector<std::pair<std::string, std::string>>& merges) {
  const auto quoted = [](std::string_view text) { return Value(text).dump(); };
  const std::string byte_level =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  std::string out = fmt::format(R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
    {{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}
  ],
  "normalizer": null,
  "pre_tokenizer": {},
  "post_processor": {},
  "decoder": {},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {{
)",
                                tokens.size(), quoted(kEndOfText), byte_level, byte_level, byte_level);
  for (size_t i = 0; i < tokens.size(); ++i) out += fmt::format("      {}: {},\n", quoted(tokens[i]), i);
  out += fmt::format("      {}: {}\n    }},\n    \"merges\": [", quoted(kEndOfText), tokens.size());
  const char* separator = "\n";
  for (const auto& [left, right] : merges) {
    out += fmt::format("{}      [{}, {}]", separator, quoted(left), quoted(right));
    separator = ",\n";
  }
  return out + (merges.empty() ? "]\n  }\n}\n" : "\n    ]\n  }\n}\n");
}

}  // namespace rw
