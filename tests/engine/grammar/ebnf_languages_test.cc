// Grammars as people write them, and such as are made to take long.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/engine/grammar/ebnf_grammar.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/random_text.h"
#include "tests/support/cpu_time.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::MakeEbnfGrammar;

struct Language {
  const char* grammar;
  std::vector<std::string> texts, others;
};

const std::vector<Language>& Languages() {
  static const auto* const languages = new std::vector<Language>{
      // JSON: line ends in parentheses, space that calls itself, escapes of escapes.
      {R"ebnf(root ::= object
value ::= object | list | text | number | ("true" | "false" | "null") space

object ::=
  "{" space (
    text ":" space value
    ("," space text ":" space value)*
  )? "}" space
list ::= "[" space ( value ("," space value)* )? "]" space

text ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})  # escapes
  )* "\"" space
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? space
space ::= ([ \t\n] space)?
)ebnf",
       {"{}", R"({"a": [1, -2.5e+3, "\u00e9\"é"], "b": {"c": null}} )", "{ \"a\"\n:\ttrue}"},
       {"", "{", R"({"a"})", R"({"a": 01})", R"({"a": "\x"})", "[]", R"({"a": 1,})"}},
      // Equations: a loop of alternatives, names with digits.
      {R"ebnf(root  ::= (sum "=" s term "\n")+
sum   ::= term ([-+*/] term)*
term  ::= name | num | "(" s sum ")" s
name  ::= [a-z] [a-z0-9_]* s
num   ::= [0-9]+ s
s     ::= [ \t\n]*
)ebnf",
       {"1+2=3\n", "x *(y -2) = z_1\na=b\n"},
       {"1+2=3", "1+=3\n", "(1=2\n", "X=1\n"}},
      // Moves of chess: optional parts before what they could be themselves.
      {R"ebnf(# numbered, from "1. "
root ::= (
    # the first
    "1. " move " " move "\n"
    # others
    ([1-9] [0-9]? ". " move " " move "\n")*
)
move    ::= (pawn | piece | castle) [+#]?
piece   ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
)ebnf",
       {"1. e4 e5\n", "1. e4 e5\n2. Nf3 Nc6\n10. exd8=Q+ O-O-O#\n", "1. Nbd7 R1a3\n"},
       {"1. e4\n", "2. e4 e5\n", "1. e9 e5\n", "1. O-O-O-O e5\n"}},
      // A list of lines: a negated class of escapes of each size.
      {R"ebnf(root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n")ebnf",
       {"- a\n", "- a b\n- \xC3\xA9\n"},
       {"", "- \n", "- a", "- a\u2028b\n", "- a\xC2\x85\n"}},
      // A programming language: alternatives on lines of their own, names without space before (.
      {R"ebnf(root ::= (declaration)*
declaration ::= type name "(" parameter? ")" "{" statement* "}"
type ::= "int" s | "char" s
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type name
statement ::=
    ( type name s "=" s expression ";" ) |
    ( name s "=" s expression ";" ) |
    ( "return" s expression ";" ) |
    ( "while" "(" condition ")" "{" statement* "}" ) |
    ( "if" "(" condition ")" "{" statement* "}" ("else" "{" statement* "}")? ) |
    ( line-comment ) | ( comment )
condition ::= expression ("<=" | "<" | "==") expression
expression ::= product ((s "+" s | s "-" s) product)*
product ::= factor(("*" | "/") factor)*
factor ::= name | number | "-" factor | "(" expression ")" | name "(" (expression ("," s expression)*)? ")"
number ::= [0-9]+
line-comment ::= "//" [^\n]* "\n"
comment ::= "/*" ( [^*] | ("*" [^/]) )* "*/"
s ::= ([ \t\n]+))ebnf",
       {"", "int main(){return 1;}", "int f(char c){int x = (c + 1)*2;while(x<9){x = g(x, 1);}}",
        "int f(){// it\n/* is */return -a;}"},
       {"int main(){return 1}", "int f(){if(x){}}", "float f(){}"}},
      // As converters write grammars of JSON Schemas.
      {R"ebnf(char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
item ::= "{" space item-name-kv "," space item-age-kv "}" space
item-age ::= ([0-9] | ([1-8] [0-9] | [9] [0-9]) | "1" ([0-4] [0-9] | [5] "0")) space
item-age-kv ::= "\"age\"" space ":" space item-age
item-name ::= "\"" char{1,100} "\"" space
item-name-kv ::= "\"name\"" space ":" space item-name
root ::= "[" space item ("," space item){1,2} "]" space
space ::= | " " | "\n" [ \t]{0,20}
)ebnf",
       {R"([{"name":"a","age":7},{"name": "b", "age": 150}])"},
       {R"([{"name":"a","age":7}])", R"([{"name":"","age":7},{"name":"b","age":1}])",
        R"([{"name":"a","age":7},{"name":"b","age":151}])"}},
  };
  return *languages;
}

TEST(EbnfLanguagesTest, AreTakenAsTheyAreWritten) {
  for (const Language& language : Languages()) {
    const absl::StatusOr<Grammar> grammar = MakeEbnfGrammar(language.grammar);
    ASSERT_TRUE(grammar.ok()) << language.grammar << "\n" << grammar.status();
    for (const std::string& text : language.texts) {
      EXPECT_TRUE(Accepts(*grammar, text)) << language.grammar << "\n" << text;
    }
    for (const std::string& text : language.others) {
      EXPECT_FALSE(Accepts(*grammar, text)) << language.grammar << "\n" << text;
    }
    refrain::testing::RandomTexts walks(&*grammar, 3);
    for (int i = 0; i < 20; ++i) {
      const std::string text = walks.Next(40);
      EXPECT_TRUE(Accepts(*grammar, text)) << language.grammar << "\n" << text;
    }
  }
}

std::string Repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// A list of rules; @ stands for the number of each, and ~ for the next one's.
std::string Rules(int count, std::string_view rule) {
  std::string all;
  for (int i = 0; i < count; ++i) {
    for (const char c : rule) {
      all += c == '@' ? std::to_string(i) : c == '~' ? std::to_string(i + 1) : std::string(1, c);
    }
    all += "\n";
  }
  return all;
}

// A grammar or a refusal, and neither takes long.
TEST(EbnfLanguagesTest, NoGrammarTakesLong) {
  std::string counted = "\"a\"", calls = "\"a\"", loops = "\"a\"";
  for (int i = 0; i < 60; ++i) counted = "(" + counted + " \"b\"){16}";
  for (int i = 0; i < 60; ++i) calls = "(" + calls + " | \"b\"){1,10000}";
  for (int i = 0; i < 120; ++i) loops = "(" + loops + "+ \"b\"?)+";
  const std::string grammars[] = {
      "root ::= " + counted,
      "root ::= " + calls,
      "root ::= " + loops,
      "root ::= " + Repeated("[a]?", 30000),
      "root ::= " + Repeated("(\"a\"*)*", 10000),
      "root ::= " + Repeated("[^a]", 30000),
      "root ::= " + Repeated("root", 1) + " " + Repeated("root ", 20000) + "| \"a\"",
      "root ::= \"a\" .{1000} \"b\"",
      "root ::= [ab]* \"a\" [ab]{30}",
      "root ::= (.* \"a\" .{20}){2}",
      "root ::= (.{0,10000}){0,10000}",
      "root ::= \"x\"" + Repeated("|\"ab\"", 20000),
      "root ::= [" + Repeated("\\x01\\U0010FFFE\xC3\xA9-\xC3\xBF", 4000) + "]{9000}",
      // Rules: many, in chains, in circles, mentioned and not there.
      "root ::= r0\n" + Rules(8000, "r@ ::= r~") + "r8000 ::= \"a\"",
      "root ::= r0\n" + Rules(8000, "r@ ::= r~") + "r8000 ::= r0",
      "root ::= r0\n" + Rules(5000, "r@ ::= r~ r~ | r~") + "r5000 ::= \"a\"?",
      "root ::= r0\n" + Rules(5000, "r@ ::= r~ r0 | \"a\"") + "r5000 ::= \"a\"?",
      "root ::= r0\n" + Rules(5000, "r@ ::= r@ r~ | \"a\" r0"),
      "root ::= " + Rules(20000, "r@"),
      Rules(9000, "r ::= \"a\""),
      // Space, lines and comments; a name before each of them might be a new rule's.
      "root ::= " + Repeated(" ", 120000),
      "root ::= " + Repeated("root\n\n\n\n", 15000),
      "root ::= " + Repeated("root #\n", 15000),
      "root ::= " + std::string(120000, 'a'),
      std::string(120000, '\n') + "root",
      "root ::= " + Repeated("(", 128) + Repeated("root ", 20000),
  };
  for (const std::string& grammar : grammars) {
    const auto begin = refrain::testing::ThreadCpuTime();
    const absl::Status status = MakeEbnfGrammar(grammar).status();
    const auto time = refrain::testing::ThreadCpuTime() - begin;
    EXPECT_LT(time, std::chrono::milliseconds(1500) * refrain::testing::kSlowBuildFactor)
        << grammar.substr(0, 60) << "\n"
        << status;
    EXPECT_LT(status.message().size(), 400u) << status;
  }
}

}  // namespace
}  // namespace refrain::engine
