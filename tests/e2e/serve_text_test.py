#!/usr/bin/env -S python3 -B
"""From ids to text: no broken characters, no leaked stop strings, true counts, one beginning of text."""

import json

from serve_http import text_of
from serve_lib import Server, checks, main, scratch_folder
from serve_models import EMOJI, byte_model, chat_model

equal, ok, holds = checks.equal, checks.ok, checks.holds


def whole_characters():
    """A token is a byte: every character of more than one comes in pieces."""
    long = letters.completion("ABC", max_tokens=200)["choices"][0]["text"]
    ok("the model writes characters of 2, 3 and 4 bytes", all(x in long for x in ("é", "你", EMOJI)), long)
    data = ("ABC" + long).encode()
    for n in range(1, 60):
        body = {"prompt": "ABC", "max_tokens": n, "logprobs": 0, "return_token_ids": True}
        whole = letters.completion(**body)
        text = text_of(whole["choices"][0])
        g = letters.gather("/v1/completions", body)  # decodes each event as strict UTF-8
        expected = data[3:3 + n].decode("utf-8", "replace")
        # Where a character is cut by max_tokens, what is there of it is shown as one replacement.
        fine = text == g.texts[0] == expected and g.ids[0] == whole["choices"][0]["token_ids"] == list(data[3:3 + n])
        if not fine or n in (1, 59):
            ok(f"max_tokens {n}: stream = whole = the bytes' characters", fine, (text, g.texts[0], expected))
        partly = [text_of(c) for e in g.events[:-1] for c in e.get("choices", [])]
        if any("\ufffd" in t for t in partly):
            ok(f"max_tokens {n}: nothing is replaced before the end", False, partly)
    reply = letters.chat("ABC", max_tokens=40, logprobs=True, top_logprobs=2)["choices"][0]
    content = reply["logprobs"]["content"]
    equal("logprobs.bytes are exact", b"".join(bytes(x["bytes"]) for x in content).decode("utf-8", "replace"),
          text_of(reply))


def broken_characters():
    """Bytes that make no character, forced by a bias."""
    for name, byte in (("a lead byte without an end", 0xF0), ("a continuation without a lead", 0xA6), ("never valid", 0xFF)):
        body = {"prompt": "ABC", "max_tokens": 7, "logit_bias": {str(byte): 100}, "ignore_eos": True}
        whole = letters.completion(**body)
        g = letters.gather("/v1/completions", body)
        equal(f"{name}: replaced", (text_of(whole["choices"][0]), g.texts[0]),
              (bytes([byte] * 7).decode("utf-8", "replace"),) * 2)
    for seed in range(20):
        body = {"prompt": "ABC", "max_tokens": 60, "temperature": 2, "seed": seed, "ignore_eos": True, "return_token_ids": True}
        g = letters.gather("/v1/completions", body)
        if g.texts[0] != bytes(i for i in g.ids[0] if i < 256).decode("utf-8", "replace"):
            ok(f"random bytes, seed {seed}", False, (g.texts[0], g.ids[0]))
    ok("random bytes: replaced as Python replaces them", True)


def stops():
    base = letters.completion("ABC", max_tokens=60)["choices"][0]["text"]
    ok("the text begins as trained", base.startswith("DEFGHIJ "), base)
    cases = [  # name, stop, text that remains, stop_reason
        ("over several tokens", ["FGHIJ"], "DE", "FGHIJ"), ("the first token", ["D"], "", "D"),
        ("of several the one that ends first", ["HIJ ", "GH"], "DEF", "GH"), ("one within another", ["EFG", "F"], "DE", "F"),
        ("overlapping: EFGX never comes", ["EFGX", "GHI"], "DEF", "GHI"), ("a multi-byte one", [EMOJI], "DEFGHIJ ", EMOJI),
        ("a plain string", "GH", "DEF", "GH"), ("part of it at the very end", ["IJ X"], None, None)]
    for name, stop, text, reason in cases:
        body = {"prompt": "ABC", "max_tokens": 60, "stop": stop}
        choice = letters.completion(**body)["choices"][0]
        g = letters.gather("/v1/completions", body)
        expected = (base if text is None else text, "length" if text is None else "stop", reason)
        equal(f"stop {name}", (choice["text"], choice["finish_reason"], choice["stop_reason"]), expected)
        equal("and streamed", (g.texts[0], g.finish[0], g.stop_reason[0]), expected)
    # What cannot begin the stop string is shown at once.
    stop = "FGHIJ"
    g = letters.gather("/v1/completions", {"prompt": "ABC", "max_tokens": 30, "stop": [stop + "never"], "return_token_ids": True})
    shown, fed, behind = 0, 0, 0
    for event in g.events:
        for c in event.get("choices", []):
            fed += len(c["token_ids"])
            shown += len(text_of(c).encode())
            behind = max(behind, fed - shown)
    ok("held back is less than the stop string", behind <= len(stop + "never") - 1 + 3, behind)
    choice = letters.completion("ABC", max_tokens=60, stop=["FG"], include_stop_str_in_output=True)["choices"][0]
    equal("the stop string can be asked for", choice["text"], "DEFG")
    choice = letters.completion("ABC", max_tokens=60, stop_token_ids=[ord("G")])["choices"][0]
    ok("a stop token ends it, and is named", choice["finish_reason"] == "stop" and choice["stop_reason"] == ord("G") and
       choice["text"].rstrip("G") == "DEF", choice)
    choice = letters.completion("ABC", max_tokens=5, stop=["zzz"])["choices"][0]
    equal("max_tokens ends it before", (choice["text"], choice["finish_reason"]), ("DEFGH", "length"))
    choice = letters.completion("ABC", max_tokens=60, stop=["D", "H"], min_tokens=3)["choices"][0]
    ok("min_tokens counts tokens", choice["finish_reason"] in ("stop", "length"), choice)


def ends():
    end = str(specials["</s>"])
    reply = words.completion("one", max_tokens=9, logit_bias={end: 100})
    choice = reply["choices"][0]
    equal("the end of a text stops it, shows nothing, counts one",
          (choice["text"], choice["finish_reason"], choice["stop_reason"], reply["usage"]["completion_tokens"]),
          ("", "stop", None, 1))
    reply = words.completion("one", max_tokens=5, logit_bias={end: 100}, ignore_eos=True, return_token_ids=True)
    equal("ignore_eos goes on", (reply["choices"][0]["token_ids"], reply["choices"][0]["finish_reason"]),
          ([specials["</s>"]] * 5, "length"))
    reply = words.completion("one", max_tokens=9, logit_bias={end: 100}, min_tokens=4, return_token_ids=True)
    ids = reply["choices"][0]["token_ids"]
    ok("min_tokens: no end before", len(ids) == 5 and ids[-1] == specials["</s>"] and specials["</s>"] not in ids[:-1], ids)
    reply = words.completion("one", max_tokens=3, logit_bias={end: 100}, ignore_eos=True, skip_special_tokens=False)
    equal("specials are shown when asked for", reply["choices"][0]["text"], "</s></s></s>")


def usage():
    for path, prompt in (("/v1/completions", {"prompt": "one two three"}),
                         ("/v1/chat/completions", {"messages": [{"role": "user", "content": "one two three"}]})):
        n_prompt = words.post("/tokenize", prompt).json()["count"]
        for name, fields in (("n = 3", {"n": 3, "temperature": 1, "seed": 5}), ("stop", {"stop": [" "]}),
                             ("end of text", {"logit_bias": {str(specials["</s>"]): 100}}), ("plain", {}),
                             *((("echo", {"echo": True}),) if "prompt" in prompt else ())):
            body = {"temperature": 0, "max_tokens": 12, "return_token_ids": True, **prompt, **fields}
            reply = words.post(path, body).json()
            own = sum(len(c["token_ids"]) for c in reply["choices"])
            g = words.gather(path, {**body, "stream_options": {"include_usage": True}})
            counts = [(u["prompt_tokens"], u["completion_tokens"], u["total_tokens"]) for u in (reply["usage"], g.usage)]
            equal(f"{path} {name}: counted = streamed = own count", counts, [(n_prompt, own, n_prompt + own)] * 2)
            equal("and the ids", sum(map(len, g.ids.values())), own)
    long = "one two three four five six seven eight nine " * 20
    first = words.completion(long, max_tokens=1)["usage"]
    again = words.completion(long, max_tokens=1)["usage"]
    ok("cached tokens are told, and part of the prompt's",
       0 < again["prompt_tokens_details"]["cached_tokens"] < again["prompt_tokens"] == first["prompt_tokens"], (first, again))


def beginnings():
    bos = specials["<s>"]

    def tokens(**body):
        return words.post("/tokenize", body).json()["tokens"]

    equal("a text gets one beginning", tokens(prompt="one").count(bos), 1)
    equal("one that has it gets no second", tokens(prompt="<s>one").count(bos), 1)
    equal("none when not wanted", tokens(prompt="one", add_special_tokens=False).count(bos), 0)
    messages = [{"role": "system", "content": "two"}, {"role": "user", "content": "one"}]
    chat = tokens(messages=messages)
    equal("a chat whose template writes it has one", (chat.count(bos), chat[0]), (1, bos))
    rendered = words.post("/apply-template", {"messages": messages}).json()["prompt"]
    equal("the template's text", rendered, "<s><|system|>two</s><|user|>one</s><|assistant|>")
    equal("rendered, then tokenized", tokens(prompt=rendered), chat)
    equal("and as a prompt", words.completion(rendered, max_tokens=1)["usage"]["prompt_tokens"], len(chat))
    equal("and as a chat", words.chat(messages, max_tokens=1)["usage"]["prompt_tokens"], len(chat))
    text = words.post("/apply-template", {"messages": [*messages, {"role": "assistant", "content": "three"}],
                                          "continue_final_message": True}).json()["prompt"]
    ok("continue_final_message ends in the message", text.endswith("<|assistant|>three"), text)
    ids = tokens(prompt="one</s>two")
    ok("special tokens in a text are found", specials["</s>"] in ids, ids)
    back = json.loads(words.post("/detokenize", {"tokens": ids}).body)["prompt"]
    equal("and written back", back, "<s>one</s>two")


with scratch_folder() as folder:
    model, specials = chat_model(folder)
    with Server(byte_model(folder), "--threads", 1, "--chat-template", "chatml") as letters, \
            Server(model, "--threads", 1) as words:
        main(whole_characters, broken_characters, stops, ends, usage, beginnings)
