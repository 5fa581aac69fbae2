#include "libcore/bench/load/reply_fields.h"

#include <algorithm>

#include "libcore/bench/load/json_scan.h"

namespace rw {
namespace {

// Takes a string; whether it holds anything. With `keep` its text is appended there.
bool take_text(JsonScan& scan, std::string* keep) {
  if (scan.kind() != '"') {
    scan.skip();
    return false;
  }
  std::string here;
  std::string& out = keep != nullptr ? *keep : here;
  const size_t before = out.size();
  scan.string(&out);
  return out.size() > before;
}

int64_t count_items(JsonScan& scan) {
  if (scan.kind() != '[') {
    scan.skip();
    return -1;
  }
  int64_t n = 0;
  scan.array([&] {
    scan.skip();
    ++n;
  });
  return n;
}

// A choice, or the delta or message in it.
struct Choice {
  int64_t index = 0, token_ids = -1;
  bool has_text = false, is_odd = false;
  std::string finish_reason;
};

bool is_number_or_flag(char kind) { return kind == '0' || kind == 't' || kind == 'f'; }

void take_choice(JsonScan& scan, std::string* text, Choice& choice) {
  scan.object([&](std::string_view key) {
    const char kind = scan.kind();
    if (key == "text" || key == "content") {
      choice.is_odd |= is_number_or_flag(kind);
      choice.has_text |= take_text(scan, text);
    } else if (key == "reasoning_content" || key == "reasoning") {
      choice.has_text |= take_text(scan, nullptr);
    } else if (key == "tool_calls") {
      choice.has_text |= count_items(scan) > 0;
    } else if ((key == "delta" || key == "message") && scan.kind() == '{') {
      take_choice(scan, text, choice);
    } else if (key == "token_ids") {
      choice.token_ids = count_items(scan);
    } else if (key == "finish_reason") {
      choice.is_odd |= is_number_or_flag(kind);
      choice.finish_reason.clear();
      take_text(scan, &choice.finish_reason);
    } else if (key == "index") {
      choice.is_odd |= kind != '0' && kind != 'n';
      choice.index = scan.integer(0);
    } else {
      scan.skip();
    }
  });
}

void take_choices(JsonScan& scan, ReplyText keep, ReplyFields& fields) {
  fields.choices = 0;
  scan.array([&] {
    ++fields.choices;
    if (scan.kind() != '{') return scan.skip();
    Choice choice;
    const size_t before = fields.text.size();
    take_choice(scan, keep == ReplyText::keep ? &fields.text : nullptr, choice);
    if (choice.index != 0) fields.text.resize(before);
    fields.is_odd |= choice.is_odd;
    fields.most_index = std::max(fields.most_index, choice.index);
    if (choice.has_text) ++fields.with_text;
    if (choice.token_ids >= 0) fields.token_ids = std::max<int64_t>(fields.token_ids, 0) + choice.token_ids;
    if (!choice.finish_reason.empty()) fields.finish_reason = choice.finish_reason;
  });
}

void take_usage(JsonScan& scan, ReplyFields& fields) {
  scan.object([&](std::string_view key) {
    if (key == "prompt_tokens") {
      fields.prompt_tokens = scan.integer(-1);
    } else if (key == "completion_tokens") {
      fields.completion_tokens = scan.integer(-1);
    } else if (key == "prompt_tokens_details" && scan.kind() == '{') {
      scan.object([&](std::string_view detail) {
        if (detail == "cached_tokens") fields.cached_tokens = scan.integer(-1);
        else scan.skip();
      });
    } else {
      scan.skip();
    }
  });
}

// Ours, and llama.cpp's names for the same.
void take_timings(JsonScan& scan, ReplyFields& fields) {
  scan.object([&](std::string_view key) {
    if (key == "queue_ms") fields.queue_ms = scan.number(-1);
    else if (key == "prefill_ms" || key == "prompt_ms") fields.prefill_ms = scan.number(-1);
    else if (key == "decode_ms" || key == "predicted_ms") fields.decode_ms = scan.number(-1);
    else if (key == "ttft_ms") fields.ttft_ms = scan.number(-1);
    else if (key == "total_ms") fields.total_ms = scan.number(-1);
    else if (key == "cached_tokens" || key == "cache_n") fields.cached_tokens = scan.integer(-1);
    else scan.skip();
  });
}

// "error": a text, or an object with a message.
void take_error(JsonScan& scan, ReplyFields& fields) {
  const char kind = scan.kind();
  fields.error.clear();
  fields.is_error = kind != 'n' && kind != 'f';
  if (kind == '{') {
    scan.object([&](std::string_view key) {
      if (key == "message") take_text(scan, &fields.error);
      else scan.skip();
    });
  } else {
    take_text(scan, &fields.error);
  }
}

}  // namespace

bool read_reply_fields(std::string_view json, ReplyText text, ReplyFields& fields) {
  fields = {};
  JsonScan scan(json);
  if (scan.kind() != '{') return false;
  std::string object, message;
  scan.object([&](std::string_view key) {
    const char kind = scan.kind();
    if (key == "choices" && kind == '[') {
      take_choices(scan, text, fields);
    } else if (key == "usage" && kind == '{') {
      take_usage(scan, fields);
    } else if (key == "timings" && kind == '{') {
      take_timings(scan, fields);
    } else if (key == "error") {
      take_error(scan, fields);
    } else if (key == "object") {
      take_text(scan, &object);
    } else if (key == "message" || key == "detail") {
      take_text(scan, &message);
    } else {
      scan.skip();
    }
  });
  if (object == "error") fields.is_error = true;
  if (fields.error.empty()) fields.error = message;
  return scan.finished() && !fields.is_odd;
}

std::string reply_error_text(std::string_view body) {
  ReplyFields fields;
  if (read_reply_fields(body, ReplyText::drop, fields) && !fields.error.empty()) return fields.error;
  const std::string_view line = body.substr(0, std::min<size_t>(body.find_first_of("\r\n"), 200));
  std::string out(line);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  return out;
}

}  // namespace rw
