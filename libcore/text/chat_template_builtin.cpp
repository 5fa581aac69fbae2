#include "libcore/text/chat_template_builtin.h"

#include <string_view>

namespace rw {
namespace {

constexpr std::string_view kChatml = R"jinja(
{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})jinja";

constexpr std::string_view kLlama3 = R"jinja(
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ message.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})jinja";

// Formats without a system role put its text before the first user's; both roles must take turns.
constexpr std::string_view kTurns = R"jinja(
{%- if messages and messages[0].role == 'system' %}
{%- set system = messages[0].content | trim %}
{%- set turns = messages[1:] %}
{%- else %}
{%- set system = '' %}
{%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
{%- if message.role not in ['user', 'assistant'] or (message.role == 'user') != (loop.index0 is even) %}
{{- raise_exception('after an optional system message the roles must alternate: user, assistant, user, ...') }}
{%- endif %}
{%- endfor %})jinja";

constexpr std::string_view kLlama2 = R"jinja(
{%- for message in turns %}
{%- set content = message.content | trim %}
{%- if message.role == 'assistant' %}
{{- ' ' ~ content ~ ' ' ~ eos_token }}
{%- else %}
{%- if loop.first and system %}
{%- set content = '<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' ~ content %}
{%- endif %}
{{- bos_token ~ '[INST] ' ~ content ~ ' [/INST]' }}
{%- endif %}
{%- endfor %})jinja";

constexpr std::string_view kMistral = R"jinja(
{{- bos_token }}
{%- for message in turns %}
{%- if message.role == 'assistant' %}
{{- ' ' ~ message.content | trim ~ eos_token }}
{%- else %}
{{- '[INST] ' ~ (system ~ '\n\n' if loop.first and system) ~ message.content ~ ' [/INST]' }}
{%- endif %}
{%- endfor %})jinja";

constexpr std::string_view kGemma = R"jinja(
{{- bos_token }}
{%- for message in turns %}
{{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\n' }}
{{- (system ~ '\n\n' if loop.first and system) ~ message.content | trim ~ '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\n' }}
{%- endif %})jinja";

}  // namespace

std::vector<BuiltinChatTemplate> builtin_chat_templates() {
  const auto in_turns = [](std::string_view source) { return std::string(kTurns) + std::string(source); };
  return {{"chatml", std::string(kChatml)},
          {"gemma", in_turns(kGemma)},
          {"llama2", in_turns(kLlama2)},
          {"llama3", std::string(kLlama3)},
          {"mistral", in_turns(kMistral)}};
}

}  // namespace rw
