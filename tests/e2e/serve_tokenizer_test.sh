#!/usr/bin/env bash
# /tokenize against Hugging Face's own tokenizers, on random text.
. "$(dirname "$0")/venv_lib.sh"
run_with serve_tokenizer.py tokenizers==0.23.3
