// Any bytes as a chat template: it is refused, or renders within its limits to text or an Error; the text is valid
// UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/text/jinja/jinja.h"
#include "libcore/text/utf8.h"

namespace {

const rw::Json& variables() {
  static const rw::Json all = rw::Json::parse(R"({
    "messages": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "na\u00efve \ud83e\udd99?"},
                 {"role": "assistant", "content": [{"type": "text", "text": "Yes"}], "n": 1.5},
                 {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, null, true]}}}]},
                 {"role": "tool", "content": "{\"t\": 21.5}"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}}],
    "documents": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 7, "l": [3, 1, 2],
    "d": {"x": 1, "y": "why", "z": null, "items": 5}, "s": "Hello, World", "e": "", "u": "\u4f60 \u00df", "q": "it's \"so\"",
    "lines": "one\ntwo\n\n  three", "ls": ["b", "A", "c", "a"], "le": [], "mix": [1, "two", null, 2.0], "t": true, "o": false,
    "nil": null, "nest": {"a": {"b": [10, {"c": "deep"}]}, "list": [[1, 2], [3, 4]]},
    "users": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []}]})");
  return all;
}

}  // namespace

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const rw::jinja::Template parsed(source, "fuzz");
    const std::string text = parsed.render({.variables = variables(),
                                            .now = {},
                                            .limits = {.steps = 100'000, .bytes = 16 << 20, .output_bytes = 1 << 20}});
    if (!rw::valid_utf8(text) || text.size() > (2 << 20)) std::abort();
  } catch (const rw::Error&) {
  }
}
