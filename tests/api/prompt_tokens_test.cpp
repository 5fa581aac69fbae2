// Exactly one BOS, and warm-up files.
#include "libcore/api/prompt_tokens.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/api/api_error.h"
#include "libcore/api/warmup_file.h"
#include "libcore/base/files.h"
#include "tests/api/served_fixture.h"

namespace rw {
namespace {

// One that a server names for a model that has none of its own; it writes no BOS.
class NamedTemplate : public ChatTemplate {
 public:
  explicit NamedTemplate(std::string text) : text_(std::move(text)) {}
  std::string render(const Json& messages, bool, const Json&) const override {
    return text_ + messages[0]["content"].get<std::string>();
  }
  std::string name() const override { return "chatml"; }

 private:
  std::string text_;
};

struct Model {
  std::unique_ptr<Tokenizer> tokenizer = bos_tokenizer();
  TestTemplate own;
  ServedModel model{.name = "m", .tokenizer = tokenizer.get(), .chat_template = &own, .max_model_len = 64};
  Model() { model.spec.vocab_size = 257; }
};

int64_t n_bos(const std::vector<int32_t>& ids) { return std::count(ids.begin(), ids.end(), 256); }

TEST_CASE("BOS: one, whoever writes it") {
  Model m;
  const NamedTemplate without(""), with("<|endoftext|>");
  for (const ChatTemplate* t : {static_cast<const ChatTemplate*>(&m.own), static_cast<const ChatTemplate*>(&without),
                                static_cast<const ChatTemplate*>(&with)}) {
    CAPTURE(t->name());
    m.model.chat_template = t;
    const ChatPrompt prompt{.messages = std::make_shared<const Json>(Json::parse(R"([{"role":"u","content":"a"}])")),
                            .variables = std::make_shared<const Json>(Json::object())};
    for (const std::optional<bool> asked : {std::optional<bool>(), std::optional<bool>(true)}) {
      const auto ids = chat_ids(render_chat(prompt, m.model), asked, 0, m.model);
      CHECK(n_bos(ids) == 1);
      CHECK(ids[0] == 256);
    }
  }
  // A model's own template that writes none means it.
  class Bare : public NamedTemplate {
   public:
    Bare() : NamedTemplate("") {}
    std::string name() const override { return "tokenizer_config.json"; }
  } bare;
  m.model.chat_template = &bare;
  CHECK(n_bos(chat_ids("text", std::nullopt, 0, m.model)) == 0);
}

TEST_CASE("room for an answer") {
  const auto room = [](int64_t prompt, std::optional<int64_t> max_tokens, bool is_default = false) {
    return answer_room({.n_prompt = prompt,
                        .max_tokens = max_tokens,
                        .is_default = is_default,
                        .max_model_len = 10,
                        .param = "prompt"});
  };
  CHECK(room(1, std::nullopt) == 9);
  CHECK(room(9, std::nullopt) == 1);
  CHECK(room(4, 6) == 6);
  CHECK(room(4, 16, /*is_default=*/true) == 6);
  CHECK(room(10, 0) == 0);
  CHECK_THROWS_AS(room(10, std::nullopt), ApiError);
  CHECK_THROWS_AS(room(10, 16, /*is_default=*/true), ApiError);
  CHECK_THROWS_AS(room(11, 0), ApiError);
  CHECK_THROWS_AS(room(4, 7), ApiError);
}

TEST_CASE("warm-up file: lines of prompts and chats") {
  const Model m;
  const auto file = std::filesystem::temp_directory_path() / ("rw-warm-" + std::to_string(::getpid()) + ".jsonl");
  const auto read = [&](const std::string& text) {
    write_file_atomic(file, text);
    return read_warmup_file(file.string(), m.model);
  };
  const auto prompts = read(R"({"prompt": "ab", "name": "two", "ttl": 60, "cache_salt": "s"}

{"prompt": [97, 98]}
{"messages": [{"role": "u", "content": "a"}]})");
  REQUIRE(prompts.size() == 3);
  CHECK(prompts[0].name == "two");
  CHECK(prompts[0].tokens == std::vector<int32_t>{256, 97, 98});
  CHECK(prompts[0].ttl_s == 60);
  CHECK(prompts[0].salt == "s");
  CHECK(prompts[1].name == "line 3");
  CHECK(prompts[1].tokens == std::vector<int32_t>{97, 98});
  CHECK(prompts[2].tokens.size() == 1 + std::string("<u>a</u>").size());
  CHECK(read("").empty());
  CHECK(read_warmup_file("", m.model).empty());
  const auto refusal = [&](const std::string& text) {
    try {
      read(text);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::input);
      return std::string(e.what()).substr(file.string().size());
    }
    return std::string("taken");
  };
  CHECK(refusal("{}\n").starts_with(":1: messages"));
  CHECK(refusal("{\"prompt\": \"a\"}\nnonsense").starts_with(":2: the body is not valid JSON"));
  CHECK(refusal(R"({"prompt": [257]})").starts_with(":1: prompt[0]"));
  CHECK(refusal(R"({"prompt": "a", "promt": "b"})").starts_with(":1: promt"));
  CHECK(refusal(R"({"prompt": []})").starts_with(":1: prompt"));
  CHECK(refusal("{\"prompt\": \"" + std::string(64, 'a') + "\"}").starts_with(":1: prompt"));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace rw
