#ifndef REFRAIN_TESTS_SUPPORT_MUTATE_H_
#define REFRAIN_TESTS_SUPPORT_MUTATE_H_

#include <cstddef>
#include <random>
#include <string>

namespace refrain::testing {

// Changes, cuts out, inserts, repeats or cuts off bytes of `text` in one to three places.
inline void Mutate(std::mt19937* random, std::string* text) {
  const auto below = [random](size_t limit) { return (*random)() % limit; };
  for (size_t i = 1 + below(3); i > 0 && !text->empty(); --i) {
    const size_t at = below(text->size());
    switch (below(5)) {
      case 0:
        (*text)[at] = static_cast<char>((*random)());
        break;
      case 1:
        text->erase(at, 1 + below(8));
        break;
      case 2:
        text->insert(at, 1 + below(4), "{}[]\",:\\\0\xff\r\n0"[below(13)]);
        break;
      case 3:
        text->insert(at, text->substr(below(text->size()), below(20)));
        break;
      default:
        text->resize(at);
        break;
    }
  }
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_MUTATE_H_
