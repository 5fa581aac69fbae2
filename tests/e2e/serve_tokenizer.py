"""10,000 random texts through /tokenize and Hugging Face's tokenizers: the same ids, and back to the same text. Run by
serve_tokenizer_test.sh in an environment that has them."""

import os
import random

from tokenizers import Tokenizer

from serve_lib import Server, checks, main, scratch_folder
from serve_models import chat_model

PIECES = ["one", " two", "Three", " 4", "56789", "\n", "\r\n", "  ", "\t", "'s", "don't", "naïve", "Ünïcödé", "你好", "日本語", "한국어",
          "🦙", "👩‍👩‍👧‍👦", "🇩🇪", "e\u0301", "\u200d", "\u00a0", "\u3000", "\ufeff", "مرحبا", "שלום", "हिन्दी", "<s>", "</s>",
          "<|user|>", "<|us", "</", "...", "!?", "=>", "0x1F", "http://a.b/c?d=e", "\u0000", "\u007f", "ǅ", "ﬁ", "½", "²", "𝒳", "\U0001f9d1\u200d\U0001f680"]


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 12)):
        if rng.random() < 0.7:
            parts.append(rng.choice(PIECES))
        else:  # any assigned plane, no surrogates
            parts.append("".join(chr(c) for c in (rng.choice((rng.randint(1, 0x2FF), rng.randint(0x300, 0xD7FF))) for _ in range(3))))
    return "".join(parts)


def same_ids():
    rng = random.Random(3)
    texts = [random_text(rng) for _ in range(10000)]
    bad = []
    for text in texts:
        expected = reference.encode(text).ids
        found = server.post("/tokenize", {"prompt": text}).json()["tokens"]
        # A text that begins with the beginning of text is not given another one; the reference doubles it.
        if expected[:2] == [bos, bos] and found[:1] == [bos]:
            expected = expected[1:]
        if found != expected:
            bad.append((text, found, expected))
    checks.equal("10,000 random texts: the same ids", bad[:3], [])
    back = [(t, server.post("/detokenize", {"tokens": reference.encode(t, add_special_tokens=False).ids}).json()["prompt"])
            for t in texts[:500]]
    checks.equal("and back", [x for x in back if x[0] != x[1]][:3], [])


with scratch_folder() as folder:
    model, specials = chat_model(folder)
    bos = specials["<s>"]
    reference = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    with Server(model, "--threads", 1) as server:
        main(same_ids)
