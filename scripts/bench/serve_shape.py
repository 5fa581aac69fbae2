"""What a step of a Llama-shaped model costs: products and bytes, from its config.json."""

import json
import os

KV_BYTES = {"f32": 4, "bf16": 2, "int8": 2, "int4": 2}  # of an element: the activations' type


class Shape:
    def __init__(self, model):
        with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
            c = json.load(f)
        self.layers, self.width, self.ffn, self.vocab = c["num_hidden_layers"], c["hidden_size"], c["intermediate_size"], c["vocab_size"]
        self.heads = c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads") or self.heads
        self.head_dim = c.get("head_dim") or self.width // self.heads
        self.max_position = c["max_position_embeddings"]
        q = self.heads * self.head_dim
        self.block = self.width * (q + 2 * self.kv_heads * self.head_dim) + q * self.width + 3 * self.width * self.ffn
        self.linear = self.layers * self.block + self.vocab * self.width  # parameters that a decoded token is multiplied with
        self.params = self.linear + (0 if c.get("tie_word_embeddings") else self.vocab * self.width)

    def weights_bytes(self, fmt):
        """Of the model in memory: the embedding stays f32, groups of 128 (int8) and 32 (int4) have a scale; upper bounds."""
        return int(self.linear * {"f32": 4, "bf16": 2, "int8": 1.06, "int4": 0.65}[fmt]) + 4 * self.vocab * self.width

    def kv_bytes(self, fmt):
        """Of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * KV_BYTES[fmt]

    def decode_flops(self, context):
        return 2 * self.linear + 4 * self.layers * self.heads * self.head_dim * context

    def prefill_flops(self, n):
        """Of n tokens from nothing, causal; the head sees one row."""
        return 2 * self.layers * self.block * n + 2 * self.vocab * self.width + 4 * self.layers * self.heads * self.head_dim * n * (n + 1) / 2
