#ifndef REFRAIN_SERVER_GENERATION_NOTE_H_
#define REFRAIN_SERVER_GENERATION_NOTE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/token_stream.h"

namespace refrain::server {

// What became of a request for generated text, over HTTP or gRPC.
struct GenerationOutcome {
  bool stream = false;
  size_t choices = 0;
  engine::Usage usage;
  std::optional<double> first_token_ms;  // from the request being there
  std::string_view error;                // its code; "" = none
};

// A request's field, or the path of one, as a log may show it. Clients make up names of members,
// and one may hold anything: one of letters, digits and "_-.[]", 64 bytes at most, stays as it is;
// in place of any other, and of "", stands that it is the client's. Pure.
std::string_view FieldForLogs(std::string_view field);

// Members of a line of the request log, written behind what `details` has. Pure.
void AppendOutcome(const GenerationOutcome& outcome, std::string* details);
// Why a request was refused before there was anything to tell: the error's code, and the field that
// it is about, if any (FieldForLogs). Nothing for OK.
void AppendRefusal(const absl::Status& refusal, std::string* details);
// The request as it was sent, up to 64 KiB; with log.prompts only.
void AppendBody(std::string_view body, std::string* details);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_GENERATION_NOTE_H_
