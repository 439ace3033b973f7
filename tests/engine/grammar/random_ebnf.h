#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_EBNF_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_EBNF_H_

#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace refrain::testing {

// A grammar of a few rules at random, kept as a tree: how it is written in EBNF, with space and
// comments where they may be, and which texts it has, found by trying everything. Shares nothing
// with what reads grammars. Rule 0 is `root`.
class RandomEbnf {
 public:
  explicit RandomEbnf(std::mt19937* random);

  std::string Written();
  // Whether it has this text, whatever calls itself where.
  bool Takes(const std::string& text) const;
  // Whether some rule may come back to itself before a byte was read, but for such as begin with
  // themselves, in plain sight.
  bool HasHiddenLeftRecursion() const;
  // Whether one does so in plain sight.
  bool HasPlainLeftRecursion() const;

 private:
  enum class Kind { kText, kClass, kCall, kSequence, kAlternatives, kRepetition };
  struct Part {
    Kind kind;
    std::vector<std::string> texts;  // of a class its characters, of a text itself
    bool is_negated = false;
    size_t rule = 0;
    std::vector<Part> parts;
    int min = 0;
    std::optional<int> max;
  };
  // [rule][begin]: where texts of the rule may end that begin there.
  using Ends = std::vector<std::vector<std::set<size_t>>>;
  // What a rule calls first.
  struct FirstCalls {
    size_t rule;              // the caller
    std::set<size_t> called;  // but for itself in plain sight
    bool itself = false;      // in plain sight
  };

  int Below(int n) { return static_cast<int>((*random_)() % static_cast<unsigned>(n)); }
  Part RandomPart(int depth);
  Part RandomAlternatives(int depth);
  Part RandomSequence(int depth);
  Part RandomRepetition(int depth);

  std::string Space(bool may_end_line);
  std::string WrittenPart(const Part& part, bool is_inside);
  std::string WrittenText(const std::string& text);
  static std::string WrittenQuantifier(const Part& part);

  std::set<size_t> EndsOf(const Part& part, size_t begin, const std::string& text,
                          const Ends& ends) const;
  bool MayBeEmpty(const Part& part) const;
  // `is_plain`: nothing at all stands before it, and no loop is around it.
  void NoteFirst(const Part& part, bool is_plain, FirstCalls* first) const;

  std::mt19937* random_;
  std::vector<Part> rules_;
  std::vector<bool> may_be_empty_;  // [rules]
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_EBNF_H_
