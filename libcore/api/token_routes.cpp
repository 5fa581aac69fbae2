// POST /tokenize, /detokenize and /apply-template, with the field names of several servers.
#include <nlohmann/json.hpp>

#include "libcore/api/json_text.h"
#include "libcore/api/prompt_tokens.h"
#include "libcore/api/request_body.h"
#include "libcore/api/routes.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

constexpr size_t kMaxIds = 1 << 21;

// A piece that is not UTF-8 by itself is a list of its bytes.
void append_piece(std::string& out, std::string_view bytes) {
  if (valid_utf8(bytes)) append_json_string(out, bytes);
  else append_json_bytes(out, bytes);
}

void append_pieces(std::string& out, const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    out += i > 0 ? ",{\"id\":" : "{\"id\":";
    append_json_int(out, ids[i]);
    out += ",\"piece\":";
    append_piece(out, tokenizer.token_bytes(ids[i]));
    out += '}';
  }
  out += ']';
}

void append_token_texts(std::string& out, const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, tokenizer.token_bytes(ids[i]));
  }
  out += ']';
}

std::optional<bool> optional_boolean(RequestFields& fields, const char* name) {
  if (!fields.has(name)) return std::nullopt;
  return fields.boolean(name, false);
}

void tell_unknown(ApiState& state, const RequestFields& fields) { state.unknown.tell(fields.unknown()); }

std::string prompt_and_content(const std::string& text) {
  std::string out = "{\"prompt\":";
  append_json_string(out, text);
  out += ",\"content\":";
  append_json_string(out, text);
  return out + "}";
}

}  // namespace

void post_tokenize(ApiState& state, Exchange& x) {
  const LoadedModel& loaded = state.require_loaded();
  const Json json = parse_request_body(x.request.body);
  RequestFields fields(json);
  check_model(fields, loaded.limits);
  const Tokenizer& tokenizer = *loaded.model.tokenizer;
  const std::optional<bool> add_special = optional_boolean(fields, "add_special_tokens"),
                            add_special_short = optional_boolean(fields, "add_special");
  const bool parse_special = fields.boolean("parse_special", true);
  const bool with_pieces = fields.boolean("with_pieces", false),
             with_texts = fields.boolean("return_token_strs", false);
  std::vector<int32_t> ids;
  if (fields.has("messages")) {
    const std::string text = render_chat(read_chat_prompt(fields, loaded.limits), loaded.model);
    ids = chat_ids(text, add_special ? add_special : add_special_short, 0, loaded.model);
  } else {
    const char* name = fields.has("prompt") ? "prompt" : "content";
    if (!fields.has(name)) refuse("prompt", "expected a string (or content, or messages), found none");
    const std::string text = fields.text(name, "", SIZE_MAX);
    // Each name comes from a server with its own default.
    const bool special = add_special.value_or(add_special_short.value_or(name == std::string_view("prompt")));
    ids = text_ids({.text = text,
                    .add_special_tokens = special,
                    .specials = parse_special ? Tokenizer::Specials::match : Tokenizer::Specials::as_text},
                   tokenizer);
  }
  tell_unknown(state, fields);
  std::string out = "{\"count\":";
  append_json_int(out, static_cast<int64_t>(ids.size()));
  out += ",\"max_model_len\":";
  append_json_int(out, loaded.model.max_model_len);
  out += ",\"tokens\":";
  if (with_pieces) append_pieces(out, ids, tokenizer);
  else append_json_ids(out, ids);
  if (with_texts) {
    out += ",\"token_strs\":";
    append_token_texts(out, ids, tokenizer);
  }
  x.send(200, out + "}");
}

void post_detokenize(ApiState& state, Exchange& x) {
  const LoadedModel& loaded = state.require_loaded();
  const Json json = parse_request_body(x.request.body);
  RequestFields fields(json);
  check_model(fields, loaded.limits);
  if (!fields.has("tokens")) refuse("tokens", "expected a list of token ids, found none");
  const std::vector<int32_t> ids = fields.ids("tokens", kMaxIds, loaded.limits.vocab_size);
  tell_unknown(state, fields);
  x.send(200, prompt_and_content(visible_text(ids, /*skip_special_tokens=*/false, *loaded.model.tokenizer)));
}

void post_apply_template(ApiState& state, Exchange& x) {
  const LoadedModel& loaded = state.require_loaded();
  const Json json = parse_request_body(x.request.body);
  RequestFields fields(json);
  check_model(fields, loaded.limits);
  const std::string text = render_chat(read_chat_prompt(fields, loaded.limits), loaded.model);
  tell_unknown(state, fields);
  x.send(200, prompt_and_content(text));
}

}  // namespace rw
