#!/usr/bin/env python3
"""Makes the tokenizers and golden ids of tests/text with the Hugging Face `tokenizers` package.

    python3 make_text_goldens.py            (needs: tokenizers 0.23, Debian's bible-kjv for the training text)

Three tokenizers are trained, built as GPT-2's, Llama 3's and Qwen2's are, only small. Each encodes 1,750 strings of many
scripts and shapes (add_special_tokens=False). variants.jsonl holds options that these three do not use. trained.json is what the
Hugging Face trainer learns from the strings of gpt2.jsonl. Everything is a function of the seeds below.
"""
import json
import os
import random
import subprocess
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")

WORDS = """the of and to in that he shall unto for his a lord they be is him not them with it all thou thy was god which my
me said but ye their have will thee from as are when this out were upon by you up there hath then people came had house into on
her come one we children day land so men against can't won't I'M You'll they'd WE'VE she's IT'S Jerusalem straße naïve café
Ελλάδα Москва Київ ירושלים القدس مرحبا नमस्ते हिन्दी ไทย ภาษา 東京 北京 你好世界 日本語 한국어 안녕하세요 ქართული Հայերեն አማርኛ
ελληνικά İstanbul ǅ ﬁne Ⅷ ½ x² H₂O 𝔘𝔫𝔦 𝒳 𐍈 𞤀𞤣 ꙮ ʻokina e\u0301 a\u0308o n\u0303 \u1112\u1161\u11ab ﷺ ſ K Å""".split()
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵🇰🇷", "❤️", "1️⃣", "🧑🏿‍🚀", "☃", "🫠", "🫱🏻‍🫲🏿", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "\u200d", "\ufe0f", "🏽"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", " \n", "\n ", " \t ", "\u00a0", "\u3000", "\u2028", "\u2009", "\u200b",
          "\u180e", "\x0b", "\x0c", "\x85", "\ufeff", " " * 17, "\n" * 9, "\t" * 5, " \r\n  \n"]
CODE = ["int main(void) {\n\treturn 0;\n}\n", "for (size_t i = 0; i < n; ++i) y[i] += a*x[i];", "def f(x):\n    return x**2 + 1\n", "#include <cstdint>",
        "x=0x7fFF; y=1e-5f;", "// TODO: n'est pas", "if(a&&b||!c){}", "std::vector<std::pair<int,char>> v;", "SELECT * FROM t WHERE id='42';",
        "<div class=\"a\">&nbsp;</div>", "\\frac{1}{2}\\sqrt{x}", "{\"key\": [1, 2.5, null]}", "a->b.c::d", "    if x:\n        pass\n\n\n    else:\n",
        "https://example.org/a?b=c&d=%20e#f", "user@example.com", "$PATH:/usr/bin", "--flag=value", "0b1010_1111", "3.14159265358979"]
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "''", "```", "—", "“", "”", "’s", "‘", "…", "«", "¿", "、", "。", "！", "٪", "₹", "±"]
CONTRACTIONS = [q + c for q in ("'", "’") for c in "s t re ve m ll d S T RE Ve M LL D lL x ſ".split()]


def assigned(lo, hi):
    return [chr(c) for c in range(lo, hi) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


BMP, ASTRAL = assigned(0xA0, 0x10000), assigned(0x10000, 0x1FBF0)  # Python 3.11's tables are Unicode 14, as PCRE2's here
MARKS = [c for c in BMP if unicodedata.category(c) in ("Mn", "Mc")]
DIGITS = [c for c in BMP if unicodedata.category(c)[0] == "N"]


def piece(r, specials):
    k = r.randrange(100)
    if k < 34:
        w = r.choice(WORDS)
        return r.choice([w, w, w.upper(), w.capitalize(), " " + w, " " + w])
    if k < 46:
        return r.choice(SPACES)
    if k < 54:
        return str(r.randrange(10 ** r.randrange(1, 9)))
    if k < 62:
        return r.choice(PUNCT)
    if k < 67:
        return r.choice(CONTRACTIONS)
    if k < 73:
        return r.choice(EMOJI)
    if k < 77:
        return r.choice(CODE)
    if k < 84:
        return "".join(r.choice(BMP) for _ in range(r.randrange(1, 5)))
    if k < 87:
        return "".join(r.choice(ASTRAL) for _ in range(r.randrange(1, 4)))
    if k < 90:
        return r.choice("aeiouAEnsc") + "".join(r.choice(MARKS) for _ in range(r.randrange(1, 4)))
    if k < 92:
        return r.choice(DIGITS)
    if k < 97:
        return r.choice(specials)
    return chr(r.randrange(128))


def strings(seed, n, specials):
    r = random.Random(seed)
    out = ["", " ", "a", "\0", "<", "<|", "<|endoftext|", "it's IT'S we'Ll", "  leading", "trailing  ", "a\r\nb\r\n", "1234567890", "\U0010ffff",
           "\ue000", "ab" * 150, "é" * 100, " " * 300, "\n" * 150 + "x"] + CODE + EMOJI + SPACES + specials
    while len(out) < n:
        out.append("".join(piece(r, specials) for _ in range(r.randrange(1, 9 if r.random() < 0.95 else 30))))
    return out[:n]


def training_text():
    bible = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True).stdout.decode().splitlines()
    made = ["".join(piece(random.Random(i), ["x"]) for _ in range(8)) for i in range(3000)]
    return bible[::4] + CODE * 40 + [" ".join(WORDS)] * 60 + ["".join(EMOJI)] * 20 + made


def train(split, normalizer, n_tokens, ignore_merges):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    t.pre_tokenizer = byte_level if split is None else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), byte_level])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=n_tokens, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    t.train_from_iterator(training_text(), trainer)
    return t


def gpt2():
    t = train(None, None, 1000, False)
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=True, special=True)])
    return t


def llama3():
    t = train(LLAMA3, None, 1400, True)
    # Tokens that no merge makes, as a tiktoken vocabulary holds: with ignore_merges a word equal to one is that token.
    model = json.loads(t.to_str())
    for word in ("Ġrighteousness", "Jerusalem", "æĹ¥æľ¬èªŀ", "return", "ĠĠĠĠĠĠĠ"):
        model["model"]["vocab"].setdefault(word, len(model["model"]["vocab"]))
    t = Tokenizer.from_str(json.dumps(model))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(59)]
    t.add_special_tokens([AddedToken(n, special=True) for n in names])
    bos = ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            processors.TemplateProcessing(single=f"{bos[0]} $A", pair=f"{bos[0]} $A {bos[0]} $B", special_tokens=[bos])])
    return t


def qwen2():
    t = train(QWEN2, normalizers.NFC(), 1200, False)
    t.add_special_tokens([AddedToken(n, special=True) for n in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    t.add_tokens([AddedToken(n, normalized=False) for n in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    return t


SPECIALS = {
    "gpt2": ["<|endoftext|>"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>", "<|reserved_special_token_5|>",
               "<|reserved_special_token_58|>", "<|reserved_special_token_", " righteousness", "Jerusalem", "日本語"],
    "qwen2": ["<|endoftext|>", "<|im_start|>user\n", "<|im_end|>\n", "<tool_call>", "</think>", "<think", "e\u0301", "\u212b", "가\u11a8", "q\u0323\u0307"],
}


def added(content, **flags):
    return {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


def variants():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    gpt2_level = dict(byte_level, use_regex=True)

    def sequence(*steps):
        return {"type": "Sequence", "pretokenizers": list(steps)}

    def split(pattern, behavior, invert=False, kind="Regex"):
        return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}

    out = [{"pre_tokenizer": dict(byte_level, add_prefix_space=True)}, {"pre_tokenizer": dict(gpt2_level, add_prefix_space=True)},
           {"pre_tokenizer": byte_level}, {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}}]
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            out.append({"pre_tokenizer": sequence(split(r"\s|[aeiou]", behavior, invert), byte_level)})
        out.append({"pre_tokenizer": sequence(split(" ", behavior, False, "String"), dict(byte_level, add_prefix_space=True))})
    out.append({"pre_tokenizer": sequence(split("a.b*", "Isolated", False, "String"), byte_level)})
    for pattern in (r"\w+|[^\w\s]", r"\b", r"x*", r"(?i)the|\h{2}", r"\p{Letter}+|\p{^L}", r"[[:alpha:]]{2}", r"\p{N}{,2}", r"(?:\p{N}{1,3}){2}?",
                    r"\p{N}{1,3}+", r"^.|.$", r"(?m:a.)|\S", r"\u0061|\x62|\x{63}", r"[^\S\n]+", r"\p{Lu}?\p{Ll}++|(?>\s+)", r"(?<=\s)\S", r"[\p{L}\p{M}]+|\p{Han}",
                    r"\d+(?=\d{3}\b)|[\d_-]", r"\W+", r"(\S)\1", r"a{2}b|{|}|\{x"):
        out.append({"pre_tokenizer": sequence(split(pattern, "Isolated"), byte_level)})
    for digits in (False, True):
        out.append({"pre_tokenizer": sequence({"type": "Digits", "individual_digits": digits}, gpt2_level)})
    for name in ("Whitespace", "WhitespaceSplit"):
        out.append({"pre_tokenizer": sequence({"type": name}, byte_level)})
    out.append({"pre_tokenizer": sequence(sequence(split(r"\p{N}{3}", "Isolated")), sequence(split(r"\n", "MergedWithPrevious"), gpt2_level))})
    for normalizer in [{"type": n} for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")] + [
            {"type": "Replace", "pattern": {"String": "."}, "content": "[dot]"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Prepend", "prepend": "_"},
            {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": " "}]}]:
        out.append({"normalizer": normalizer})
    tokens = [added("<s>", special=True, lstrip=True), added("</s>", special=True, rstrip=True), added("[M]", special=True, lstrip=True, rstrip=True),
              added("the", single_word=True), added("lord", normalized=True), added("  "), added("\n\n", normalized=True), added("<s><s>", special=True),
              added("É", normalized=True), added("Ⅷ", normalized=True, lstrip=True, rstrip=True)]
    out.append({"added_tokens": tokens})
    out.append({"added_tokens": tokens, "normalizer": {"type": "Lowercase"}})
    out.append({"added_tokens": tokens, "normalizer": {"type": "NFKD"}, "pre_tokenizer": dict(gpt2_level, add_prefix_space=True)})
    out.append({"added_tokens": tokens, "skips_specials": True})
    return out


VARIANT_SPECIALS = ["<s>", " <s> ", "</s> ", "  [M]\n", "the", "_the_", "the\u200d", "lord", "LORD", "É", "é", "E\u0301", "<s><s>", " Ⅷ ", "a.b*", "aa", "{", "xx", "Ⓐthe"]


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode_or_none(t, s):
    try:
        return t.encode(s, add_special_tokens=False).ids
    except BaseException as e:  # the package panics on some prefixed pieces; such a string is no reference
        if type(e).__name__ != "PanicException":
            raise
        return None


def write(name, text):
    with open(os.path.join(HERE, name), "w", encoding="utf-8", newline="\n") as f:
        f.write(text)


def main():
    for i, (kind, make) in enumerate({"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2}.items()):
        t = make()
        write(f"{kind}.tokenizer.json", compact(json.loads(t.to_str())) + "\n")
        lines = strings(1000 + i, 1750, SPECIALS[kind])
        write(f"{kind}.jsonl", "".join(compact([s, t.encode(s, add_special_tokens=False).ids]) + "\n" for s in lines))
        if kind == "gpt2":
            base = json.loads(t.to_str())
            trained = Tokenizer(models.BPE())
            trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            trained.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=899, min_frequency=2, show_progress=False,
                                                                   initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
            model = json.loads(trained.to_str())["model"]
            write("trained.json", compact({"vocab": model["vocab"], "merges": model["merges"]}) + "\n")
    rows = []
    for i, variant in enumerate(variants()):
        t = Tokenizer.from_str(json.dumps({**base, **{k: v for k, v in variant.items() if k != "skips_specials"}}))
        t.encode_special_tokens = variant.get("skips_specials", False)
        lines = [s for s in strings(2000 + i, 135, VARIANT_SPECIALS)[18:] if len(s) < 60][-24:]
        rows.append(compact({**variant, "cases": [[s, ids] for s in lines if (ids := encode_or_none(t, s)) is not None]}))
    write("variants.jsonl", "\n".join(rows) + "\n")


if __name__ == "__main__":
    sys.exit(main())
