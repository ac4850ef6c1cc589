"""Small templates: one feature or one trap each. VARIABLES is what they see."""

VARIABLES = {
    "n": 7, "z": 0, "neg": -3, "big": 9007199254740993, "f": 2.5, "t": True, "no": False, "nothing": None,
    "s": "Hello, World", "blank": "", "sp": "  padded \n", "u": "naïve 😀 日本 ß", "quotes": "it's \"x\"\n\t\\",
    "html": "<a href='x'>&</a>", "csv": "a,b,,c", "nums": [3, 1, 2], "mixed": [1, "two", None, 2.0, True, [3], {"k": 4}],
    "empty": [], "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "C": 3}, "ed": {}, "nest": {"x": {"y": [10, 20]}},
    "rows": [{"name": "x", "age": 3, "tags": ["p"]}, {"name": "y", "age": 1, "tags": []},
             {"name": "Z", "age": 2, "ok": True}],
    "think": "<think>\nhmm\n</think>\n\nanswer", "special": {"items": 5, "get": 6, "pop": 7, "_x": 8, "if": 9},
}

# Each is shown as {{ ... }}.
EXPRESSIONS = """
n + 1
n - 10
n * f
n / 2
n // 2
-n // 2
n % 3
-7 % 3
7 % -3
7.5 % 2
-7.5 // 2
7.5 // -2
n ** 2
2 ** 3 ** 2
-2 ** 2
2 ** -1
0 ** -1
2 ** 62
2 ** 63
9223372036854775807 + 1
9223372036854775807
9223372036854775808
1 / 0
1 // 0
1 % 0
1.0 / 0
big
big == 9007199254740992.0
big > 9007199254740992.0
1e16
1e15
123456789.125
1e-4
1e-5
0.1 + 0.2
1_000
0x1F + 0b11 + 0o17
1.5e3
1e400
3 | string + "x"
n ~ f ~ t ~ nothing ~ blank ~ nums
"a" "b" 'c'
"a" + 1
"a" + undefined_name
"a" ~ undefined_name ~ "b"
"ab" * 3
3 * "ab"
"ab" * -1
[1, 2] * 2
[1] + [2]
(1,) + (2, 3)
[1] + (2,)
"%s-%d-%5.2f-%x-%%" % ("a", 3, 2.5, 255)
"%s" % n
"%s %s" % (1,)
"%(a)s" % {"a": 1}
"%5s|%-5s|%05d|%+d" % ("a", "b", 3, 4)
"%r" % ("q",)
"%c" % 65
"{} {1}".format(1, 2)
"{} {}".format(1, 2)
"{0} {name!r:>6} {1[k]}".format("a", {"k": 5}, name="b")
"{:>5}|{:<5}|{:^5}|{:05d}|{:+.2f}|{:,}".format("a", "b", "c", 42, 3.14159, 1234567)
"{{}}".format(1)
"{".format(1)
t and n
z or "fallback"
no and boom.x
not n
not blank
not not n
n == 7 and s
nothing or blank or z
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 == true
1 == 1.0
true == 1
"a" < "b"
"a" < 1
[1, 2] < [1, 3]
(1, 2) == [1, 2]
nothing == undefined_name
undefined_name == other_undefined
undefined_name < 1
nothing < 1
"ell" in s
"" in s
1 in nums
9 not in nums
"a" in d
1 in s
n in undefined_name
n in n
[1] in d
2 in range(5)
2.0 in range(5)
"b" in d.keys()
1 in d.values()
s is string
n is string
n is number and f is number and t is number
n is integer
t is integer
f is float
t is boolean
nothing is none
nothing is not none
undefined_name is defined
undefined_name is undefined
undefined_name is none
d.missing is defined
nest.x.y is defined
d.missing.more is defined
nums is iterable
s is iterable
n is iterable
undefined_name is iterable
nums is sequence
d is sequence
d.items() is sequence
undefined_name is sequence
d is mapping
nums is mapping
n is odd
n is even
2.0 is even
"a" is odd
n is divisibleby 7
n is divisibleby(2)
n is in [7, 8]
n is eq 7
n is equalto 8
n is ne 8
n is gt 5 and n is lt 9 and n is ge 7 and n is le 7
n is sameas 7
t is true
n is true
no is false
"abc" is lower
"ABC" is upper
"Abc" is lower
"upper" is filter
"nope" is filter
"odd" is test
range is callable
n is callable
html | escape is escaped
n is defined is true
n is unknown_test
n if t else "x"
n if no
(n if no) is defined
"a" if no else "b" if no else "c"
[1, 2.0, "x", true, none, undefined_name]
(1,)
()
(1, 2)
1, 2
{"a": 1, "b": [1, {"c": none}]}
{}
[]
{1: "a", "b": 2, none: 3, true: 4}
{[1]: 2}
{"a": 1, "a": 2}
quotes
[quotes, u, "\\x00\\x7f\\u200b", "it's"]
"\\n" ~ "\\t\\x41\\u00e9\\U0001F600\\101\\q\\\\"
'a\\'b' ~ "a\\"b"
"\\xZZ"
nums[0]
nums[-1]
nums[5]
nums[5] is defined
nums[1.0]
nums["x"] is defined
nums.0
nums[1:]
nums[::-1]
nums[:-1]
nums[-2:]
nums[::2]
nums[5:1:-2]
nums[::0]
nums["a":]
nums[none:none:none]
s[0]
s[-1]
s[1:4]
s[::-1]
u[::-1]
u[6]
u[7:9]
u | length
(1, 2, 3)[1:]
range(10)[2:8:2]
range(10)[3]
range(10)[-1]
range(5)
range(5) | list
range(2, 10, 3) | list
range(5, 0, -2) | list
range(5, 0) | list
range(0, 5, 0)
range(100001)
range(100000) | length
range("a")
range()
d["a"]
d.a
d["zz"]
d.zz.zz
d.items()
d.keys() | list
d.values() | list
d.items() | list
d | list
d | length
d.get("a")
d.get("q")
d.get("q", 5)
d.get()
d.get([1])
d.a.b
d["items"]
special.items
special["items"]
special.get
special.pop
special.pop is defined
special._x
special["_x"]
special.if
nest.x.y[1]
nest["x"]["y"][0]
nothing.x
nothing.x is defined
nothing["x"] is defined
nothing[0] is defined
nothing()
n()
undefined_name()
undefined_name.x
undefined_name["x"]
undefined_name[1:]
nothing[1:]
nums.append(4)
nums.append is defined
nums.index(1)
nums.index(9)
nums.count(1)
s.__class__
s.nope is defined
s.upper()
s.upper
"abc".nope()
s.lower() ~ s.title() ~ "aBC dEF".capitalize() ~ s.swapcase()
"they're bill's".title()
"they're bill's" | title
"a-b (c) [d]" | title
u.upper()
u | upper
"ÀÉ".lower()
sp.strip() ~ "|" ~ sp.lstrip() ~ "|" ~ sp.rstrip() ~ "|"
"xxaxx".strip("x")
"abcXcba".lstrip("abc") ~ "abcXcba".rstrip("abc")
"\\u3000a\\u00a0".strip()
s.strip(1)
s.strip(none)
csv.split(",")
csv.split(",", 1)
csv.rsplit(",", 1)
csv.split(",", maxsplit=2)
csv.split("")
" a  b c ".split()
" a  b c ".split(none, 1)
" a  b c ".rsplit(none, 1)
think.split("</think>")[-1].lstrip("\\n")
think.split("</think>")[0].rstrip("\\n").split("<think>")[-1].lstrip("\\n")
"a\\nb\\r\\nc\\n\\nd".splitlines()
"a\\nb\\r\\nc".splitlines(true)
s.startswith("Hell")
s.startswith(("x", "H"))
s.startswith("World", 7)
s.endswith("ld") and s.endswith("lo", 0, 5)
s.startswith(1)
s.startswith(undefined_name)
s.find("o") ~ s.rfind("o") ~ s.find("zz")
u.find("日")
s.index("zz")
s.count("l") ~ "aaa".count("aa") ~ "abc".count("")
s.replace("l", "L") ~ s.replace("l", "L", 1) ~ "ab".replace("", "-")
"-".join(words)
"-".join([1])
"".join(d)
"a=b=c".partition("=") ~ "a=b=c".rpartition("=") ~ "abc".partition("=")
"prefix_x".removeprefix("prefix_") ~ "x_suffix".removesuffix("_suffix")
"a".center(5) ~ "|" ~ "ab".center(5, "*") ~ "a".ljust(3) ~ "|" ~ "a".rjust(3, ".")
"42".zfill(5) ~ "-42".zfill(5)
"abc".isalpha() ~ "ab1".isalnum() ~ "12".isdigit() ~ "".isdigit() ~ " ".isspace() ~ "A".isupper() ~ "a1".islower()
"日本".isalpha() ~ "²".isdigit() ~ "²".isdecimal() ~ "½".isnumeric()
s.upper(1)
s.replace("a")
s.split(sep=",")
s.strip(chars="H")
"  x " | trim
"xxaxx" | trim("x")
n | trim
words | join
words | join(", ")
rows | join(", ", attribute="name")
nums | join("-")
undefined_name | join
n | join
nums | first
nums | last
empty | first
empty | first is defined
s | first ~ s | last
d | first
d | last
nums | length ~ s | length ~ d | count
undefined_name | length
n | length
nothing | length
nums | sort
nums | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
rows | sort(attribute="age") | map(attribute="name") | list
rows | sort(attribute="age,name", reverse=true) | map(attribute="name") | join
mixed | sort
nums | reverse | list
s | reverse
d | reverse | list
nums | reverse | first
nums | min ~ nums | max ~ words | min ~ empty | max
rows | max(attribute="age")
nums | sum
rows | sum(attribute="age")
nums | sum(start=10)
words | sum
[0.1, 0.2, 0.3] | sum
[1, 1.0, "A", "a", 2] | unique | list
rows | map(attribute="name") | list
rows | map(attribute="tags.0") | list
rows | map(attribute="nope", default="?") | join
rows | map("length") | list
words | map("upper") | join
words | map("replace", "a", "x") | join
words | map("nope") | list
rows | selectattr("ok") | list | length
rows | selectattr("ok", "defined") | map(attribute="name") | list
rows | selectattr("age", "gt", 1) | map(attribute="name") | list
rows | selectattr("name", "equalto", "y") | list
rows | selectattr("name", "in", ["x", "Z"]) | list | length
rows | rejectattr("age", "eq", 1) | map(attribute="name") | join(",")
rows | selectattr("name", "==", "x") | first
rows | selectattr("name") | length
nums | select("odd") | list
nums | reject("odd") | list
mixed | select | list | length
mixed | select("string") | list
nums | select("nope") | list
undefined_name | selectattr("x") | list
n | select | list
(rows | selectattr("name", "eq", "none")) is true
"yes" if rows | selectattr("name", "eq", "none") else "no"
d | items | list
undefined_name | items | list
nums | items | list
d | dictsort
d | dictsort(true)
d | dictsort(by="value", reverse=true)
nums | dictsort
nums | batch(2) | list
nums | batch(2, "x") | list
range(7) | slice(3) | list
range(7) | slice(3, "f") | list
undefined_name | default("x")
blank | default("x")
blank | default("x", true)
nothing | default("x")
nothing | d("x", boolean=true)
d.missing | default
undefined_name.x | default("y")
"42" | int ~ "x" | int ~ "4.7" | int ~ " 5 " | int ~ nothing | int ~ 3.99 | int ~ -3.99 | int ~ true | int
"x" | int(9)
"ff" | int(0, 16)
"0x1f" | int(base=16)
"0b11" | int(0, 2)
"1e3" | int
"1_0" | int
undefined_name | int
[1] | int
"99999999999999999999" | int
"4.5" | float ~ "x" | float ~ 3 | float ~ "inf" | float ~ "-1e-7" | float
"x" | float(1.5)
nothing | float
n | string ~ f | string
-5 | abs
(-5) | abs ~ (-2.5) | abs
"a" | abs
2.567 | round(2) ~ 2.5 | round ~ 3.5 | round ~ 7 | round ~ 2.1 | round(0, "ceil") ~ 2.9 | round(0, "floor")
2.675 | round(2)
7 | round(1, "floor")
1 | round(0, "x")
s | lower ~ s | upper ~ "hELLO wORLD" | capitalize
s | replace("o", "0") ~ s | replace("o", "0", 1)
n | replace(7, 8)
"a\\nb\\n\\nc" | indent
"a\\nb\\n\\nc" | indent(2, true)
"a\\nb\\n\\nc" | indent(2, blank=true)
"a\\nb" | indent("> ")
n | indent
"foo bar baz qux" | truncate(9)
"foo bar baz qux" | truncate(9, true)
"foo bar baz qux" | truncate(11)
"foo bar baz qux" | truncate(9, false, "", 0)
"one two_x  three-four" | wordcount
"a" | center(5)
"%s and %d" | format("a", 2)
"%(x)s" | format(x=1)
html | e
html | escape | escape
(html | safe) + "<b>"
"<b>" + (html | safe)
html | safe ~ "<b>"
html | safe
nums | attr("count") is callable
rows[0] | attr("name") is defined
mixed | tojson
d | tojson
d | tojson(sort_keys=true)
nest | tojson(indent=2)
nest | tojson(indent=0)
nest | tojson(indent="--")
[[], {}, [[]], {"a": {}}] | tojson(indent=1)
u | tojson
u | tojson(ensure_ascii=true)
u | tojson(true)
quotes | tojson
"\\x00\\x1f\\x7f\\u2028</script>" | tojson
[1.0, 1e20, 1e-7, 0.1] | tojson
{1: 1, 2.5: 2, none: 3, true: 4} | tojson
{(1, 2): 3} | tojson
(1, 2) | tojson
range(3) | tojson
undefined_name | tojson
d | tojson(separators=(",", ":"))
d.items() | list | tojson
n | unknown_filter
"x" if t else n | unknown_filter
n | map | list
rows | map(attribute="name", other=1) | list
[1, 2] | list | tojson
"ab" | list
dict(a=1, b=2)
dict([("a", 1), ("b", 2)], c=3)
dict(d, z=1)
dict(1)
namespace(a=1).a
namespace(a=1)
namespace(a=1)["a"]
namespace(a=1).b is defined
namespace(_a=1)
namespace(d).b
raise_exception("no system role")
raise_exception()
strftime_now("%Y-%m-%d %H:%M:%S %A %j %b %B %d %y %p %%")
strftime_now("%-d %e")
true ~ True ~ false ~ none ~ None
n.x is defined
(n)
((((n))))
n.
n +
(n
n)
[n
{"a" 1}
n n
"unclosed
n | 
n is
n is is
n ! 2
n @ 2
not
s[
s[1:2:3:4]
d.items(
f(a=1, 2)
f(**d, a=1)
dict(**d)
dict(*[[("q", 1)]])
"{}-{}".format(*nums)
"a" is string and "b" is string
x.y if x is defined else "none"
n == 7 if t
not n == 7
n is not string
not n is string
-n | abs
-s
+n
+t
- - n
--n
n if t else
loop
loop is defined
self is defined
caller is defined
varargs is defined
""".strip("\n").split("\n")

STATEMENTS = [
    "a\n", "a\n\n", "a\r\nb\rc\n", "", "\n", " {% if t %} x {% endif %} y",
    "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a\n  {%+ if t %}\n  b\n  {%+ endif %}\nc",
    "a \n {%- if t -%} \n b \n {%- endif -%} \n c", "a {{- n -}} b", "a {{ n }} \n b", "  {{ n }}\n  {{ n }}\n",
    "a{# comment #}b", "a\n  {# comment #}\nb", "a {#- c -#} b", "a\n {#+ c +#}\nb", "a {# unclosed", "a{##}b", "{#-#}x",
    "{% raw %}{{ n }}{% x %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\n x\n {% endraw %}\ny",
    "{% raw %}x", "{% if t %}a{% else %}b{% endif %}", "{% if no %}a{% elif n %}b{% else %}c{% endif %}", "{% if no %}a{% endif %}",
    "{% if t %}a", "{% endif %}", "{% if %}{% endif %}", "{% else %}", "{% if t %}{% endfor %}", "{% nope %}", "{% %}", "{{ }}",
    "{{ n", "{% if t", "}} %} #}", "{ {", "{", "{{ '}}' }}", "{{ '{% x %}' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': 1}['a'] }}",
    "{% for x in nums %}{{ x }},{% endfor %}", "{% for x in empty %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in nums if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in nums if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}|{% endfor %}",
    "{% for x in nums %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in nums %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in nums %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in nums %}{{ loop['index'] }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d %}{{ k }}{% endfor %}", "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for c in u %}{{ c }}|{% endfor %}", "{% for x in undefined_name %}x{% else %}e{% endfor %}", "{% for x in nothing %}x{% endfor %}",
    "{% for x in n %}x{% endfor %}", "{% for x in range(3) %}{% for y in range(x) %}{{ loop.index }}{% endfor %};{% endfor %}",
    "{% for x in nums %}{% set outer = loop %}{% for y in nums %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% break %}{% else %}e{% endfor %}", "{% for x in nums %}{% continue %}{% else %}e{% endfor %}",
    "{% break %}", "{% for x in nums %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% continue %}",
    "{% for x in nums %}{% for y in nums %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% filter upper %}a{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endfilter %}{% endfor %}",
    "{% for x in rows | selectattr('age', 'gt', 1) %}{{ x.name }}{{ loop.last }}{% endfor %}",
    "{% for x in rows | map(attribute='name') %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for loop in nums %}{% endfor %}", "{% for x in nums %}{% set loop = 1 %}{% endfor %}", "{% for x.y in nums %}{% endfor %}",
    "{% for x in nums %}{{ x }}{% endfor %}{{ x is defined }}", "{% set x = 1 %}{% for x in nums %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 0 %}{% for y in nums %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for y in nums %}{% set ns.x = ns.x + y %}{{ ns.x }} {% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b is defined }}", "{% set d.a = 1 %}", "{% set nope.a = 1 %}",
    "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set ns = namespace() %}{% set ns['a'] = 1 %}",
    "{% set ns = namespace(a=1) %}{% set ns.b, ns.c = 2, 3 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a = 1, %}{{ a }}", "{% set (a, b) = 'xy' %}{{ a }}{{ b }}",
    "{% set x %}a{{ n }}{% endset %}[{{ x }}]", "{% set x | upper %}a{{ n }}{% endset %}{{ x }}",
    "{% set x | replace('a', 'b') | upper %}aa{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}",
    "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set x %}", "{% set x = %}", "{% set x.y.z = 1 %}", "{% set x + 1 = 2 %}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}", "{% if no %}{% set n = 1 %}{% endif %}{{ n }}", "{% set n = n + 1 %}{{ n }}",
    "{% for x in nums %}{% if loop.first %}{% set seen = x %}{% endif %}{{ seen }}{% endfor %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% filter nope %}{% endfilter %}",
    "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }}", "{% print n, s %}", "{% print %}",
    "{% macro m(a, b=2, *c) %}{% endmacro %}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}",
    "{% macro m(a) %}[{{ a }}{{ a is defined }}]{% endmacro %}{{ m() }}{{ m(1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}", "{% macro m() %}{{ n }}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% for y in nums %}{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro f(k) %}{{ f(k + 1) }}{% endmacro %}{{ f(0) }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %} x {% endmacro %}{{ m() | trim | upper }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ n }}{% endcall %}",
    "{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m(caller) %}{{ caller() }}{% endmacro %}", "{% call n %}{% endcall %}",
    "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}", "{{ m }}{% macro m() %}{% endmacro %}", "{% macro m() %}{% endmacro %}{{ m }}",
    "{% macro m(%}{% endmacro %}", "{% macro 1() %}{% endmacro %}", "{% macro m() %}", "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "a\n {% generation %}\n x\n {% endgeneration %}\nb",
    "{% for x in nums %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}", "{% generation %}x",
    "{% for x in nums %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% set j = joiner('-') %}{% for x in nums %}{{ j() }}{{ x }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    "{% set c = cycler(1, 2, 3) %}{{ c.next() }}{{ c.reset() }}{{ c.next() }}", "{% set it = nums | select('odd') %}{{ it | list }}{{ it | list }}",
    "{% set it = nums | map('string') %}{{ it | first }}{% for x in it %}{{ x }}{% endfor %}", "{% set x = nums | map('nope') %}ok",
    "{% set x = 5 | items %}ok", "{% if no %}{{ n | nope }}{% endif %}ok", "{% if t %}{{ n | nope }}{% endif %}ok", "{{ n | nope if no else 'ok' }}",
    "{% if no %}{% for x in nums %}{{ x | nope }}{% endfor %}{% endif %}ok", "{% if no %}{{ n is nope }}{% endif %}ok", "{% for x in nums: %}{{ x }}{% endfor %}",
    "{% if t: %}a{% endif %}", "{% if t -%}\n a {%- endif %}\n\nb", "{%if t%}a{%endif%}", "{%-if t-%} a {%-endif-%} b", "{{n}}{{-n}}{{+n}}",
    "{% set ns = namespace(l=[]) %}{% for x in nums %}{% set ns.l = ns.l + [x] %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(p=none) %}{% for m in rows if ns.p is none %}{% set ns.p = m.name %}{{ m.name }}{% endfor %}",
    "{% set x = [] %}{% set y = x %}{{ x is sameas y }}{{ [] is sameas [] }}", "{% set loop = 5 %}{{ loop }}", "{% set a = b = 1 %}",
    "{{ range }}"[:0] + "{{ [range(3), (1,), {'a': (2, 3)}] }}", "{% set s2 = s %}{% set s = 'x' %}{{ s2 }}{{ s }}", "{% if nums %}y{% endif %}{% if empty %}y{% endif %}{% if ed %}y{% endif %}",
    "{% for m in rows[::-1] %}{{ m.name }}{{ loop.index0 }}{% endfor %}", "{% for m in rows[1:] %}{{ m.name }}{% endfor %}", "{% for i in range(nums | length - 1, -1, -1) %}{{ nums[i] }}{% endfor %}",
    "x{% set q = 1 %}\n\n{% set q = 2 %}\n y", "{% if t %}\n{% if t %}\n  z\n{% endif %}\n{% endif %}\n", "\t{% if t %}\tq{% endif %}", "{{ '\n' }}|{{ \"a\nb\" }}",
    "{% for x in nums recursive %}{{ x }}{% endfor %}"[:0] + "{{ nums }}{{ d }}{{ rows[2] }}", "{% for x in nums if loop.first %}{% endfor %}",
    "{{ n }}\n{{ n }}\n\n", "line1\n{{ nope.x }}", "{% set x = {'a': 1} %}{% for k, v in x | dictsort %}{{ k }}{{ v }}{% endfor %}", "{{ d.items() | list | length }}{{ d.keys() }}{{ d.values() }}",
]
