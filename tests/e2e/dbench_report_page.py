"""Renders reports in a headless browser: boxes and points are measured by a script added to a copy of the page, pixels are
read from a screenshot. usage: dbench_report_page.py BROWSER DBENCH RUN_PAGE TWO_RUNS_PAGE"""
import json, os, re, struct, subprocess, sys, zlib

browser, dbench, run_page, two_page = sys.argv[1:5]
failed = 0

PROBE = """<script>addEventListener('load', () => {
  const box = e => { const b = e.getBoundingClientRect(); return [b.width, b.height, b.left, b.right]; };
  const out = {width: document.documentElement.clientWidth, scroll: document.documentElement.scrollWidth,
    background: getComputedStyle(document.body).backgroundColor, colour: getComputedStyle(document.body).color,
    requests: performance.getEntriesByType('resource').length,
    sections: [...document.querySelectorAll('section')].map(s => [s.id, ...box(s)]),
    charts: [...document.querySelectorAll('svg.chart')].map(s => ({title: s.querySelector('title').textContent,
      desc: s.querySelector('desc').textContent, box: box(s), figure: box(s.closest('figure')),
      points: [...s.querySelectorAll('path.line,path[class^=f-]')].map(p => (p.getAttribute('d').match(/[ML]/g) || []).length),
      text: Math.min(...[...s.querySelectorAll('text')].map(t => t.getBoundingClientRect().height))}))};
  document.title = 'PROBE' + JSON.stringify(out) + 'END';
})</script>"""


def check(name, good, found=''):
    global failed
    print(('ok    ' if good else 'FAIL  ') + name + ('' if good else ': found %s' % (found,)))
    failed += not good


def run(arguments):
    home = os.path.abspath('browser-home')
    return subprocess.run([browser, '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--virtual-time-budget=4000',
                           '--user-data-dir=' + home, '--enable-logging=stderr', '--v=0'] + arguments,
                          capture_output=True, text=True, timeout=100)


def measure(page, width, dark=False):
    text = open(page, encoding='utf-8').read().replace('</body>', PROBE + '</body>')
    open('probe.html', 'w', encoding='utf-8').write(text)
    done = run(['--window-size=%d,1000' % width, '--dump-dom'] + (['--blink-settings=preferredColorScheme=0'] if dark else []) +
               ['file://' + os.path.abspath('probe.html')])
    check('%s at %d: no console message' % (page, width), 'CONSOLE' not in done.stderr, done.stderr[-500:])
    found = re.search('<title>PROBE(.*?)END</title>', done.stdout, re.S)
    assert found, 'the page was not measured: ' + done.stdout[:500] + done.stderr[-500:]
    import html
    return json.loads(html.unescape(found.group(1)))


def pixels(file):
    """(width, height, rows of RGB) of an 8-bit PNG without interlacing."""
    data = open(file, 'rb').read()
    at, idat = 8, b''
    while at < len(data):
        n, kind = struct.unpack('>I4s', data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        if kind == b'IHDR':
            width, height, depth, colour = struct.unpack('>IIBB', body[:10])
        if kind == b'IDAT':
            idat += body
        at += n + 12
    assert depth == 8 and colour in (2, 6)
    size = 3 if colour == 2 else 4
    raw, before, rows, at = zlib.decompress(idat), bytearray(width * size), [], 0
    for _ in range(height):
        how, line = raw[at], bytearray(raw[at + 1:at + 1 + width * size])
        at += 1 + width * size
        for i in range(len(line)):
            a = line[i - size] if i >= size else 0
            b = before[i]
            c = before[i - size] if i >= size else 0
            if how == 1: line[i] = (line[i] + a) & 255
            elif how == 2: line[i] = (line[i] + b) & 255
            elif how == 3: line[i] = (line[i] + (a + b) // 2) & 255
            elif how == 4:
                p = a + b - c
                pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
                line[i] = (line[i] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
        rows.append(line)
        before = line
    return width, height, size, rows


def luminance(rgb):
    parts = [v / 255 / 12.92 if v / 255 <= 0.03928 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):  # WCAG 2.1
    a, b = sorted([luminance([int(v) for v in re.findall(r'\d+', c)[:3]]) for c in (one, other)])
    return (b + 0.05) / (a + 0.05)


for page, first in ((run_page, ['short', 'identity', 'learning', 'speed', 'pipeline', 'memory', 'hosts', 'events']), (two_page, ['compare', 'run1-learning', 'run2-learning'])):
    for width in (1280, 400):
        m = measure(page, width)
        shown = {s[0]: s for s in m['sections']}
        for name in first:
            check('%s at %d: section %s is there' % (page, width, name), name in shown and shown[name][1] > 100 and shown[name][2] > 30, shown.get(name))
        check('%s at %d: nothing sticks out' % (page, width), m['scroll'] <= m['width'], (m['scroll'], m['width']))
        check('%s at %d: no request' % (page, width), m['requests'] == 0, m['requests'])
        check('%s at %d: charts have size, titles, descriptions' % (page, width),
              len(m['charts']) >= 8 and all(c['box'][0] > 200 and c['box'][1] > 60 and c['title'] and c['desc'] for c in m['charts']),
              [c['box'] for c in m['charts']])
        check('%s at %d: charts lie in their figures' % (page, width),
              all(c['box'][2] >= c['figure'][2] - 1 and c['box'][3] <= c['figure'][3] + 1 for c in m['charts']))
        check('%s at %d: text can be read' % (page, width), min(c['text'] for c in m['charts']) >= 9, min(c['text'] for c in m['charts']))
        check('%s at %d: contrast' % (page, width), contrast(m['background'], m['colour']) >= 7, (m['background'], m['colour']))

light, dark = measure(run_page, 1280), measure(run_page, 1280, dark=True)
loss = [c for c in light['charts'] if c['title'] == 'Loss'][0]
check('a point for each of the 30 steps', 30 in loss['points'], loss['points'])
check('dark is dark', contrast(dark['background'], 'rgb(0,0,0)') < 1.5 and contrast(dark['background'], dark['colour']) >= 7,
      (dark['background'], dark['colour']))
areas = [c for c in light['charts'] if c['title'].startswith('Where a step')][0]
check('five areas', len(areas['points']) == 5 and min(areas['points']) >= 30, areas['points'])

done = run(['--window-size=1280,4000', '--screenshot=page.png', 'file://' + os.path.abspath(run_page)])
width, height, size, rows = pixels('page.png')
check('the screenshot has the size asked for', (width, height) == (1280, 4000), (width, height))
counts = {}
for row in rows:
    for i in range(0, len(row), size):
        rgb = (row[i], row[i + 1], row[i + 2])
        counts[rgb] = counts.get(rgb, 0) + 1
style = open(run_page, encoding='utf-8').read()
for name, least in (('compute', 2000), ('communication', 20), ('s0', 500), ('checkpoint', 20)):
    value = re.search('--%s:#([0-9a-f]{6})' % name, style).group(1)
    rgb = tuple(int(value[i:i + 2], 16) for i in (0, 2, 4))
    check('colour %s is drawn' % name, counts.get(rgb, 0) >= least, counts.get(rgb, 0))
sys.exit(1 if failed else 0)
