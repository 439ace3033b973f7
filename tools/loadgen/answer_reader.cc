#include "tools/loadgen/answer_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/loadgen/openai_wire.h"
#include "tools/loadgen/sse_parser.h"

namespace refrain::loadgen {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::string_view;

namespace {

constexpr size_t kMostErrorBytes = 16 << 10;
constexpr uint32_t kMostHeaderBytes = 64 << 10;

std::string_view Std(string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Beast's parser with the body handed on as it comes.
class AnswerReader::Parser final : public http::basic_parser<false> {
 public:
  explicit Parser(AnswerSink* sink) : sink_(sink) {
    eager(true);
    body_limit(boost::none);
    header_limit(kMostHeaderBytes);
  }

  size_t Feed(std::string_view bytes, double at_s) {
    at_s_ = at_s;
    boost::system::error_code error;
    const size_t taken = put(asio::buffer(bytes.data(), bytes.size()), error);
    if (error && error != http::error::need_more)
      BadAnswer(absl::StrCat("HTTP: ", error.message()));
    return taken;
  }

  void FeedEnd(double at_s) {
    at_s_ = at_s;
    if (!got_some()) return;  // put_eof may not be called
    boost::system::error_code error;
    put_eof(error);
    if (error) closed_early_ = true;
  }

  bool finished() const { return wrong_ || is_done(); }
  bool is_ahead() const { return !wrong_ && is_done() && IsAheadOfAnswer(status_); }
  bool reusable() const { return !wrong_ && is_done() && keep_alive(); }

  AnswerEnd TakeEnd() {
    if (!end_.failure.has_value()) end_.failure = FindFailure();
    return std::move(end_);
  }

 private:
  std::optional<Failure> FindFailure() const {
    if (status_ != 0 && status_ != 200) {
      return Failure{absl::StrCat("http_", status_), ErrorMessage(error_body_)};
    }
    if (status_ == 0) return Failure{"connection_lost", "closed before an answer"};
    if (!is_done() || closed_early_) {
      return Failure{"broken_stream", "the connection ended inside the answer"};
    }
    if (!saw_done_) return Failure{"broken_stream", "the answer ended without [DONE]"};
    // An end alone was taken for a token, which usage may deny.
    if (end_.output_tokens == 0) return Failure{"no_tokens", "usage says 0 output tokens"};
    if (tokens_ == 0) return Failure{"no_tokens", "the answer holds no token"};
    if (!end_.finished_s.has_value())
      return Failure{"broken_stream", "the answer ended without a finish_reason"};
    return std::nullopt;
  }

  void BadAnswer(std::string message) {
    wrong_ = true;
    if (!end_.failure.has_value()) end_.failure = Failure{"bad_answer", std::move(message)};
  }

  bool OnError(std::string message) {
    end_.failure = Failure{"error_event", std::move(message)};
    wrong_ = true;
    return false;
  }

  bool OnEvent(std::string_view type, std::string_view data) {
    if (type == "error") return OnError(ErrorMessage(data));
    if (data == "[DONE]") {
      saw_done_ = true;
      return true;
    }
    const absl::StatusOr<StreamEvent> event = DecodeEvent(data);
    if (!event.ok()) {
      BadAnswer(std::string(event.status().message()));
      return false;
    }
    if (event->error.has_value()) return OnError(*event->error);
    if (event->finish_reason.has_value()) {
      end_.finished_s = at_s_;
      if (IsAbort(*event->finish_reason)) {
        end_.failure = Failure{"aborted", absl::StrCat("finish_reason ", *event->finish_reason)};
      }
    }
    if (event->prompt_tokens) end_.prompt_tokens = event->prompt_tokens;
    if (event->output_tokens) end_.output_tokens = event->output_tokens;
    if (event->cached_tokens) end_.cached_tokens = event->cached_tokens;
    // An end token, and what of a chat shows no text, is known by usage only.
    const bool only_now = tokens_ == 0 && event->tokens == 0 && event->finish_reason.has_value();
    const int32_t tokens = only_now ? 1 : event->tokens;
    if (tokens > 0) sink_->OnTokens(at_s_, tokens, event->content, event->token_ids);
    tokens_ += tokens;
    return true;
  }

  // --- http::basic_parser ---
  void on_request_impl(http::verb, string_view, string_view, int,
                       boost::system::error_code&) override {}
  void on_response_impl(int code, string_view, int, boost::system::error_code&) override {
    status_ = code;
  }
  void on_field_impl(http::field name, string_view, string_view value,
                     boost::system::error_code&) override {
    int64_t seconds = 0;
    // A date is taken for nothing: servers under load send seconds.
    if (name == http::field::retry_after &&
        absl::SimpleAtoi({value.data(), value.size()}, &seconds)) {
      end_.retry_after_s = static_cast<double>(seconds);
    }
  }
  void on_header_impl(boost::system::error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, boost::system::error_code&) override {}
  size_t on_body_impl(string_view body, boost::system::error_code& error) override {
    return TakeBody(Std(body), &error);
  }
  void on_chunk_header_impl(uint64_t, string_view, boost::system::error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view body, boost::system::error_code& error) override {
    return TakeBody(Std(body), &error);
  }
  void on_finish_impl(boost::system::error_code&) override {}

  size_t TakeBody(std::string_view body, boost::system::error_code* error) {
    if (status_ != 200) {
      error_body_.append(body.substr(0, kMostErrorBytes - error_body_.size()));
      return body.size();
    }
    if (!events_.Feed(body, [this](std::string_view type, std::string_view data) {
          return OnEvent(type, data);
        })) {
      BadAnswer("an event that does not end");
      *error = make_error_code(http::error::bad_value);
    }
    return body.size();
  }

  AnswerSink* const sink_;
  SseParser events_;
  AnswerEnd end_;
  std::string error_body_;
  double at_s_ = 0;
  int64_t tokens_ = 0;
  int status_ = 0;
  bool saw_done_ = false;
  bool closed_early_ = false;
  bool wrong_ = false;
};

AnswerReader::AnswerReader(AnswerSink* sink)
    : sink_(sink), parser_(std::make_unique<Parser>(sink)) {}
AnswerReader::~AnswerReader() = default;

size_t AnswerReader::Feed(std::string_view bytes, double at_s) {
  started_ = started_ || !bytes.empty();
  size_t taken = parser_->Feed(bytes, at_s);
  while (parser_->is_ahead()) {
    parser_ = std::make_unique<Parser>(sink_);
    taken += parser_->Feed(bytes.substr(taken), at_s);
  }
  return taken;
}
void AnswerReader::FeedEnd(double at_s) { parser_->FeedEnd(at_s); }
bool AnswerReader::done() const { return parser_->finished(); }
bool AnswerReader::keep_alive() const { return parser_->reusable(); }
AnswerEnd AnswerReader::TakeEnd() { return parser_->TakeEnd(); }

}  // namespace refrain::loadgen
