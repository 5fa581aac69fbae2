"""step_trace.py TRACE RANKS STAGES MICRO_BATCHES STEPS: whether the trace of a pipeline of STAGES stages with RANKS ranks in
all can be true: what must be there, and what cannot begin before something else has ended. Prints what is wrong."""
import json
import sys

trace, ranks, stages, micro_batches = sys.argv[1], *map(int, sys.argv[2:5])
steps = [int(s) for s in sys.argv[5].split(',')]
events = json.load(open(trace))
drawn = [e for e in events if e['ph'] == 'X']
names = {(e['pid'], e['tid']): e['args']['name'] for e in events if e['name'] == 'thread_name'}
wrong = []


def need(what, holds):
    if not holds:
        wrong.append(what)


def end(e):
    return e['ts'] + e['dur']


need('all ranks are processes with names', {e['pid'] for e in drawn} == set(range(1, ranks + 1)) ==
     {e['pid'] for e in events if e['name'] == 'process_name'})
need('these steps and no other', {e['args']['step'] for e in drawn} == set(steps))
for row in {(e['pid'], e['tid']) for e in drawn}:
    of_row = sorted((e for e in drawn if (e['pid'], e['tid']) == row), key=lambda e: e['ts'])
    need(f'a row\'s events follow one another: {row} {names[row]}', all(end(a) <= b['ts'] + 0.01 for a, b in zip(of_row, of_row[1:])))
for step in steps:
    of_step = [e for e in drawn if e['args']['step'] == step]
    for rank in range(ranks):
        mine = [e for e in of_step if e['pid'] == rank + 1]
        phases = {e['name']: e for e in mine if names[e['pid'], e['tid']] == 'step'}
        need(f'rank {rank} has the step\'s phases: {list(phases)}',
             list(phases) == ['data', 'counts', 'pipeline', 'losses', 'gradients', 'optimizer', 'checkpoint', 'update'])
        inside = phases['pipeline']
        actions = {e['name']: e for e in mine if names[e['pid'], e['tid']] == 'pipeline'}
        need(f'rank {rank} does each micro-batch forward and backward once',
             sorted(actions) == sorted(f'{kind} {m}' for kind in ('forward', 'backward') for m in range(micro_batches)))
        need(f'rank {rank}: actions lie in their phase', all(inside['ts'] <= e['ts'] and end(e) <= end(inside) + 0.01 for e in actions.values()))
        need(f'rank {rank} sends or receives', stages == 1 or any(e['name'] in ('send', 'recv') and e['args']['bytes'] > 0 for e in mine))
    # Ranks are numbered with the stage as the slowest or the fastest index: the first forward tells which rank is where.
    if stages == 2 and ranks == 2:
        action = {(e['pid'] - 1, e['name']): e for e in of_step if names[e['pid'], e['tid']] == 'pipeline'}
        for m in range(micro_batches):
            need(f'forward {m} is passed on before it goes on', action[0, f'forward {m}']['ts'] < end(action[1, f'forward {m}']) and
                 end(action[0, f'forward {m}']) <= end(action[1, f'forward {m}']))
            need(f'backward {m} comes back', end(action[1, f'backward {m}']) <= end(action[0, f'backward {m}']))
print('\n'.join(wrong) or 'the trace can be true')
