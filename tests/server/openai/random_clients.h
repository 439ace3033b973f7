#ifndef REFRAIN_TESTS_SERVER_OPENAI_RANDOM_CLIENTS_H_
#define REFRAIN_TESTS_SERVER_OPENAI_RANDOM_CLIENTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

#include "tests/server/http/raw_client.h"
#include "tests/server/openai/random_requests.h"

namespace refrain::testing {

// What may be answered to a request, however strange. 500 and 503 are not among them.
inline bool MayBeAnswered(int status) {
  constexpr int kStatuses[] = {200, 400, 404, 405, 408, 411, 413, 414, 415, 417, 431, 505};
  return std::find(std::begin(kStatuses), std::end(kStatuses), status) != std::end(kStatuses);
}

struct RequestTally {
  std::atomic<int> good{0}, refused{0}, dropped{0};
};

// When a client goes that does not read its answer: right behind its request, or in half of the
// cases when the answer has begun.
enum class Leaving { kAtOnce, kAlsoInside };

// Sends so many and reads their answers, but for `percent_left`.
inline void SendRandomRequests(uint16_t port, uint32_t seed, int count, RequestTally* tally,
                               Leaving leaving = Leaving::kAtOnce, int percent_left = 4) {
  RandomRequests requests(AllFields(port), seed);
  auto client = std::make_unique<RawClient>(port);
  for (int i = 0; i < count; ++i) {
    bool broken = false;
    const std::string request = requests.Next(&broken);
    client->Send(request);
    if (broken || requests.Chance(percent_left)) {
      if (!broken && leaving == Leaving::kAlsoInside && requests.Chance(50)) client->ReadPast(0);
      if (requests.Chance(50)) client->HalfClose();
      requests.Chance(50) ? client->Close() : client->Reset();
      client = std::make_unique<RawClient>(port);
      ++tally->dropped;
      continue;
    }
    const RawResponse response = client->ReadResponse();
    ASSERT_TRUE(MayBeAnswered(response.status))
        << response.status << " " << response.body << "\n to " << request;
    ASSERT_TRUE(response.complete) << request;
    ++(response.status == 200 ? tally->good : tally->refused);
    const auto connection = response.headers.find("connection");
    if (connection != response.headers.end() && connection->second == "close") {
      client = std::make_unique<RawClient>(port);
    }
  }
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_OPENAI_RANDOM_CLIENTS_H_
