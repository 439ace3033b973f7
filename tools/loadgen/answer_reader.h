#ifndef REFRAIN_TOOLS_LOADGEN_ANSWER_READER_H_
#define REFRAIN_TOOLS_LOADGEN_ANSWER_READER_H_

#include <memory>
#include <optional>
#include <string_view>

#include "tools/loadgen/backend.h"

namespace refrain::loadgen {

// Of such a status (100 Continue, 103 Early Hints) an answer follows; 101 ends HTTP.
constexpr bool IsAheadOfAnswer(int status) { return status / 100 == 1 && status != 101; }

// Reads one HTTP answer, however its bytes arrive: head, framing, events, and passes over what
// comes ahead of it (IsAheadOfAnswer). It knows no socket and no clock. Tokens go to the sink; the
// end is told to the caller, who calls OnEnd. One thread.
class AnswerReader {
 public:
  explicit AnswerReader(AnswerSink* sink);
  ~AnswerReader();

  // Takes bytes that were read at that time; returns how many it is done with. The caller offers
  // the rest again with what follows. Bytes behind the answer's end are not taken.
  size_t Feed(std::string_view bytes, double at_s);
  // The server has closed the connection.
  void FeedEnd(double at_s);

  bool started() const { return started_; }  // a byte was seen
  bool done() const;                         // the answer is whole, or wrong
  bool keep_alive() const;                   // once done: the connection can be used again

  // Once done, or when the connection was lost before.
  AnswerEnd TakeEnd();

 private:
  class Parser;
  AnswerSink* const sink_;
  std::unique_ptr<Parser> parser_;
  bool started_ = false;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_ANSWER_READER_H_
