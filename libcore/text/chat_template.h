// From chat messages to a prompt's text, through a model's own template (Jinja) or a named one.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // messages: [{"role": ..., "content": text or [{"type":"text","text":...}]}, ...]. Content parts are joined by a
  // newline where the template expects text; members that are null are as good as absent, as transformers has it.
  // variables: an object with tools, documents, ... by name; the members of its "chat_template_kwargs" count as
  // variables too. Error{input} when the template raises an exception (its message) or breaks a limit, and for messages
  // of another shape; Error{usage} never. Thread-safe.
  virtual std::string render(const Json& messages, bool add_generation_prompt, const Json& variables) const = 0;
  virtual std::string name() const = 0;  // "tokenizer_config.json", "chatml", a file's path
};

// What strftime_now() shows; empty: the machine's local time.
using LocalClock = std::function<std::tm()>;

// tokenizer_config.json's text, for chat_template (a string, or a list of named ones: "default", and "tool_use" where
// tools are given), bos_token, eos_token and the like; empty: none. Null when it has no template.
std::unique_ptr<ChatTemplate> model_chat_template(std::string_view tokenizer_config_json, const std::string& where,
                                                  LocalClock clock = {});
// chatml, llama2, llama3, gemma, mistral, or the path of a file with a Jinja template. The config gives the special
// tokens. Error{usage} names what is known.
std::unique_ptr<ChatTemplate> named_chat_template(const std::string& name_or_path,
                                                  std::string_view tokenizer_config_json, LocalClock clock = {});
std::vector<std::string> chat_template_names();

}  // namespace rw
