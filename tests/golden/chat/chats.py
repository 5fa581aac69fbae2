"""Templates of our own in the manner of ten model families', and what they are rendered with (for make_chat.py)."""

USER = {"role": "user", "content": " What is 2 + 2?\n"}
ANSWER = {"role": "assistant", "content": "It is *4*, na\u00efvely \U0001f999. "}
SYSTEM = {"role": "system", "content": "Be <brief> & \"kind\"."}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place.\nNow.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Where"}, "days": {"type": "integer", "default": 1},
        "units": {"type": "string", "enum": ["C", "F"]},
        "spots": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}},
        "required": ["city"]}}}]
CALL = {"role": "assistant", "tool_calls": [{"id": "abcdef123", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "K\u00f6ln", "days": 2, "exact": True, "limit": None, "f": 0.5}}}]}
TWO_CALLS = {"role": "assistant", "content": "Both.", "tool_calls": CALL["tool_calls"] * 2}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": "{\"t\": 21.5}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look at "}, {"type": "text", "text": "this."}]}
THOUGHT = {"role": "assistant", "content": "<think>\nWell, 2 + 2.\n</think>\n\nIt is 4."}
DOCUMENTS = [{"title": "Tall penguins", "text": "Emperor penguins\ngrow tall.", "source": "zoo"},
             {"title": "Homes", "text": "They live in the cold."}]


def chat(*messages, go=False, **more):
    return {"messages": list(messages), "add_generation_prompt": go} | more


PLAIN = {
    "user": chat(USER, go=True), "turns": chat(USER, ANSWER, USER, go=True), "answered": chat(USER, ANSWER),
    "system": chat(SYSTEM, USER, go=True), "two users": chat(USER, USER, go=True),
    "starts with the assistant": chat(ANSWER, USER), "late system": chat(USER, SYSTEM, ANSWER),
    "unknown role": chat({"role": "critic", "content": "Hm."}), "empty": chat(go=True),
}
WITH_TOOLS = PLAIN | {
    "tools": chat(SYSTEM, USER, go=True, tools=TOOLS), "called": chat(USER, CALL, RESULT, go=True, tools=TOOLS),
    "no system, tools": chat(USER, go=True, tools=TOOLS),
    "two calls": chat(USER, TWO_CALLS, RESULT, RESULT, ANSWER, USER, go=True, tools=TOOLS),
}

CHATS = [
    {"name": "alternating with a folded system text", "tokens": {"bos_token": "<s>", "eos_token": "</s>"}, "inputs": PLAIN,
     "template": """{% if messages[0]['role'] == 'system' %}
{% set rest = messages[1:] %}
{% set system_text = messages[0]['content'] %}
{% else %}
{% set rest = messages %}
{% set system_text = false %}
{% endif %}
{% for m in rest %}
{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles take turns: user/assistant/user/...') }}
{% endif %}
{% if loop.index0 == 0 and system_text != false %}
{% set text = '<<S>>\\n' + system_text + '\\n<</S>>\\n\\n' + m['content'] %}
{% else %}
{% set text = m['content'] %}
{% endif %}
{% if m['role'] == 'user' %}
{{ bos_token + '[I] ' + text.strip() + ' [/I]' }}
{% elif m['role'] == 'assistant' %}
{{ ' ' + text.strip() + ' ' + eos_token }}
{% endif %}
{% endfor %}
"""},
    {"name": "headers, date and tools", "tokens": {"bos_token": "<|begin|>"},
     "inputs": WITH_TOOLS | {"date given": chat(USER, date_string="1 May 2020"), "parts": chat(PARTS),
                             "tools beside the system": chat(USER, go=True, tools=TOOLS, tools_in_user_message=False)},
     "template": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "1 Jan 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The first message may be the system's. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_text = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_text = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\\n\\n" }}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_text + "<|eot|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user = messages[0]['content'] | trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no user message to hold the tools") }}
    {%- endif %}
    {{- '<|head|>user<|/head|>\\n\\nAnswer with {"name": ..., "parameters": {...}}.\\n\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) + "\\n\\n" }}
    {%- endfor %}
    {{- first_user + "<|eot|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n' }}
        {%- if message.content is string %}
            {{- message['content'] | trim }}
        {%- else %}
            {%- for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor %}
        {%- endif %}
        {{- '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("One call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|head|>ipython<|/head|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\\n\\n' }}
{%- endif %}
"""},
    {"name": "strict turns, tools before the last user", "tokens": {"bos_token": "<s>", "eos_token": "</s>"}, "inputs": WITH_TOOLS,
     "template": """{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message, loop_messages = messages[0]["content"], messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val | tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id | length != 9 %}
                {{- raise_exception("Call IDs have 9 characters") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] in ["tool_results", "tool"] %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULTS] {"content": ' + content | string + ', "id": "' ~ message.tool_call_id ~ '"}[/RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
"""},
    {"name": "roles renamed, parts in content", "tokens": {"bos_token": "<bos>"},
     "inputs": PLAIN | {"parts": chat(SYSTEM | {"content": [{"type": "text", "text": "Sys."}]}, PARTS, go=True),
                        "strange content": chat({"role": "user", "content": 7})},
     "template": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<turn>' + role + '\\n' + (first_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model
'}}
{%- endif -%}
"""},
    {"name": "tools in tags, results grouped", "tokens": {"eos_token": "<|end|>"}, "inputs": WITH_TOOLS,
     "template": """{%- if tools %}
    {{- '<|start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nSignatures within <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n<call>\\n{\\"name\\": <name>, \\"arguments\\": <json>}\\n</call><|end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|start|>system\\n' + messages[0]['content'] + '<|end|>\\n' }}
    {%- else %}
        {{- '<|start|>system\\nYou help.<|end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|start|>' + message.role + '\\n' + message.content + '<|end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</call>' }}
        {%- endfor %}
        {{- '<|end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|start|>user' }}
        {%- endif %}
        {{- '\\n<response>\\n' }}
        {{- message.content }}
        {{- '\\n</response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\\n' }}
{%- endif %}
"""},
    {"name": "short, with jumps", "tokens": {"eos_token": "<|endoftext|>"}, "inputs": PLAIN,
     "template": """{% for message in messages %}
  {% if message['role'] not in ('system', 'user', 'assistant') %}{% continue %}{% endif %}
  {% if loop.nextitem is defined and loop.nextitem.role == message.role %}
    {% break %}
  {% endif %}
  {# what the role says #}
{{ '<|' + message['role'] + '|>' + '\\n' }}{{ message['content'] | trim }}{{ '<|end|>' + '\\n' }}
{%- else %}
no messages
{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""},
    {"name": "reasoning cut off, flags", "tokens": {"bos_token": "<B>", "eos_token": "<E>"},
     "inputs": WITH_TOOLS | {"thought": chat(SYSTEM, USER, THOUGHT, USER, go=True), "thought kept": chat(USER, THOUGHT, thinking=True)},
     "template": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}
{{ bos_token }}{{ ns.system_prompt }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<U>' + message['content']}}{%- endif %}
{%- if message['role'] == 'assistant' and message['tool_calls'] %}
{%- set ns.is_tool = false -%}
{%- for tool in message['tool_calls'] %}
{%- if not ns.is_first %}{{'<A><calls><call>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|tojson + '\\n' + '```' + '</call>'}}{%- set ns.is_first = true -%}
{%- else %}{{'\\n' + '<call>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments']|tojson(ensure_ascii=true) + '\\n```</call>'}}{%- endif %}
{%- endfor %}{{'</calls>' + eos_token}}
{%- endif %}
{%- if message['role'] == 'assistant' and message['content'] is not none and not message['tool_calls'] %}
{%- if ns.is_tool %}{{'</outputs>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}
{%- else %}
{% set content = message['content'] %}
{% if '</think>' in content and not thinking %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}
{% elif '</think>' in content %}{% set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{{ '[' ~ thought ~ ']' }}{% endif %}
{{'<A>' + content + eos_token}}
{%- endif %}
{%- endif %}
{%- if message['role'] == 'tool' %}
{%- set ns.is_tool = true -%}
{%- if ns.is_output_first %}{{'<outputs><output>' + message['content'] + '</output>'}}{%- set ns.is_output_first = false %}
{%- else %}{{'\\n<output>' + message['content'] + '</output>'}}{%- endif %}
{%- endif %}
{%- endfor -%}
{% if ns.is_tool %}{{'</outputs>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<A>'}}{% endif %}"""},
    {"name": "documents and types by macros", "tokens": {"bos_token": "<BOS>"},
     "inputs": WITH_TOOLS | {"documents": chat(SYSTEM, USER, go=True, documents=DOCUMENTS),
                             "documents, fast": chat(USER, documents=DOCUMENTS, citation_mode="fast")},
     "template": """{%- macro type_text(spec, level=0) -%}
  {%- if spec.type == 'array' -%}list[{{ type_text(spec['items'], level + 1) }}]
  {%- elif spec.enum is defined -%}{{ spec.enum | map('tojson') | join(' | ') }}
  {%- elif spec.type in ['integer', 'number'] -%}{{ {'integer': 'int', 'number': 'float'}[spec.type] }}
  {%- else -%}{{ spec.type | default('any', true) }}
  {%- endif -%}
{%- endmacro -%}
{%- macro signature(tool) %}
def {{ tool.name }}({% for name, spec in tool.parameters.properties | dictsort %}{{ name }}: {{ type_text(spec) }}
{%- if name not in tool.parameters.required %} = {{ spec.default | default('None') }}{% endif %}{{ ', ' if not loop.last }}{% endfor %}):
    # {{ tool.description | indent(4) }}
{% endmacro -%}
{%- macro turn(role) -%}<|turn|>{{ role | upper }}|{{ caller() | trim }}<|/turn|>{%- endmacro -%}
{{ bos_token }}
{%- if messages and messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}{% endif %}
{%- call turn('system') %}
{{ system | d('## Task\\nHelp.') }}
{% if tools %}## Tools
{% for tool in tools | map(attribute='function') %}{{ signature(tool) }}{% endfor %}
{% endif %}
{% endcall %}
{%- for message in messages %}
{%- call turn(message.role) %}{% filter replace('\\n\\n', '\\n') %}{{ message.content or message.tool_calls | tojson(indent=2) }}{% endfilter %}{% endcall %}
{%- endfor %}
{%- if documents %}
{%- call turn('system') %}
<results>
{% for doc in documents %}
Document: {{ loop.index0 }}
{% for key, value in doc.items() %}
{{ key }}: {{ value }}
{% endfor %}
{% if not loop.last %}

{% endif %}
{% endfor %}
</results>
{%- endcall %}
{%- set mode = citation_mode | default('accurate') %}
{%- set note %}Cite {{ 'all' if mode == 'accurate' else 'few' }} of {{ documents | length }}: {{ documents | map(attribute='title') | join('; ') }}.{% endset %}
{{- note }}
{%- endif %}
{%- if add_generation_prompt %}<|turn|>CHATBOT|{% endif %}
"""},
    {"name": "plain, marked for training", "tokens": {"bos_token": "", "eos_token": "</s>"}, "inputs": PLAIN,
     "template": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n' }}{% generation %}{% set eos_token = eos_token + '!' %}{{ message['content']  + eos_token }}{% endgeneration %}
{{ eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""},
    {"name": "sections by condition", "tokens": {"bos_token": "<b>", "eos_token": "<e>"},
     "inputs": WITH_TOOLS | {"documents": chat(USER, go=True, documents=DOCUMENTS), "thinking": chat(USER, go=True, thinking=True),
                             "controls": chat(USER, controls={"length": "short", "originality": "abstractive"})},
     "template": """{%- set system_message = 'Knowledge ends April 2024. Today is ' + strftime_now('%B %d, %Y') + '.' -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set system_message = messages[0].content -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- if tools and documents %}{% set system_message = system_message + ' Tools and documents.' %}
    {%- elif tools %}{% set system_message = system_message + ' Tools.' %}
    {%- elif documents %}{% set system_message = system_message + ' Documents.' %}
    {%- elif thinking %}{% set system_message = system_message ~ ' Think.' %}{%- endif %}
    {%- if controls is mapping %}
        {%- set ns = namespace(text='') -%}
        {%- for key, value in controls.items() | sort(reverse=true) %}{% set ns.text = ns.text ~ (', ' if not loop.first else '') ~ key | capitalize ~ '=' ~ value %}{% endfor %}
        {%- set system_message = system_message + ' {' + ns.text + '}' %}
    {%- endif %}
    {%- set loop_messages = messages -%}
{%- endif -%}
{{ '<r>system</r>' + system_message + eos_token + '\\n' }}
{%- if tools -%}{{ '<r>tools</r>' + tools | tojson(indent=4) + eos_token + '\\n' }}{%- endif -%}
{%- if documents -%}
    {{ '<r>documents</r>' }}
    {%- for document in documents -%}
        {{ 'Document ' + loop.index | string + '\\n' }}{{ document.text }}{{ '\\n\\n' if not loop.last }}
    {%- endfor -%}
    {{ eos_token + '\\n' }}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if message.role == 'tool' and loop.previtem is defined and loop.previtem.role == 'tool' %}{{ '+' }}{% endif %}
    {{- '<r>' + message['role'] + '</r>' + (message['content'] if message['content'] else '<|tool_call|>' + message['tool_calls'] | map(attribute='function') | list | tojson) + eos_token + '\\n' -}}
    {%- if loop.last and add_generation_prompt -%}
        {{ '<r>assistant</r>' }}
    {%- endif -%}
{%- endfor -%}"""},
]
