#include "libcore/bench/load/datasets.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/rng.h"
#include "libcore/plan/serve/workload.h"

namespace rw {
namespace {

// Bodies are made before the run, so that making them does not delay a send: this many tokens are about 2 GiB.
constexpr int64_t kMostTokens = 400'000'000, kMostLength = int64_t{1} << 24;

constexpr const char* kWords[] = {
    "time",   "year",    "people",  "way",     "day",       "man",     "thing",    "woman",    "life",   "child",
    "world",  "school",  "state",   "family",  "student",   "group",   "country",  "problem",  "hand",   "part",
    "place",  "case",    "week",    "company", "system",    "program", "question", "work",     "number", "night",
    "point",  "home",    "water",   "room",    "mother",    "area",    "money",    "story",    "fact",   "month",
    "lot",    "right",   "study",   "book",    "eye",       "job",     "word",     "business", "issue",  "side",
    "kind",   "head",    "house",   "service", "friend",    "father",  "power",    "hour",     "game",   "line",
    "end",    "member",  "law",     "car",     "city",      "name",    "team",     "minute",   "idea",   "body",
    "back",   "parent",  "face",    "others",  "level",     "office",  "door",     "health",   "person", "art",
    "war",    "history", "party",   "result",  "change",    "morning", "reason",   "research", "girl",   "guy",
    "moment", "air",     "teacher", "force",   "education", "foot",    "boy",      "age",      "policy", "music"};

int64_t draw(const LengthRange& r, uint64_t key, int64_t i) {
  return r.low +
         static_cast<int64_t>(random_uniform(key, static_cast<uint64_t>(i)) * static_cast<double>(r.high - r.low + 1));
}

class Planner {
 public:
  explicit Planner(const DatasetSpec& spec)
      : spec_(spec),
        in_(rng_key(spec.seed, "load/input")),
        out_(rng_key(spec.seed, "load/output")),
        tokens_(rng_key(spec.seed, "load/tokens/" + std::to_string(spec.draw))) {}

  std::vector<PlannedPrompt> plan() {
    if (spec_.kind == "jsonl") return read();
    if (spec_.kind == "trace") return trace();
    if (spec_.kind == "multi-turn") return conversations();
    std::vector<PlannedPrompt> all;
    for (int64_t i = 0; i < spec_.n; ++i) {
      const int64_t length = draw(spec_.input, in_, i), output = draw(spec_.output, out_, i);
      const bool shares = spec_.kind == "shared-prefix";
      const int64_t prefix = shares ? std::min(spec_.prefix_len, length) : 0;
      std::vector<int32_t> ids;
      if (prefix > 0) append(ids, prefix, -1 - i % spec_.prefixes);
      append(ids, length - prefix, i);
      all.push_back(finish(std::move(ids), output));
    }
    return all;
  }

 private:
  // A token of a stream of random ones. Streams from 0 on are the requests', those below 0 shared.
  int32_t token(int64_t stream, int64_t position) const {
    const uint64_t bits = random_bits(tokens_, (static_cast<uint64_t>(stream) << 32) ^ static_cast<uint64_t>(position));
    return static_cast<int32_t>(kFirstId + static_cast<int64_t>(bits % static_cast<uint64_t>(spec_.vocab - kFirstId)));
  }

  void append(std::vector<int32_t>& ids, int64_t n, int64_t stream) const {
    for (int64_t j = 0; j < n; ++j) ids.push_back(token(stream, j));
  }

  PlannedPrompt finish(std::vector<int32_t> ids, int64_t max_tokens) {
    n_tokens_ += static_cast<int64_t>(ids.size());
    if (n_tokens_ > kMostTokens)
      fail(ErrorKind::usage,
           "the load: expected at most {} prompt tokens in all (they are made before the run), found more; fewer "
           "--num-prompts, or shorter ones",
           kMostTokens);
    PlannedPrompt p;
    p.input_tokens = static_cast<int64_t>(ids.size());
    p.max_tokens = max_tokens;
    if (spec_.ids) p.ids = std::move(ids);
    else p.text = words(ids);
    return p;
  }

  // So many words that they are about as many tokens. The word at a place depends on the token there alone, so that
  // texts agree as far as the ids do.
  std::string words(const std::vector<int32_t>& ids) const {
    std::string text;
    const auto n = std::max<int64_t>(1, std::llround(static_cast<double>(ids.size()) / spec_.tokens_per_word));
    for (int64_t w = 0; w < n; ++w) {
      const auto at = std::min(static_cast<size_t>(static_cast<double>(w) * spec_.tokens_per_word), ids.size() - 1);
      if (w > 0) text += ' ';
      text += kWords[static_cast<size_t>(ids[at]) % std::size(kWords)];
    }
    return text;
  }

  std::vector<PlannedPrompt> conversations() {
    std::vector<PlannedPrompt> all;
    std::vector<int32_t> history;
    for (int64_t i = 0; i < spec_.n; ++i) {
      const bool first = i % spec_.turns == 0;
      if (first) history.clear();
      append(history, draw(spec_.input, in_, i), 2 * i);
      const int64_t output = draw(spec_.output, out_, i);
      PlannedPrompt p = finish(history, output);
      if (!first) {
        p.after = i - 1;
        p.due_s = spec_.think_s;
      }
      all.push_back(std::move(p));
      append(history, output, 2 * i + 1);
    }
    return all;
  }

  std::vector<PlannedPrompt> trace() {
    const Workload w = load_workload(spec_.file, spec_.seed);
    const auto most = static_cast<int64_t>(w.requests.size());
    std::vector<PlannedPrompt> all;
    for (int64_t i = 0; i < (spec_.n > 0 ? std::min(spec_.n, most) : most); ++i) {
      const WorkloadRequest& r = w.requests[static_cast<size_t>(i)];
      std::vector<int32_t> ids = prompt_tokens(r, i);
      for (size_t j = 0; j < ids.size(); ++j) ids[j] = token(ids[j], static_cast<int64_t>(j));
      all.push_back(finish(std::move(ids), r.output));
      all.back().due_s = r.arrival_s / spec_.trace_speed;
    }
    return all;
  }

  std::vector<PlannedPrompt> read() const {
    const std::vector<PlannedPrompt> lines = parse_prompt_lines(read_regular_file(spec_.file), spec_.file);
    const auto there = static_cast<int64_t>(lines.size()), n = spec_.n > 0 ? spec_.n : there;
    std::vector<PlannedPrompt> all;
    for (int64_t i = 0; i < n; ++i) {
      all.push_back(lines[static_cast<size_t>(i % there)]);
      if (all.back().max_tokens == 0) all.back().max_tokens = draw(spec_.output, out_, i);
    }
    return all;
  }

  const DatasetSpec& spec_;
  uint64_t in_, out_, tokens_;
  int64_t n_tokens_ = 0;
};

PlannedPrompt prompt_line(const Json& line, const std::string& where) {
  if (!line.is_object())
    fail(ErrorKind::input, "{}: expected an object with \"prompt\" or \"messages\", found {}", where, line.type_name());
  PlannedPrompt p;
  const auto prompt = line.find("prompt"), messages = line.find("messages");
  if ((prompt == line.end()) == (messages == line.end()))
    fail(ErrorKind::input, "{}: expected either \"prompt\" or \"messages\", found {}", where,
         prompt == line.end() ? "neither" : "both");
  if (messages != line.end()) {
    if (!messages->is_array() || messages->empty())
      fail(ErrorKind::input, "{}: messages: expected an array of messages, found {}", where, messages->dump());
    p.messages = messages->dump();
  } else if (prompt->is_string() && !prompt->get_ref<const std::string&>().empty()) {
    p.text = prompt->get<std::string>();
  } else if (prompt->is_array() && !prompt->empty()) {
    for (const Json& id : *prompt) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
        fail(ErrorKind::input, "{}: prompt: expected token ids from 0 to {}, found {}", where, INT32_MAX, id.dump());
      p.ids.push_back(id.get<int32_t>());
    }
    p.input_tokens = static_cast<int64_t>(p.ids.size());
  } else {
    fail(ErrorKind::input, "{}: prompt: expected text or token ids, found {}", where, prompt->dump());
  }
  p.max_tokens = json_int(line, "max_tokens", where, 0);
  if (p.max_tokens < 0 || p.max_tokens > kMostLength)
    fail(ErrorKind::input, "{}: max_tokens: expected 1 to {}, found {}", where, kMostLength, p.max_tokens);
  p.golden = json_string(line, "golden", where, "");
  return p;
}

}  // namespace

LengthRange parse_length_range(const std::string& text, const char* flag) {
  const size_t dots = text.find("..");
  const auto number = [&](std::string_view part) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || n < 1 || n > kMostLength)
      fail(ErrorKind::usage, "{}: expected tokens, 512 or 100..2000, from 1 to {}, found \"{}\"", flag, kMostLength,
           text);
    return n;
  };
  const std::string_view all = text;
  LengthRange r;
  r.low = number(all.substr(0, dots));
  r.high = dots == std::string::npos ? r.low : number(all.substr(dots + 2));
  if (r.low > r.high) fail(ErrorKind::usage, "{}: expected the lower length first, found \"{}\"", flag, text);
  return r;
}

std::vector<PlannedPrompt> parse_prompt_lines(std::string_view text, const std::string& where) {
  std::vector<PlannedPrompt> all;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = where + ":" + std::to_string(number);
    all.push_back(prompt_line(parse_json(line, place), place));
  }
  if (all.empty())
    fail(ErrorKind::input,
         "{}: expected a line {{\"prompt\" or \"messages\", \"max_tokens\"?, \"golden\"?}} for each "
         "request, found nothing",
         where);
  return all;
}

std::vector<PlannedPrompt> plan_prompts(const DatasetSpec& spec) {
  if (spec.vocab <= kFirstId)
    fail(ErrorKind::usage, "--vocab-size: expected more than {} (lower ids are special tokens), found {}", kFirstId,
         spec.vocab);
  return Planner(spec).plan();
}

}  // namespace rw
