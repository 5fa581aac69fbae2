// Templates as Python's jinja2 renders them with Hugging Face's settings (tests/golden/chat/make_chat.py).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/text/chat_template.h"
#include "libcore/text/jinja/jinja.h"
#include "tests/text/text_files.h"

using namespace rw;

namespace {

Json read_cases() { return parse_json(read_file(test::text_golden("../chat/cases.json")), "cases.json"); }

// 2026-03-05 07:08:09, a Thursday.
std::tm golden_time() {
  std::tm t{};
  t.tm_year = 126, t.tm_mon = 2, t.tm_mday = 5, t.tm_hour = 7, t.tm_min = 8, t.tm_sec = 9, t.tm_wday = 4,
  t.tm_yday = 63;
  return t;
}

struct Outcome {
  bool rendered;
  std::string text;  // or the error
};

Outcome render(const std::string& source, const Json& variables) {
  try {
    return {true, jinja::Template(source, "golden").render({.variables = variables, .now = golden_time()})};
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    CHECK(std::string(e.what()).starts_with("golden: line "));
    return {false, e.what()};
  }
}

bool plain_contents(const Json& messages) {
  for (const Json& message : messages)
    if (message.contains("content") && !message["content"].is_string()) return false;
  return !messages.empty();
}

}  // namespace

TEST_CASE("jinja: pieces of templates render as the reference renders them, or fail as it does") {
  const Json cases = read_cases();
  int64_t n = 0, n_errors = 0;
  for (const Json& snippet : cases["snippets"]) {
    const std::string source = snippet[0];
    CAPTURE(source);
    const Outcome found = render(source, cases["variables"]);
    ++n;
    if (snippet[1].is_null()) {
      ++n_errors;
      CHECK_MESSAGE(!found.rendered, found.text);
    } else {
      CHECK(found.rendered);
      CHECK(found.text == snippet[1].get<std::string>());
    }
  }
  CHECK(n > 900);
  CHECK(n_errors > 100);
  CHECK(n_errors < n / 2);
}

TEST_CASE("chat templates in the manner of ten model families render as the reference renders them") {
  const Json cases = read_cases();
  int64_t n_texts = 0, n_raised = 0;
  for (const Json& chat : cases["chats"]) {
    const std::string name = chat["name"];
    CAPTURE(name);
    const Json& source = cases["templates"][chat["template"].get<std::string>()];
    Json variables = source["tokens"];
    variables["tools"] = nullptr;
    variables["documents"] = nullptr;
    variables.update(chat["variables"]);
    const Outcome found = render(source["template"], variables);
    CHECK(found.rendered == chat.contains("text"));
    if (chat.contains("text")) {
      CHECK(found.text == chat["text"].get<std::string>());
      ++n_texts;
    } else {
      const std::string raised = chat["error"];
      CHECK(found.text.ends_with(raised));
      n_raised += !raised.empty();
    }

    // The same through the model's config. A list of parts may be given otherwise, and no messages are refused.
    Json more = chat["variables"];
    const Json messages = more["messages"];
    if (!plain_contents(messages)) continue;
    more.erase("messages");
    more.erase("add_generation_prompt");
    Json config = source["tokens"];
    config["chat_template"] = source["template"];
    const auto model = model_chat_template(config.dump(), "golden", golden_time);
    REQUIRE(model != nullptr);
    try {
      const std::string text = model->render(messages, chat["variables"]["add_generation_prompt"], more);
      CHECK(text == found.text);
    } catch (const Error& e) {
      CHECK(!found.rendered);
      CHECK(e.what() == found.text);
    }
  }
  CHECK(n_texts > 60);
  CHECK(n_raised > 10);
}
