#!/usr/bin/env python3
"""doctor_commands.py SOURCE_ROOT TOOLS: every command that a doctor's rule names can be given: the tool has the subcommand, and
its help the flags."""
import functools
import pathlib
import re
import subprocess
import sys

source, tools = map(pathlib.Path, sys.argv[1:3])
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
COMMAND = re.compile(r'\b(dtrain|dserve|dplan|dbench|dckpt)\b((?: [^;]*)?)')
OWN_WORK = {'dtrain': {'prepare'}, 'dserve': {'generate', 'replay'}}  # subcommands of tools that run without one


@functools.cache
def help_of(tool, subcommand):
    command = [tools / tool, *([subcommand] if subcommand else []), '--help']
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def commands():
    for file in sorted((source / 'libcore/bench/doctor').glob('*.cpp')):
        text = re.sub(r'"\s*\n\s*"', '', file.read_text())
        for literal in LITERAL.findall(text):
            for tool, rest in COMMAND.findall(literal):
                words = rest.split()
                first = words[0] if words and re.fullmatch('[a-z]+', words[0]) else ''
                if tool in OWN_WORK and first not in OWN_WORK[tool]:
                    first = ''
                yield file.name, tool, first, re.findall(r'(?<![\w-])--[a-z][a-z-]*', rest), literal


wrong, n = [], 0
for file, tool, subcommand, flags, literal in commands():
    n += 1
    if subcommand and tool not in OWN_WORK and not re.search(rf'^ +{subcommand} ', help_of(tool, ''), re.M):
        wrong.append(f'{file}: {tool} has no subcommand {subcommand}: {literal}')
        continue
    wrong += [f'{file}: {tool} {subcommand} has no flag {flag}: {literal}' for flag in flags
              if not re.search(rf'{flag}(?![\w-])', help_of(tool, subcommand))]
print('\n'.join(wrong) or f'{n} commands can be given')
sys.exit(1 if wrong or n < 20 else 0)
