#ifndef REFRAIN_TESTS_SERVER_HTTP_RAW_CLIENT_H_
#define REFRAIN_TESTS_SERVER_HTTP_RAW_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace refrain::testing {

// An answer as it came over the wire.
struct RawResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  int chunks = 0;                              // 0: not chunked
  bool complete = false;                       // the framing's end was seen
};

// A TCP client that sends exactly the bytes it is told to, so that tests can be impolite. Blocking,
// with five seconds of patience for every call. One thread.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool Send(std::string_view bytes);
  void HalfClose();
  void Close();
  void Reset();  // closes with RST
  // Goes as a machine does that loses its power: not a byte more is sent. False where that may not
  // be done (it takes CAP_NET_ADMIN).
  bool Vanish();
  // Goes as a machine does that is unplugged: from now on nothing arrives, and nothing is
  // acknowledged. False where the system does not do that.
  bool Unplug();

  // Reads one answer; bytes behind it are kept for the next one. With `head_only` no body is
  // expected (HEAD).
  RawResponse ReadResponse(bool head_only = false);
  // Reads until `text` has come (true) or the connection has ended or patience is over.
  bool ReadUntil(std::string_view text);
  // Reads until more than `bytes` have come that ReadResponse has not taken.
  bool ReadPast(size_t bytes);
  // Reads once, so many bytes at most; false at the end or when patience is over.
  bool ReadAtMost(size_t bytes);
  // What has been read and not been taken by ReadResponse.
  const std::string& pending() const { return pending_; }
  // True when the server closes within `patience`; bytes before are kept.
  bool ReadEnd(std::chrono::milliseconds patience = std::chrono::milliseconds(5000));

 private:
  bool ReadSome();
  bool ReadLine(std::string* line);

  int fd_ = -1;
  std::string pending_;
};

// How long a GET takes, in milliseconds: the 19th of 20, in the first round that stays under the
// limit or the best of all (see SomeRoundKeeps). Nothing when one is not answered with 200.
std::optional<double> TimeGet(RawClient* client, std::string_view path, double limit_ms);

std::string GetRequest(std::string_view path, std::string_view more_headers = "");
std::string PostRequest(std::string_view path, std::string_view body,
                        std::string_view more_headers = "");

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_HTTP_RAW_CLIENT_H_
