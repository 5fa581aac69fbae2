#include "libcore/bench/load/fit_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr double kOfEstimate = 0.75;  // words and chat templates come to more tokens than they are counted as

// Tokens of a prompt and its answer together; of a conversation's last turn all before it counts.
int64_t room_of(const ServeLoadSpec& spec, const ServedModelInfo& model) {
  const bool exact = spec.endpoint != "chat" && spec.prompt_form != "text";
  const auto room = static_cast<int64_t>((exact ? 1 : kOfEstimate) * static_cast<double>(model.max_model_len));
  return spec.dataset == "multi-turn" ? room / spec.turns : room;
}

}  // namespace

std::vector<std::string> fit_to_model(ServeLoadSpec& spec, const ServedModelInfo& model) {
  const bool is_drawn = spec.trace.empty() && spec.dataset != "trace" && spec.dataset != "jsonl";
  const bool any_input = spec.input_len.empty(), any_output = spec.output_len.empty();
  int64_t input = kDefaultInputLen, output = kDefaultOutputLen;
  if (!any_input) input = parse_length_range(spec.input_len, "--input-len").high;
  if (!any_output) output = parse_length_range(spec.output_len, "--output-len").high;
  std::vector<std::string> notes;
  const int64_t room = room_of(spec, model);
  if (is_drawn && (any_input || any_output) && model.max_model_len > 0 && input + output > room) {
    if (any_input && any_output) output = std::max<int64_t>(1, room * kDefaultOutputLen / (input + output));
    else if (any_output) output = room - input;
    if (any_input) input = room - output;
    if (input < 1 || output < 1)
      fail(ErrorKind::usage,
           "{} has a context of {} tokens: expected an {} that leaves room for the {}, found {}; shorten it{}",
           model.id, model.max_model_len, any_output ? "--input-len" : "--output-len", any_output ? "answer" : "prompt",
           any_output ? spec.input_len : spec.output_len,
           spec.dataset == "multi-turn" ? ", or take fewer --turns" : "");
    notes.push_back(
        fmt::format("{} has a context of {} tokens: prompts of {} and answers of {} (--input-len, --output-len)",
                    model.id, model.max_model_len, any_input ? std::to_string(input) : spec.input_len,
                    any_output ? std::to_string(output) : spec.output_len));
  }
  if (any_input) spec.input_len = std::to_string(input);
  if (any_output) spec.output_len = std::to_string(output);
  if (any_input && spec.dataset == "shared-prefix" && spec.prefix_len == ServeLoadSpec().prefix_len &&
      spec.prefix_len >= input) {
    spec.prefix_len = std::max<int64_t>(1, input / 2);
    notes.push_back(fmt::format("prefixes of {} tokens (--prefix-len)", spec.prefix_len));
  }
  return notes;
}

}  // namespace rw
