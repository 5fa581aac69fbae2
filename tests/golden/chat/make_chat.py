#!/usr/bin/env python3
"""Makes cases.json: templates of our own that use what published chat templates use, and random snippets, as Python's
jinja2 renders them with the settings that Hugging Face's transformers gives it.

Needs jinja2 3.1.6. Run from anywhere; writes beside itself. `make_chat.py SEED COUNT FILE` writes that many snippets of
another seed to FILE, for longer comparisons.
"""
import datetime
import json
import pathlib
import re
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from chats import CHATS
from fixed import FIXED
from snippets import VARIABLES, Snippets

NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)
# What prints as the name of a Python object, or is a number that only Python holds.
UNPRINTABLE = re.compile(r" at 0x|Markup|object|<function|<class|&lt;generator|\d{19}|Macro|LoopContext|<jinja2")


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("write"), [], [], body).set_lineno(line)

    def write(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        if any(name.startswith("_") for name in dict(*args[1:], **kwargs)):
            raise jinja2.exceptions.SecurityError("underscore")
        jinja2.utils.Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name, value):
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)
        super().__setitem__(name, value)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=NOW.strftime, namespace=Namespace)
    return env


def render(env, template, variables):
    """The text, or None and the message where there is an error."""
    try:
        return env.from_string(template).render(**variables), ""
    except Exception as e:  # whatever a template can provoke
        raised = type(e) is jinja2.exceptions.TemplateError
        return None, str(e) if raised else ""


def random_snippets(env, seed, count):
    source = Snippets(seed)
    cases, seen, n_errors = [], set(), 0
    while len(cases) < count:
        template = "{{ " + source.any(3) + " }}" if len(cases) % 2 == 0 else source.body(2)
        text, _ = render(env, template, VARIABLES)
        if template in seen or len(template) > 400 or (text is not None and (len(text) > 500 or UNPRINTABLE.search(text))):
            continue
        if text is None and n_errors > len(cases) / 5:
            continue
        seen.add(template)
        n_errors += text is None
        cases.append([template, text])
    return cases


def main():
    env = environment()
    if len(sys.argv) == 4:
        cases = random_snippets(env, int(sys.argv[1]), int(sys.argv[2]))
        pathlib.Path(sys.argv[3]).write_text(json.dumps({"variables": VARIABLES, "snippets": cases, "chats": []}))
        return
    chats = []
    for chat in CHATS:
        for name, variables in chat["inputs"].items():
            text, message = render(env, chat["template"], chat["tokens"] | {"tools": None, "documents": None} | variables)
            result = {"text": text} if text is not None else {"error": message}
            chats.append({"name": f"{chat['name']}: {name}", "template": chat["name"], "variables": variables} | result)
    out = {
        "jinja2": jinja2.__version__, "variables": VARIABLES,
        "templates": {c["name"]: {"template": c["template"], "tokens": c["tokens"]} for c in CHATS},
        "chats": chats,
        "snippets": [[t, render(env, t, VARIABLES)[0]] for t in FIXED] + random_snippets(env, 1, 700),
    }
    lines = json.dumps(out, ensure_ascii=False, indent=0, separators=(",", ":")).replace("\n]", "]").replace("[\n", "[")
    pathlib.Path(__file__).with_name("cases.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
