"""Makes formats.json: what jinja2 renders of the % of strings, the filter `format` and `groupby`.

    python3 make_formats.py > formats.json        (needs jinja2 3.1.6)
"""

import json
import random

import jinja2
import jinja2.sandbox

VARS = {
    "s": "Hello", "e": "", "u": "h\u00e9\u65e5\U0001f600", "q": "it's \"q\"\n", "n": 42, "neg": -7,
    "z": 0, "big": 2 ** 63 - 1, "f": 2.5, "fneg": -0.125, "third": 1 / 3, "large": 1.5e17,
    "tiny": 1e-7, "t": True, "fa": False, "no": None, "l": [1, "a"], "le": [], "d": {"a": 1, "b": "x"},
    "people": [{"name": "Ann", "city": "Ulm", "age": 3, "at": {"k": 1}},
               {"name": "bob", "city": "bonn", "age": 5, "at": {"k": 2}},
               {"name": "Cy", "city": "Bonn", "age": 3, "at": {"k": 1}},
               {"name": "Di", "city": "ulm", "age": 4, "at": {"k": 2}},
               {"name": "ann", "city": "Aachen", "age": 5, "at": {"k": 1}}],
    "partly": [{"k": "b", "v": 1}, {"v": 2}, {"k": "a", "v": 3}], "pairs": [[2, "x"], [1, "y"], [2, "z"]],
}
SCALARS = ["s", "e", "u", "q", "n", "neg", "z", "big", "f", "fneg", "third", "large", "tiny", "t", "fa",
           "no", "l", "le", "d"]
NUMBERS = ["n", "neg", "z", "big", "f", "fneg", "third", "large", "tiny", "t"]

DETAILS = [
    # the % of strings
    "{{ '%s' % s }}|{{ 'a%sb' % n }}|{{ '%s' % l }}|{{ '%s' % d }}|{{ '%s' % no }}|{{ '%s' % nosuch }}",
    "{{ '%s-%s' % (s, n) }}|{{ '%s' % (s,) }}|{{ 'a' % () }}|{{ '%%' % () }}|{{ '100%%' % d }}",
    "{{ 'a' % d }}|{{ 'a' % l }}|{{ 'a' % nosuch }}", "{{ 'a' % n }}", "{{ 'a' % s }}", "{{ 'a' % no }}",
    "{{ '%s' % () }}", "{{ '%s %s' % s }}", "{{ '%s' % (s, n) }}", "{{ '%s %s' % l }}",
    "{{ '%(a)s-%(b)5s|%(a)03d' % d }}", "{{ '%(c)s' % d }}", "{{ '%(a)s' % l }}", "{{ '%(a)s' % (1,) }}",
    "{{ '%(a)s %s' % d }}", "{{ '%(a(b))s' % {'a(b)': 1} }}", "{{ '%()s' % {'': 1} }}", "{{ '%(a' % d }}",
    "{{ '%(a)%' % d }}|{{ '%5%' % () }}|{{ '%-5%|' % () }}", "{{ '%' % n }}", "{{ '%5' % n }}",
    "{{ '%y' % n }}", "{{ '%.f|%.0f|%.1f' % (f, f, 0.25) }}", "{{ '%*d|%-*d|%*d' % (5, n, 5, n, -5, n) }}",
    "{{ '%.*f|%.*f' % (2, third, -1, third) }}", "{{ '%*d' % (s, n) }}", "{{ '%ld|%hd|%Lf' % (n, n, f) }}",
    "{{ '%lld' % n }}", "{{ '%d' % 'a' }}", "{{ '%d' % no }}", "{{ '%d' % nosuch }}", "{{ '%f' % '1' }}",
    "{{ '%x' % f }}", "{{ '%x' % t }}", "{{ '%c%c%c' % ('a', 98, '\u65e5') }}", "{{ '%c' % 'ab' }}",
    "{{ '%c' % -1 }}", "{{ '%5c|%-5c|' % ('a', 98) }}", "{{ '%r|%8.3r|' % (q, s) }}",
    "{{ '%f' % ('nan'|float) }}|{{ '%05f|%+F' % ('inf'|float, '-inf'|float) }}|{{ '%.0e' % third }}",
    "{{ '%d' % ('nan'|float) }}", "{{ '%+d|% d|%+ d|%05d|%-05d|%+05d' % (n, n, n, neg, neg, n) }}",
    "{{ '%05.3d|%.5d|%8.5d|%-8.5d|%+.0d' % (n, neg, neg, neg, z) }}",
    "{{ '%#x|%#X|%#o|%#010x|%#.0f|%#.0e' % (255, 255, 8, 255, f, f) }}",
    "{{ '%g|%g|%g|%G|%.3g|%.0g' % (large, tiny, third, tiny, third, large) }}",
    "{{ 'Total: %d%% of %s' % (12.9, 'x') }}", "{{ ('%s' ~ s) % n }}", "{{ '%s' % s ~ 'x' }}",
    "{{ '%s' % n + 1 }}", "{{ '%s' % (n + 1) }}", "{{ '%02d:%02d' % (n // 60, n % 60) }}",
    # the filter
    "{{ '%5d|%-5s|%.2f'|format(n, s, third) }}|{{ '%(a)05.1f'|format(a=f) }}", "{{ '%s'|format(l) }}",
    "{{ '%d%%'|format(n) }}|{{ '%s'|format((1, 2)) }}", "{{ '%*d'|format(6, n) }}",
    # groupby
    "{% for city, who in people|groupby('city') %}{{ city }}:{% for p in who %} {{ p.name }}{% endfor %};"
    "{% endfor %}",
    "{% for g in people|groupby('city') %}{{ g.grouper }}={{ g.list|length }}={{ g['grouper'] }}={{ g[0] }};"
    "{% endfor %}",
    "{% for g in people|groupby('city', case_sensitive=true) %}{{ g.grouper }}:"
    "{{ g.list|map(attribute='name')|join(',') }};{% endfor %}",
    "{{ people|groupby('age')|map('first')|list }}", "{{ people|groupby(attribute='at.k')|map('length')|list }}",
    "{{ people|groupby('at.k')|map(attribute='grouper')|list }}", "{{ []|groupby('x') }}|{{ ''|groupby(0) }}",
    "{{ partly|groupby('k', default='z')|map('first')|list }}", "{{ partly|groupby('k') }}",
    "{{ partly|groupby('k', 'B')|map('first')|list }}", "{{ pairs|groupby(0) }}", "{{ pairs|groupby('1') }}",
    "{{ (pairs|groupby(0))|tojson }}", "{{ (pairs|groupby(0))[0] is sequence }}", "{{ pairs|groupby }}",
    "{{ ['b', 'A', 'a']|groupby(none) }}", "{{ [1, 'a']|groupby(none) }}", "{{ n|groupby('x') }}",
    "{{ (pairs|groupby(0))[0].nosuch }}|{{ (pairs|groupby(0))[0] == (1, [[1, 'y']]) }}",
]


def random_conversion(rng: random.Random) -> tuple[str, list[str]]:
    """A conversion, and the names of the variables that it takes."""
    taken = []
    text = "%" + "".join(rng.sample("-0+ #", rng.choice([0, 0, 1, 1, 2])))
    if rng.random() < .5:
        text += str(rng.randint(1, 14))
    elif rng.random() < .1:
        text += "*"
        taken.append(str(rng.randint(-9, 9)))
    if rng.random() < .4:
        text += rng.choice([".", ".0", ".1", ".3", ".7"])
    kind = rng.choice("sssddddiuxXofffeEFgGrc")
    if kind in "gG":
        text = text.replace("#", "")
    taken.append(rng.choice(NUMBERS if kind not in "src" and rng.random() < .9 else SCALARS))
    return text + kind, taken


def random_template(rng: random.Random) -> str:
    text, taken = "", []
    for _ in range(rng.choice([1, 1, 2, 3])):
        conversion, more = random_conversion(rng)
        text += rng.choice(["", "a", " ", "%%"]) + conversion + "|"
        taken += more
    if rng.random() < .05:
        taken.append("n")
    if rng.random() < .5:
        return f"{{{{ '{text}' | format({', '.join(taken)}) }}}}"
    single = len(taken) == 1 and rng.random() < .5
    return f"{{{{ '{text}' % {taken[0] if single else '(' + ', '.join(taken) + ',)'} }}}}"


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)

    def case(template: str) -> dict:
        try:
            return {"template": template, "text": environment.from_string(template).render(**VARS)}
        except Exception:
            return {"template": template, "error": True}

    rng = random.Random(1)
    cases, errors = [case(template) for template in DETAILS], 0
    while len(cases) < len(DETAILS) + 500:
        made = case(random_template(rng))
        errors += "error" in made
        if "error" not in made or errors <= 60:
            cases.append(made)
    print(json.dumps({"about": "what jinja2 " + jinja2.__version__ + " renders in the environment in which "
                      "transformers compiles chat templates; error: it raises. Made by make_formats.py.",
                      "vars": VARS, "cases": cases}, indent=1))


main()
