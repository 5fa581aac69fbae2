// Chat templates through the interface that the server uses: named ones, a model's own, messages of every shape.
#include "libcore/text/chat_template.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

using namespace rw;

namespace {

const Json kTurns = Json::parse(R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi "},
                                    {"role": "assistant", "content": " Yes? "}, {"role": "user", "content": "Go."}])");
constexpr const char* kTokens = R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})";

Json user(const Json& content) { return Json::array({{{"role", "user"}, {"content", content}}}); }

std::string rendered(const std::string& name, const Json& messages, bool go = true) {
  return named_chat_template(name, kTokens)->render(messages, go, nullptr);
}

std::unique_ptr<ChatTemplate> of_source(const Json& source) {
  return model_chat_template(Json({{"chat_template", source}, {"bos_token", "<s>"}}).dump(), "tokenizer_config.json");
}

template <typename F>
std::string error_of(ErrorKind kind, F f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.what();
  }
  return {};
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("chat template: the named formats, as their models' cards show them") {
  CHECK(chat_template_names() == std::vector<std::string>{"chatml", "gemma", "llama2", "llama3", "mistral"});
  CHECK(rendered("chatml", kTurns) ==
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n Yes? "
        "<|im_end|>\n<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n");
  CHECK(rendered("llama3", kTurns) ==
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_header_id|>user<|end_header_id|>"
        "\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nGo.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(rendered("llama2", kTurns) ==
        "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Yes? </s><s>[INST] Go. [/INST]");
  CHECK(rendered("mistral", kTurns) == "<s>[INST] Be kind.\n\n Hi  [/INST] Yes?</s>[INST] Go. [/INST]");
  CHECK(rendered("gemma", kTurns) ==
        "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
        "<start_of_turn>user\nGo.<end_of_turn>\n<start_of_turn>model\n");
  CHECK(rendered("chatml", user("x"), false) == "<|im_start|>user\nx<|im_end|>\n");
  CHECK(named_chat_template("llama3", "")->render(user("x"), false, nullptr) ==
        "<|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|>");
}

TEST_CASE("chat template: formats whose roles take turns refuse others") {
  const Json twice = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])");
  const Json tool = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}])");
  const Json answer = Json::parse(R"([{"role": "assistant", "content": "a"}])");
  for (const std::string name : {"llama2", "mistral", "gemma"}) {
    for (const Json& messages : {twice, tool, answer}) {
      const std::string error = error_of(ErrorKind::input, [&] { rendered(name, messages); });
      CHECK(error.starts_with(name + ": line "));
      CHECK(mentions(error, "the roles must alternate"));
    }
  }
}

TEST_CASE("chat template: unknown names, files, configs") {
  const std::string error = error_of(ErrorKind::usage, [] { named_chat_template("chatlm", ""); });
  CHECK(mentions(error, "chatml, gemma, llama2, llama3, mistral"));
  CHECK(mentions(error, "did you mean chatml?"));
  const auto file = std::filesystem::temp_directory_path() / "rankwright-chat-template.jinja";
  std::ofstream(file) << "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}\n";
  const auto from_file = named_chat_template(file.string(), kTokens);
  CHECK(from_file->name() == file.string());
  CHECK(from_file->render(user("x"), true, nullptr) == "<s>x");
  std::filesystem::remove(file);

  CHECK(model_chat_template("", "c") == nullptr);
  CHECK(model_chat_template("{}", "c") == nullptr);
  CHECK(model_chat_template(R"({"chat_template": null})", "c") == nullptr);
  CHECK(mentions(error_of(ErrorKind::input, [] { of_source("a\n{% if %}"); }), "tokenizer_config.json: line 2"));
  CHECK(mentions(error_of(ErrorKind::input, [] { of_source(7); }), "expected a string or a list, found number"));
  CHECK(mentions(error_of(ErrorKind::input,
                          [] {
                            of_source(Json::array({{{"name", "rag"}, {"template", "x"}}}));
                          }),
                 "\"default\""));
  CHECK(!error_of(ErrorKind::input, [] { model_chat_template("[1]", "c"); }).empty());
  CHECK(!error_of(ErrorKind::input, [] { model_chat_template("{", "c"); }).empty());
}

TEST_CASE("chat template: of several templates the default, and with tools the one for tools") {
  const auto several = of_source(Json::array({{{"name", "tool_use"}, {"template", "tools: {{ tools | length }}"}},
                                              {{"name", "default"}, {"template", "{{ bos_token }}{{ tools }}"}}}));
  CHECK(several->name() == "tokenizer_config.json");
  CHECK(several->render(user("x"), true, nullptr) == "<s>None");
  CHECK(several->render(user("x"), true, {{"tools", {1, 2}}}) == "tools: 2");
  const auto one = of_source("{{ tools }}");
  CHECK(one->render(user("x"), true, {{"tools", {1, 2}}}) == "[1, 2]");
}

TEST_CASE("chat template: content parts are joined where the template takes text, and kept where it takes parts") {
  const Json parts = Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  const auto text = of_source("{% for m in messages %}[{{ m['content'] }}]{% endfor %}");
  CHECK(text->render(user(parts), true, nullptr) == "[a\nb]");
  CHECK(text->render(user("x"), true, nullptr) == "[x]");
  CHECK(text->render(user(Json::array()), true, nullptr) == "[]");
  const auto both = of_source(
      "{% for m in messages %}{% if m.content is string %}[{{ m.content }}]{% else %}{% for p in m.content %}"
      "<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}");
  CHECK(both->render(user(parts), true, nullptr) == "<a><b>");
  CHECK(both->render(user("x"), true, nullptr) == "[x]");
  const auto parts_alone =
      of_source("{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}");
  CHECK(parts_alone->render(user(parts), true, nullptr) == "<a><b>");
  CHECK(parts_alone->render(user("x"), true, nullptr) == "<x>");
}

TEST_CASE("chat template: messages of another shape are refused with their place") {
  const auto t = of_source("{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto refusal = [&](const Json& messages, const Json& variables = nullptr) {
    return error_of(ErrorKind::input, [&] { t->render(messages, true, variables); });
  };
  CHECK(mentions(refusal(Json::array()), "messages: expected a list of at least one message"));
  CHECK(mentions(refusal("x"), "found string"));
  CHECK(mentions(refusal(nullptr), "found null"));
  CHECK(mentions(refusal({{{"role", "user"}}, 7}), "messages[1]"));
  CHECK(mentions(refusal({{{"content", "x"}}}), "messages[0]"));
  CHECK(mentions(refusal(user(7)), "messages[0].content"));
  CHECK(mentions(refusal(user({{{"type", "image_url"}, {"image_url", "x"}}})), "messages[0].content[0]"));
  CHECK(mentions(refusal(user({{{"type", "text"}}})), "text"));
  CHECK(mentions(refusal(user("x"), {1}), "variables"));
}

TEST_CASE("chat template: variables, null members, the clock") {
  const auto t = of_source(
      "{{ messages[0].content is defined }}{{ messages[0].name }}{{ add_generation_prompt }}{{ thinking }}{{ more }}"
      "{{ documents }}{{ strftime_now('%Y') is defined }}");
  const Json messages = Json::parse(R"([{"role": "assistant", "content": null, "name": "n", "tool_calls": []}])");
  CHECK(t->render(messages, false, {{"thinking", 1}, {"chat_template_kwargs", {{"more", 2}, {"thinking", 3}}}}) ==
        "FalsenFalse32NoneTrue");
  CHECK(t->render(messages, true, {{"messages", 1}, {"add_generation_prompt", 2}}) == "FalsenTrueNoneTrue");
  const auto dated = model_chat_template(R"({"chat_template": "{{ strftime_now('%d %b %Y') }}"})", "c", [] {
    std::tm day{};
    day.tm_year = 99, day.tm_mon = 11, day.tm_mday = 31;
    return day;
  });
  CHECK(dated->render(user("x"), true, nullptr) == "31 Dec 1999");
}
