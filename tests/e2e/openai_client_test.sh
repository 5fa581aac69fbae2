#!/usr/bin/env bash
# The official OpenAI client against dserve.
. "$(dirname "$0")/venv_lib.sh"
run_with openai_client.py openai==3.57.0
