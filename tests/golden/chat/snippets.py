"""Random pieces of templates for make_chat.py: expressions by type, white-space control, loops, macros."""
import random

VARIABLES = {
    "n": 7, "m": -3, "zero": 0, "f": 2.5, "small": 1e-7, "big": 123456789012, "t": True, "o": False, "nil": None,
    "s": "Hello, World", "e": "", "w": "  padded \n", "u": "na\u00efve \u4f60\u597d \U0001f999 \u00df", "q": "it's \"so\"\\n",
    "p": "a-b-c-a", "k": "count", "lines": "one\ntwo\n\n  three",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [], "mix": [1, "two", None, 2.0, True],
    "d": {"x": 1, "y": "why", "z": None, "items": 5}, "de": {},
    "users": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []},
              {"name": "Cy", "age": 30}],
    "nest": {"a": {"b": [10, {"c": "deep"}]}, "list": [[1, 2], [3, 4]]},
}
INTEGERS = ["n", "m", "zero", "big", "d.x", "l[0]", "loopless|default(4)", "users[0].age"]
STRINGS = ["s", "e", "w", "u", "q", "p", "k", "lines", "d.y", "users[1].name", "d['y']", "nest.a.b[1].c"]
LISTS = ["l", "ls", "le", "mix", "nest.list", "nest.a.b", "users"]
DICTS = ["d", "de", "users[0]", "nest", "nest.a"]


class Snippets:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def one_of(self, *items):
        item = self.r.choice(items)
        return item() if callable(item) else item

    def integer(self, depth=2):
        i = lambda: self.integer(depth - 1)
        leaves = [lambda: self.r.choice(INTEGERS), lambda: str(self.r.randrange(0, 12)),
                  lambda: self.one_of("0x1F", "0b101", "1_000", "017 if o else 3", "0o17")]
        if depth <= 0:
            return self.one_of(leaves[0], leaves[1])
        return self.one_of(
            *leaves[:2],
            lambda: f"({i()} {self.one_of('+', '-', '*', '//', '%')} {i()})",
            lambda: f"{self.r.randrange(0, 5)} ** {self.r.randrange(0, 4)}",
            lambda: f"-{i()}", lambda: f"+{i()}",
            lambda: f"{self.string(depth - 1)}|{self.one_of('length', 'count', 'wordcount', 'int', 'int(5)', 'int(base=16)')}",
            lambda: f"{self.list(depth - 1)}|{self.one_of('length', 'count', 'sum', 'first', 'last', 'min', 'max')}",
            lambda: f"{self.string(depth - 1)}.{self.one_of('find', 'rfind', 'count', 'index')}({self.string(0)})",
            lambda: f"({i()})|{self.one_of('abs', 'int', 'round', 'float|int', 'string|int', 'default(3)')}",
            lambda: f"{self.dict(depth - 1)}|length",
            lambda: f"({i()} if {self.boolean(depth - 1)} else {i()})")

    def real(self, depth=2):
        if depth <= 0:
            return self.one_of("f", "small", "1.5", "2e3", "0.1", "1e16", "1e-5", "123456.789", "n / 2")
        r = lambda: self.real(depth - 1)
        return self.one_of(
            r, lambda: f"({r()} {self.one_of('+', '-', '*', '/', '//', '%')} {self.one_of(r, lambda: self.integer(depth - 1))})",
            lambda: f"{self.integer(depth - 1)} / {self.integer(depth - 1)}",
            lambda: f"({r()})|round({self.one_of('', '1', '2', '0', 'method=' + repr('floor'), '1, ' + repr('ceil'))})",
            lambda: f"({self.string(0)})|float({self.one_of('', '1.5')})", lambda: f"({r()})|abs")

    def string(self, depth=2):
        s = lambda: self.string(depth - 1)
        literal = lambda: self.one_of("'a'", '"b c"', "'-'", "', '", "'\\n'", "'\\t|'", "'l'", "'\\u00e9'", "'x' 'y'", "''")
        if depth <= 0:
            return self.one_of(lambda: self.r.choice(STRINGS), literal)
        return self.one_of(
            lambda: self.r.choice(STRINGS), literal,
            lambda: f"({s()} + {s()})", lambda: f"({s()} ~ {self.any(depth - 1)})",
            lambda: f"{s()} * {self.r.randrange(0, 4)}",
            lambda: f"{s()}|{self.one_of('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'reverse', 'first', 'last', 'tojson', 'indent', 'indent(2, true)', 'indent(1, blank=true)', 'center(12)', 'truncate(8)', 'truncate(6, true)', 'default(1)', 'list|join(1)')}",
            lambda: f"{s()}|replace({self.string(0)}, {self.string(0)}{self.one_of('', ', 1')})",
            lambda: f"{s()}|trim({self.string(0)})",
            lambda: f"({s()}).{self.one_of('upper', 'lower', 'title', 'capitalize', 'strip', 'lstrip', 'rstrip', 'swapcase', 'casefold')}()",
            lambda: f"({s()}).{self.one_of('strip', 'lstrip', 'rstrip', 'removeprefix', 'removesuffix')}({self.string(0)})",
            lambda: f"({s()}).{self.one_of('ljust', 'rjust', 'center', 'zfill')}({self.r.randrange(0, 15)})",
            lambda: f"({s()}).replace({self.string(0)}, {self.string(0)}{self.one_of('', ', 1', ', -1', ', 0')})",
            lambda: f"({s()})[{self.index()}]", lambda: f"({s()})[{self.slice()}]",
            lambda: f"({self.list(depth - 1)})|join({self.one_of('', self.string(0))})",
            lambda: f"({s()}).join({self.one_of('ls', 'ls|map(' + repr('upper') + ')', 's')})",
            lambda: f"{self.any(depth - 1)}|string", lambda: f"{self.any(depth - 1)}|tojson",
            lambda: f"({self.any(depth - 1)})|tojson({self.one_of('indent=2', 'sort_keys=true', 'ensure_ascii=true', 'separators=(' + repr(',') + ', ' + repr(':') + ')', 'indent=1, sort_keys=true')})",
            lambda: f"'{self.one_of('%s', '%5s|', '%-6s|', '%r', '%.2s', '%s%%')}' % ({s()},)",
            lambda: f"'{self.one_of('%d', '%05d', '%+d', '%x', '%#o', '%e', '%.2f', '%8.3f', '%g', '% d')}' % {self.one_of(lambda: self.integer(0), lambda: self.real(0))}",
            lambda: f"'{self.one_of('%s', '%s-%s', '%(a)s')}'|format({self.one_of('1', '1, 2', 'a=3', self.string(0))})",
            lambda: f"({s()} if {self.boolean(depth - 1)}{self.one_of('', ' else ' + self.string(0))})",
            lambda: f"({s()} {self.one_of('or', 'and')} {s()})")

    def index(self):
        return self.one_of("0", "1", "-1", "2", "5", "-2", "n", "'x'", "true")

    def slice(self):
        part = lambda: self.one_of("", "", "0", "1", "2", "-1", "-2", "10", "-10", "none", "n")
        return self.one_of(lambda: f"{part()}:{part()}", lambda: f"{part()}:{part()}:{self.one_of('', '1', '2', '-1', '-2')}",
                           "1:", "::-1", ":-1", "-3:")

    def list(self, depth=2):
        if depth <= 0:
            return self.one_of(lambda: self.r.choice(LISTS), lambda: f"[{self.one_of('', '1', '1, 2, 3', '[]', 's, n')}]",
                               lambda: f"range({self.r.randrange(0, 6)})|list")
        l = lambda: self.list(depth - 1)
        return self.one_of(
            lambda: self.r.choice(LISTS), lambda: f"[{self.any(depth - 1)}, {self.any(depth - 1)}]",
            lambda: f"({self.any(depth - 1)}, {self.any(0)})", lambda: f"({self.any(0)},)",
            lambda: f"({l()} + {l()})", lambda: f"{l()} * {self.r.randrange(0, 3)}",
            lambda: f"({l()})[{self.slice()}]",
            lambda: f"{l()}|{self.one_of('sort', 'sort(reverse=true)', 'reverse|list', 'unique|list', 'list', 'first', 'last', 'batch(2)|list', 'batch(2, 0)|list', 'slice(2)|list', 'slice(3, none)|list')}",
            lambda: f"{l()}|{self.one_of('map', 'select', 'reject')}({self.one_of(repr('string'), repr('upper'), repr('defined'), repr('none'), repr('number'), repr('odd'), repr('length'), repr('equalto') + ', 1', repr('in') + ', [1, 2]', repr('lessthan') + ', 2')})|list",
            lambda: f"users|map(attribute={self.one_of(repr('name'), repr('age'), repr('tags.0'), repr('none'), repr('tags') + ', default=1')})|list",
            lambda: f"users|{self.one_of('selectattr', 'rejectattr')}({self.one_of(repr('tags'), repr('age') + ', ' + repr('eq') + ', 30', repr('name') + ', ' + repr('in') + ', ls', repr('tags') + ', ' + repr('defined'), repr('age') + ', ' + repr('gt') + ', 26')})|{self.one_of('list', 'map(attribute=' + repr('name') + ')|list', 'first', 'list|length')}",
            lambda: f"users|sort(attribute={self.one_of(repr('name'), repr('age'), repr('age,name'))}{self.one_of('', ', reverse=true', ', case_sensitive=true')})|map(attribute='name')|join(' ')",
            lambda: f"users|{self.one_of('max', 'min')}(attribute='age')", lambda: "users|sum(attribute='age')",
            lambda: f"({self.string(depth - 1)}).{self.one_of('split', 'rsplit')}({self.one_of('', repr('-'), repr('-') + ', 1', 'none, 1', repr('l'), 'maxsplit=1', repr(', '))})",
            lambda: f"({self.string(0)}).{self.one_of('splitlines()', 'splitlines(true)', 'partition(' + repr('-') + ')', 'rpartition(' + repr('o') + ')')}",
            lambda: f"{self.dict(depth - 1)}|{self.one_of('list', 'items|list', 'dictsort', 'dictsort(by=' + repr('value') + ')', 'dictsort(reverse=true)')}",
            lambda: f"({self.dict(depth - 1)}).{self.one_of('keys', 'values', 'items')}(){self.one_of('', '|list')}",
            lambda: f"range({self.r.randrange(-2, 5)}, {self.r.randrange(0, 9)}{self.one_of('', ', 2', ', -1')})|list")

    def dict(self, depth=2):
        if depth <= 0:
            return self.r.choice(DICTS)
        return self.one_of(lambda: self.r.choice(DICTS), lambda: f"{{'a': {self.any(depth - 1)}, 'b': {self.any(0)}}}",
                           lambda: f"{{{self.integer(0)}: {self.any(0)}, 'k': 1, 'k': 2}}",
                           lambda: f"dict(x={self.any(0)}, y=2)", lambda: "dict([('a', 1), ('b', 2)], c=3)",
                           lambda: f"({self.dict(depth - 1)}).copy()")

    def boolean(self, depth=2):
        if depth <= 0:
            return self.one_of("t", "o", "true", "False", "nil", "n", "e", "missing", "le", "s")
        b = lambda: self.boolean(depth - 1)
        a = lambda: self.any(depth - 1)
        return self.one_of(
            lambda: f"({b()} {self.one_of('and', 'or')} {b()})", lambda: f"not {b()}",
            lambda: f"({self.integer(depth - 1)} {self.one_of('<', '<=', '>', '>=', '==', '!=')} {self.one_of(lambda: self.integer(0), lambda: self.real(0))})",
            lambda: f"({self.string(depth - 1)} {self.one_of('<', '==', '!=', '>=', 'in', 'not in')} {self.string(0)})",
            lambda: f"({self.integer(0)} < {self.integer(0)} < {self.integer(0)})",
            lambda: f"({self.any(0)} {self.one_of('in', 'not in')} {self.one_of(lambda: self.list(0), lambda: self.dict(0))})",
            lambda: f"({a()} == {a()})",
            lambda: f"{self.any(0)} is {self.one_of('', 'not ')}{self.one_of('defined', 'none', 'string', 'mapping', 'iterable', 'sequence', 'number', 'boolean', 'true', 'false', 'integer', 'float', 'undefined', 'callable', 'equalto 7', 'eq(7)', 'in [1, 7]', 'sameas none', 'filter', 'odd', 'even', 'divisibleby 3', 'upper', 'lower', 'ne 1', 'gt 2')}",
            lambda: f"({self.string(0)}).{self.one_of('startswith', 'endswith')}({self.one_of(self.string(0), '(' + repr('H') + ', ' + repr('a') + ')')})",
            lambda: f"({self.string(0)}).{self.one_of('isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'isalnum', 'istitle')}()")

    def any(self, depth=2):
        return self.one_of(lambda: self.integer(depth), lambda: self.real(depth), lambda: self.string(depth),
                           lambda: self.string(depth), lambda: self.list(depth), lambda: self.dict(depth),
                           lambda: self.boolean(depth), lambda: self.one_of("missing", "nil", "d.q", "nest.nope", "mix[9]", "d.get('x')", "d.get('q', 5)", "d['items']", "users[2].tags"))

    def text(self):
        return "".join(self.r.choice(["a", "b ", " ", "\n", "\n\n", "  ", "\t", "x\n  ", "{", "}", "%"]) for _ in range(self.r.randrange(0, 5)))

    def tag(self, inside):
        open_, close = self.r.choice(["{%", "{%", "{%-", "{%+"]), self.r.choice(["%}", "%}", "-%}", "+%}"])
        return f"{open_} {inside} {close}"

    def output(self):
        open_, close = self.r.choice(["{{", "{{", "{{-"]), self.r.choice(["}}", "}}", "-}}"])
        return f"{open_} {self.any(self.r.randrange(0, 2))} {close}"

    def block(self, depth):
        body = lambda: self.body(depth - 1)
        kind = self.r.randrange(0, 14)
        if kind < 3:
            out = self.tag(f"if {self.boolean(1)}") + body()
            if self.r.random() < 0.3:
                out += self.tag(f"elif {self.boolean(0)}") + body()
            if self.r.random() < 0.5:
                out += self.tag("else") + body()
            return out + self.tag("endif")
        if kind < 6:
            items = self.one_of(lambda: self.list(1), "ls", "l", "range(3)", "users|map(attribute='name')", "s[:3]", "d")
            condition = self.one_of("", "", f" if x {self.one_of('is string', '!= 1', 'is defined', 'in ls')}")
            inside = self.r.choice(["{{ loop.index }}", "{{ loop.index0 }}{{ loop.last }}", "{{ loop.first }}{{ x }}", "{{ x }}",
                                    "{{ loop.revindex }}/{{ loop.length }}", "{{ loop.previtem }}<{{ loop.nextitem }}",
                                    "{{ loop.cycle('A', 'B') }}", "{% if loop.index == 2 %}{% continue %}{% endif %}{{ x }}",
                                    "{% if not loop.first %}{% break %}{% endif %}{{ x }}", "{{ loop.changed(x) }}",
                                    "{% set n = x %}{{ n }}", "{% for y in [1, 2] %}{{ loop.index }}{{ y }}{% endfor %}"])
            out = self.tag(f"for x in {items}{condition}") + inside + self.text()
            if self.r.random() < 0.3:
                out += self.tag("else") + body()
            return out + self.tag("endfor") + "{{ x }}"
        if kind == 6:
            return self.tag(f"for k, v in {self.dict(1)}.items()") + "{{ k }}={{ v }};" + self.tag("endfor")
        if kind == 7:
            return self.tag(f"set v{self.r.randrange(3)} = {self.any(1)}") + self.text() + "{{ v0 }}{{ v1 }}"
        if kind == 8:
            return self.tag(f"set v1{self.one_of('', ' | upper', ' | trim | length')}") + body() + self.tag("endset") + "[{{ v1 }}]"
        if kind == 9:
            return ("{% set ns = namespace(c=0) %}" + self.tag(f"for x in {self.list(0)}") + self.tag("set ns.c = ns.c + 1") +
                    self.text() + self.tag("endfor") + "{{ ns.c }}")
        if kind == 10:
            name = self.r.choice(["f1", "g1"])
            return (self.tag(f"macro {name}(a, b={self.integer(0)})") + "<{{ a }}|{{ b }}>" + self.text() + self.tag("endmacro") +
                    "{{ " + self.one_of(f"{name}(1)", f"{name}(1, 2)", f"{name}(b=3, a=4)", f"{name}()", f"{name}(1, 2, 3)", f"{name}(c=1)", f"{name}('x')|upper") + " }}")
        if kind == 11:
            return self.tag(f"filter {self.one_of('upper', 'trim', 'replace(' + repr('a') + ', ' + repr('o') + ')|upper')}") + body() + self.tag("endfilter")
        if kind == 12:
            return self.r.choice(["{#", "{#-"]) + self.text().replace("}", "") + self.r.choice(["#}", "-#}"])
        return self.tag("raw").replace("{%+", "{%").replace("+%}", "%}") + self.text() + "{{ x }}{% if %}" + self.tag("endraw")

    def body(self, depth):
        parts = []
        for _ in range(self.r.randrange(1, 4)):
            parts.append(self.text())
            parts.append(self.output() if depth <= 0 or self.r.random() < 0.4 else self.block(depth))
        return "".join(parts) + self.text()
