"""Small models for the tests of dserve: trained for a second, exported, and given special tokens and a chat template
as published models have them."""

import json
import os
import subprocess

from serve_lib import BIN, SOURCE

WORDS = "zero one two three four five six seven eight nine".split()
CHAT_TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
                 "{% if add_generation_prompt %}<|assistant|>{% endif %}")
EMOJI = "🦙"


def run(*command, cwd):
    done = subprocess.run([str(c) for c in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=240,
                          text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def number_lines(n):
    for i in range(n):
        yield " ".join(WORDS[int(d)] for d in str(i)) + f" is {i}.\n"


def train(folder, name, text, tokenizer, steps=60, base="tiny-llama", context=8192):
    """folder/name: a Hugging Face directory of a model of that text."""
    with open(os.path.join(folder, name + ".txt"), "w", encoding="utf-8") as f:
        f.write(text)
    with open(os.path.join(SOURCE, "configs", "models", base + ".json"), encoding="utf-8") as f:
        config = json.load(f)
    config["max_position_embeddings"] = context
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    run(f"{BIN}/dtrain", "prepare", "--input", name + ".txt", *tokenizer, "--output", name + ".h5", cwd=folder)
    run(f"{BIN}/dtrain", "--model", name + ".json", "--data", name + ".h5", "--seq-len", 64, "--micro-batch", 4,
        "--steps", steps, "--lr", "3e-3", "--warmup-steps", 5, "--threads", 1, "--out", name + "-run", cwd=folder)
    run(f"{BIN}/dckpt", "convert", name + "-run", "-o", name, cwd=folder)
    return os.path.join(folder, name)


def edit(path, change):
    with open(path, encoding="utf-8") as f:
        value = json.load(f)
    change(value)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def add_specials(model):
    """<s> before every text, </s> as its end, role markers, and a chat template that writes all of them itself."""
    names = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
    ids = {}

    def tokenizer(t):
        first = 1 + max([*t["model"]["vocab"].values(), *(a["id"] for a in t["added_tokens"])])
        for i, name in enumerate(names):
            ids[name] = first + i
            t["added_tokens"].append({"id": first + i, "content": name, "single_word": False, "lstrip": False,
                                      "rstrip": False, "normalized": False, "special": True})
        t["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [ids["<s>"]], "tokens": ["<s>"]}}}

    edit(os.path.join(model, "tokenizer.json"), tokenizer)
    edit(os.path.join(model, "config.json"), lambda c: c.update(bos_token_id=ids["<s>"], eos_token_id=ids["</s>"]))
    edit(os.path.join(model, "generation_config.json"),
         lambda c: c.update(bos_token_id=ids["<s>"], eos_token_id=ids["</s>"]))
    edit(os.path.join(model, "tokenizer_config.json"),
         lambda c: c.update(bos_token="<s>", eos_token="</s>", chat_template=CHAT_TEMPLATE))
    return ids


def words_model(folder, **options):
    """Counts in words; a learned tokenizer of 400 tokens, without specials."""
    return train(folder, "words", "".join(number_lines(2000)), ["--train-bpe", 400], **options)


def chat_model(folder, **options):
    """The same with special tokens and a chat template; and the ids of these."""
    model = words_model(folder, **options)
    return model, add_specials(model)


def byte_model(folder):
    """A token a byte, trained on characters of one to four bytes."""
    text = f"你好 {EMOJI}é ABCDEFGHIJ {EMOJI}{EMOJI} ñandú 你们.\n" * 400
    return train(folder, "bytes", text, ["--tokenizer", "bytes"], steps=120)
