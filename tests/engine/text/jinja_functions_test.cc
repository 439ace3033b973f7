// What the golden cases of the Jinja engine do not reach: every expected value is that of
// jinja2 3.1.6.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/json.h"
#include "engine/text/jinja/template.h"

namespace refrain::engine::jinja {
namespace {

constexpr char kFails[] = "does not render";

// Values of the templates below.
constexpr char kVariables[] =
    R"({"big": 18446744073709551615, "half": 9223372036854775808, "cr": "a\r", "crs": ["a\rb", "\r", "a\r\n", "a\r\r", "a\n\r", "a\u000b", ""], "g": "\u0391\u03a3 \u03a3 \u03a3\u0391 \u0391\u03a3. \u03a3\u0391\u03a3 \u0391\u0301\u03a3\u0301 \u0391.\u03a3 \u0391.\u03a3\u0391", "t": "\u01c6a \u00dfa \u0149a \ufb01a \u038c\u03a3-\u039f\u03a3 \u10d0", "c": ["\u00df", "\u0149a", "\u01c6", "\u038c\u03a3", "\u03a3", "a\u03a3.", "\u038c\u03a3-\u039f\u03a3", "\u01c5", "\u0130\u03a3"], "s": "a\u00f1\u65e5\ud834\udd1ez", "m": {"a": 1.5}})";

using Cases = std::vector<std::pair<std::string, std::string>>;  // template, text

void ExpectAsJinja2(const Cases& cases) {
  for (const auto& [source, expected] : cases) {
    std::string text = kFails;
    if (const auto parsed = Template::Parse(source); parsed.ok()) {
      const auto rendered = (*parsed)->Render(*ParseJsonValue(kVariables), {});
      if (rendered.ok()) text = rendered->bytes();
    }
    EXPECT_EQ(text, expected) << source;
  }
}

TEST(JinjaFunctionsTest, NumbersHaveBasesAsPythons) {
  ExpectAsJinja2({
      {"{{ 0x1f }} {{ 0X1_F }} {{ 0b1_01 }} {{ 0o17 }} {{ 0x_a }} {{ 0xfF + 1 }}",
       "31 31 5 15 10 256"},
      {"{{ [0x10, 1][0b1] }}", "1"},
      {"{{ 0x }}", kFails},
      {"{{ 0b2 }}", kFails},
      {"{{ 0xG }}", kFails},
      {"{{ 0x1@ }}", kFails},
      {"{{ 0x1` }}", kFails},
      {"{{ 0x1__2 }}", kFails},
      {"{{ 0x7fffffffffffffff }}", "9223372036854775807"},
  });
}

TEST(JinjaFunctionsTest, IntegersBeyond63BitsKeepTheirDigits) {
  ExpectAsJinja2({
      {"{{ big }} {{ big|tojson }} {{ [big, half] }} {{ {'a': big}|tojson }} {{ big|string }} {{ "
       "big|int }} {{ big|abs }}",
       "18446744073709551615 18446744073709551615 [18446744073709551615, 9223372036854775808] "
       "{\"a\": 18446744073709551615} 18446744073709551615 18446744073709551615 "
       "18446744073709551615"},
      {"{{ big is integer }} {{ big is float }} {{ big is number }} {{ big > 5 }} {{ big == big }} "
       "{{ half < big }}",
       "True False True True True True"},
  });
}

TEST(JinjaFunctionsTest, FormatsBatchesTruncatesAndFills) {
  ExpectAsJinja2({
      {"{{ '%s-%s|%%'|format('a', 3) }} {{ '%(a)s'|format(a=3) }} {{ '%d %i %d'|format(3, 2.9, "
       "true) }} {{ '%s'|format([1, 'a']) }}",
       "a-3|% 3 3 2 1 [1, 'a']"},
      {"{{ '%s'|format }}", kFails},
      {"{{ '%s %s'|format(1) }}", kFails},
      {"{{ '%s'|format(1, 2) }}", kFails},
      {"{{ '%d'|format('a') }}", kFails},
      {"{{ '%s'|format(1, a=2) }}", kFails},
      {"{{ 'a'|format }}", "a"},
      {"{{ '{}-{}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}{}'.format(2, "
       "x=none) }} {{ '{{}}'.format() }} {{ '{}'.format(1.0) }}",
       "1-a aba None2 {} 1.0"},
      {"{{ '{}'.format() }}", kFails},
      {"{{ '{1}'.format(1) }}", kFails},
      {"{{ '{}{0}'.format(1) }}", kFails},
      {"{{ '{x}'.format(1) }}", kFails},
      {"{{ '}'.format(1) }}", kFails},
      {"{{ '{'.format(1) }}", kFails},
      {"{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ [1, "
       "2]|batch(0)|list }} {{ [1, 2]|batch(-1)|list }} {{ []|batch(2)|list }} {{ "
       "'abc'|batch(2)|list }}",
       "[[1, 2], [3, 4], [5]] [[1, 2], [3, 'x']] [[], [1, 2]] [[1, 2]] [] [['a', 'b'], ['c']]"},
      // Many small lists cost more than their items.
      {"{% set n = namespace(x=[]) %}{% for i in range(6) %}{% set n.x = n.x + "
       "[range(1000000)|batch(1)]"
       " %}{% endfor %}",
       kFails},
      {"{{ nosuch|truncate(5) }}", ""},
      {"{{ 'foo bar baz qux'|truncate(9) }}|{{ 'foo bar baz qux'|truncate(9, True) }}|{{ 'foo bar "
       "baz qux'|truncate(11) }}|{{ 'foo bar baz qux'|truncate(11, False, '...', 0) }}|{{ "
       "'foobarbazqux'|truncate(5, end='', leeway=0) }}|{{ s|truncate(3, true, '', 0) }}",
       "foo...|foo ba...|foo bar baz qux|foo bar...|fooba|a\u00f1\u65e5"},
      {"{{ 'abc'|truncate(2) }}", kFails},
      {"{{ 'abc'|truncate(5, leeway=-1) }}", kFails},
      {"{{ 'abcdefghijklm'|truncate(3) }}", "..."},
      {"{{ 'x'.zfill(3) }}{{ '-5'.zfill(4) }}{{ '+'.zfill(3) }}{{ ''.zfill(2) }}{{ 'abc'.zfill(2) "
       "}}{{ '\u00e9'.zfill(3) }}{{ 'a'.zfill(-1) }}",
       "00x-005+0000abc00\u00e9a"},
  });
}

TEST(JinjaFunctionsTest, LoopsKnowWhatChanged) {
  ExpectAsJinja2({
      {"{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }}{% endfor %}", "TrueFalseTrueFalseTrue"},
      {"{% for i in [1, 1] %}{{ loop.changed() }}{{ loop.changed(i, 2) }}{{ loop.changed(i, 2) "
       "}}{% endfor %}",
       "TrueTrueFalseTrueTrueFalse"},
      {"{% for i in [1, 2] %}{% for j in [1, 1] %}{{ loop.changed(j) }}{% endfor %}{% endfor %}",
       "TrueFalseTrueFalse"},
  });
}

TEST(JinjaFunctionsTest, CaseIsThatOfPythonsStrings) {
  ExpectAsJinja2({
      {"{{ g|lower }}",
       "\u03b1\u03c2 \u03c3 \u03c3\u03b1 \u03b1\u03c2. \u03c3\u03b1\u03c2 \u03b1\u0301\u03c2\u0301 "
       "\u03b1.\u03c2 \u03b1.\u03c3\u03b1"},
      {"{{ g.title() }}",
       "\u0391\u03c2 \u03a3 \u03a3\u03b1 \u0391\u03c2. \u03a3\u03b1\u03c2 \u0391\u0301\u03a3\u0301 "
       "\u0391.\u03a3 \u0391.\u03a3\u03b1"},
      {"{{ g|title }}",
       "\u0391\u03c3 \u03a3 \u03a3\u03b1 \u0391\u03c3. \u03a3\u03b1\u03c2 \u0391\u0301\u03c3\u0301 "
       "\u0391.\u03c3 \u0391.\u03c3\u03b1"},
      {"{{ t.title() }}", "\u01c5a Ssa \u02bcNa Fia \u038c\u03c2-\u039f\u03c2 \u10d0"},
      {"{{ t|title }}", "\u01c4a SSa \u02bcNa FIa \u038c\u03c3-\u039f\u03c3 \u1c90"},
      {"{{ t|capitalize }}", "\u01c5a \u00dfa \u0149a \ufb01a \u03cc\u03c2-\u03bf\u03c2 \u10d0"},
      {"{% for x in c %}{{ x.capitalize() }} {{ x.title() }} {{ x|title }} {{ x.lower() }} {{ "
       "x.upper() }}|{% endfor %}",
       "Ss Ss SS \u00df SS|\u02bcNa \u02bcNa \u02bcNa \u0149a \u02bcNA|\u01c5 \u01c5 \u01c4 \u01c6 "
       "\u01c4|\u038c\u03c2 \u038c\u03c2 \u038c\u03c3 \u03cc\u03c2 \u038c\u03a3|\u03a3 \u03a3 "
       "\u03a3 \u03c3 \u03a3|A\u03c2. A\u03c2. A\u03c3. a\u03c2. "
       "A\u03a3.|\u038c\u03c2-\u03bf\u03c2 \u038c\u03c2-\u039f\u03c2 \u038c\u03c3-\u039f\u03c3 "
       "\u03cc\u03c2-\u03bf\u03c2 \u038c\u03a3-\u039f\u03a3|\u01c5 \u01c5 \u01c4 \u01c6 "
       "\u01c4|\u0130\u03c2 \u0130\u03c2 \u0130\u03c3 i\u0307\u03c2 \u0130\u03a3|"},
  });
}

TEST(JinjaFunctionsTest, IndentTakesLineEndsAsPythonDoes) {
  ExpectAsJinja2({
      {"{{ cr|indent|tojson }}{{ cr|indent(2, true)|tojson }}{{ cr|indent(blank=true)|tojson }}",
       "\"a\"\"  a\"\"a\""},
      {"{% for x in crs %}{{ x|indent(2)|tojson }}{{ x|indent(1, true, true)|tojson }}{% endfor %}",
       "\"a\\n  b\"\" a\\n b\"\"\"\" \"\"a\\n\"\" a\\n \"\"a\\n\"\" a\\n \"\"a\\n\"\" a\\n "
       "\"\"a\\n\"\" a\\n \"\"\"\" \""},
  });
}

TEST(JinjaFunctionsTest, CharactersOfStringsAreFoundFromBothEnds) {
  ExpectAsJinja2({
      {"{{ s[0] }}{{ s[1] }}{{ s[3] }}{{ s[4] }}{{ s[-1] }}{{ s[-5] }}|{{ s[5] }}|{{ s[-6] }}|{{ "
       "''[0] is defined }}",
       "a\u00f1\U0001d11ezza|||False"},
  });
}

std::string ErrorOf(const std::string& source) {
  const auto parsed = Template::Parse(source);
  const auto status =
      parsed.ok() ? (*parsed)->Render(*ParseJsonValue("{}"), {}).status() : parsed.status();
  return std::string(status.message());
}

// Each name is the filter that the one before applies.
TEST(JinjaFunctionsTest, FiltersOfFiltersEndInAnError) {
  std::string source = "{{ 'a'|map('map'";
  for (int i = 0; i < 20000; ++i) source += ", 'map'";
  const std::string message = ErrorOf(source + ")|list }}");
  EXPECT_NE(message.find("recurses deeper than the limit of 600"), std::string::npos) << message;
}

TEST(JinjaFunctionsTest, ChargesWhatFiltersPassOnForEachItem) {
  std::string source = "{{ ([''] * 9999)|map('map', 'default'";
  for (int i = 0; i < 20000; ++i) source += ", 1";
  const std::string message = ErrorOf(source + ")|list|length }}");
  EXPECT_NE(message.find("moves more bytes"), std::string::npos) << message;
}

// What stands in for an attribute is one level deeper in the list.
TEST(JinjaFunctionsTest, DefaultsOfAttributesNestNoDeeperThanOtherValues) {
  const std::string message = ErrorOf(
      "{% set n = namespace(v=[]) %}{% for i in range(99999) %}"
      "{% set n.v = [1]|map(attribute='x', default=n.v)|list %}{% endfor %}{{ n.v }}");
  EXPECT_NE(message.find("nests values deeper than the limit of 100"), std::string::npos)
      << message;
}

// What `safe` and `escape` give is Markup, also where nothing is escaped by itself.
TEST(JinjaFunctionsTest, WhatIsAddedToSafeTextIsEscaped) {
  ExpectAsJinja2({
      {"{{ 'a'|safe + '<\"' }} {{ '<\"' + 'a<'|safe }} {{ 'a<'|safe + 'b<'|safe }} {{ '<' + ('>' + "
       "'a'|safe) }} {{ 'a'|safe + ('<' ~ '>') }}",
       "a&lt;&#34; &lt;&#34;a< a<b< &lt;&gt;a a&lt;&gt;"},
      {"{{ 'a<'|e + '<' }} {{ '<'|e|escape }} {{ '<'|safe|e }} {{ 5|safe + '<' }} {{ nosuch|safe + "
       "'<' }} {{ ['<']|e }}",
       "a&lt;&lt; &lt; < 5&lt; &lt; [&#39;&lt;&#39;]"},
      {"{{ 'a'|safe ~ '<' }} {{ ('a'|safe ~ '<') + '<' }} {{ 'a'|safe|tojson + '<' }} {{ "
       "['a'|safe]|join('-') + '<' }} {{ '-'.join(['<'|safe]) + '<' }}",
       "a< a<< \"a\"< a< <<"},
      {"{{ ('-'|safe).join(['<', 'b<'|safe, 5, none]) + '<' }} {{ ('a'|safe) * 2 + '<' }} {{ 2 * "
       "('a'|safe) + '<' }} {{ ('a'|safe) * 0 + '<' }}",
       "&lt;-b<-5-None&lt; aa&lt; aa&lt; &lt;"},
      {"{{ 'a'|safe|string + '<' }} {{ ' a<'|safe|trim + '<' }} {{ 'a<'|safe|upper + '<' }} {{ "
       "'A'|safe|lower + '<' }} {{ 'a'|safe|capitalize + '<' }} {{ 'a'|safe|title + '<' }} {{ "
       "'a'|safe|replace('a', '<') + '<' }}",
       "a&lt; a<&lt; A<&lt; a&lt; A&lt; A< <<"},
      {"{{ 'ab'|safe|first + '<' }} {{ 'ab'|safe|last + '<' }} {{ 'ab'|safe|reverse + '<' }} {{ "
       "'ab'|safe|list|first + '<' }} {% for c in 'ab'|safe %}{{ c + '<' }}{% endfor %}",
       "a< b&lt; ba&lt; a< a<b<"},
      {"{{ 'a\\nb'|safe|indent(2, true) + '<' }} {{ 'a\\nb'|safe|indent('<') }} {{ "
       "'aaaaa'|safe|truncate(3, true, '<', 0) + '<' }} {{ 'aa'|safe|truncate(3) + '<' }} {{ "
       "'<<<<<'|truncate(3, true, '<'|safe, 0) + '<' }}",
       "  a\n  b&lt; a\n<b aa&lt;&lt; aa&lt; &lt;&lt;<&lt;"},
      {"{{ '%s'|safe % '<' }} {{ '%s%s%%'|safe % ('<', '<'|safe) + '<' }} {{ '%s' % ('<'|safe) + "
       "'<' }} {{ '%s'|safe|format('<') + '<' }} {{ '%(k)s'|safe % {'k': '<'} }} {{ "
       "'%.2s|%5s'|safe % ('<>', '<') }} {{ '%r'|safe % ['<'] }} {{ '%d'|safe % 5 + '<' }}",
       "&lt; &lt;<%&lt; << &lt;&lt; &lt; &l| &lt; [&#39;&lt;&#39;] 5&lt;"},
      {"{{ ('{}{k}<'|safe).format('<', k='<'|safe) + '<' }} {{ '{}'.format('<'|safe) + '<' }}",
       "&lt;<<&lt; <<"},
      {"{{ ('a<b'|safe)[1] + '<' }} {{ ('a<b'|safe)[1:] + '<' }} {{ ('abc'|safe)[::2] + '<' }} {{ "
       "('a'|safe)[5:] + '<' }}",
       "<&lt; <b&lt; ac&lt; &lt;"},
      {"{{ ('a'|safe).upper() + '<' }} {{ ('a'|safe).title() + '<' }} {{ (' a'|safe).strip() + '<' "
       "}} {{ ('a b'|safe).split()[1] + '<' }} {{ ('a,b'|safe).rsplit(',', 1)[0] + '<' }} {{ "
       "('a'|safe).splitlines()[0] + '<' }} {{ ('ab'|safe).removeprefix('a') + '<' }} {{ "
       "('ab'|safe).removesuffix('c') + '<' }} {{ ('b'|safe).zfill(3) + '<' }}",
       "A&lt; A&lt; a&lt; b&lt; a&lt; a&lt; b&lt; ab&lt; 00b&lt;"},
      {"{{ ('a'|safe).replace('a', '<') + '<' }} {{ ('a'|safe).replace('a', '<'|safe) }} {{ "
       "'a'.replace('a', '<'|safe) + '<' }}",
       "&lt;&lt; < <<"},
      {"{{ ('a'|safe) == 'a' }} {{ 'a'|safe in ['a'] }} {{ ('a'|safe) < 'b' }} {{ {'a': "
       "1}['a'|safe] }} {{ 'a'|safe is string }} {{ [1, 'a'|safe, 'b'] }} {{ {'a'|safe: 'b'|safe} "
       "}} {{ ['a'|safe]|tojson }}",
       "True True True 1 True [1, Markup('a'), 'b'] {Markup('a'): Markup('b')} [\"a\"]"},
      {"{{ (['b'|safe, 'a']|max) + '<' }} {{ ['<']|map('e')|first + '<' }} {{ "
       "nosuch|default('a'|safe) + '<' }} {% set n = namespace(s='') %}{% for m in ['<a>', 'b'] "
       "%}{% set n.s = n.s + m|safe %}{% endfor %}{{ n.s + '<' }}",
       "b&lt; &lt;&lt; a&lt; <a>b&lt;"},
      {"{% set s %}a{% endset %}{{ s + '<' }} {% set s | safe %}a{% endset %}{{ s + '<' }} {% "
       "macro m(a) %}{{ a + '<' }}{% endmacro %}{{ m('a'|safe) + '<' }}",
       "a< a&lt; a&lt;<"},
      {"{{ 'a'|safe + 5 }}", kFails},
      {"{{ 5 + 'a'|safe }}", kFails},
      {"{{ 'a'|safe % 5 }}", kFails},
  });
}

// Not as Python, which has them.
TEST(JinjaFunctionsTest, SaysWhatOfFormatsIsNotSupported) {
  for (const auto& [source, what] : Cases{{"{{ '{:>5}'.format('a') }}", "the field {:>5}"},
                                          {"{{ '{0.x}'.format('a') }}", "the field {0.x}"},
                                          {"{{ '{!r}'.format('a') }}", "the field {!r}"},
                                          {"{{ '%a' % 1 }}", "%a is not supported"},
                                          {"{{ '%#g' % 1 }}", "# together with %g"},
                                          {"{{ '%99999999d' % 1 }}", "width or precision over"},
                                          {"{{ '%d' % 1e30 }}", "64 bits"},
                                          {"{{ 0x8000000000000000 }}", "64 bits"}}) {
    const std::string message = ErrorOf(source);
    EXPECT_NE(message.find(what), std::string::npos) << message;
  }
}

TEST(JinjaFunctionsTest, FormatsKeepWhatIsOfTheRequest) {
  const Value variables = ParseJsonValue(R"({"x": "<x>"})")->MarkedFromRequest();
  for (const char* source : {"{{ 'a{}b'.format(x) }}", "{{ 'a%sb'|format(x) }}",
                             "{{ 'a%3.3sb' % x }}", "{{ 'a%(x)sb' % {'x': x} }}"}) {
    const auto text = (*Template::Parse(source))->Render(variables, {});
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->bytes(), "a<x>b");
    ASSERT_EQ(text->marks().size(), 1u);
    EXPECT_EQ(text->marks()[0].begin_byte, 1u);
    EXPECT_EQ(text->marks()[0].end_byte, 4u);
  }
}

TEST(JinjaFunctionsTest, ATimeByAFormatOfTheRequestIsOfTheRequest) {
  const Value variables = ParseJsonValue(R"({"x": "<|im_end|>"})")->MarkedFromRequest();
  for (const auto& [source, marks] :
       std::vector<std::pair<std::string, size_t>>{{"{{ strftime_now('<|im_end|>') }}", 0},
                                                   {"{{ strftime_now(x) }}", 1},
                                                   {"{{ strftime_now(format=x) }}", 1},
                                                   {"{{ strftime_now('%Z' + x) }}", 1}}) {
    const auto text = (*Template::Parse(source))->Render(variables, {});
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->bytes(), "<|im_end|>");
    ASSERT_EQ(text->marks().size(), marks) << source;
    if (marks == 0) continue;
    EXPECT_EQ(text->marks()[0].begin_byte, 0u);
    EXPECT_EQ(text->marks()[0].end_byte, 10u);
  }
}

}  // namespace
}  // namespace refrain::engine::jinja
