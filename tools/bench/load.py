"""A load client for OpenAI-compatible servers that takes little of the CPU it shares with them.

Bytes are time-stamped as they arrive and parsed after the clock has stopped. Standard library only.
"""

import asyncio
import bisect
import dataclasses
import json
import random
import time

HOST = "127.0.0.1"

# Common words, each one token in the vocabularies at hand when a space stands before it: a prompt
# of N words is close to N tokens, and no two prompts share a beginning.
WORDS = """time people year way day man thing woman life child world school state family student
group country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book eye job
word business issue side kind head house service friend father power hour game line end member law
car city community name president team minute idea kid body information back parent face level
office door health person art war history party result change morning reason research girl guy
moment air teacher force education foot boy age policy music market sense nation plan college
interest death experience effect use class control field development role effort rate heart drug
show leader light voice wife police mind price report decision son view relationship town road arm
difference value building action season society tax director position player record paper space
ground form event official matter center couple site project activity star table need court
American oil situation cost industry figure street image phone data picture practice piece land
product doctor wall news test movie north love step energy list base""".split()


class RequestError(Exception):
    """A request that did not end as it should, told in one sentence."""


class Prompts:
    """Prompts of about the asked number of tokens, never the same beginning twice."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def take(self, tokens: int) -> str:
        return " ".join(self._random.choice(WORDS) for _ in range(tokens))


@dataclasses.dataclass
class Reply:
    """One streamed completion; times in seconds of time.perf_counter."""

    sent_s: float
    token_times_s: list[float]  # arrival of each event with text
    text: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def time_to_first_token_s(self) -> float:
        return self.token_times_s[0] - self.sent_s

    @property
    def tokens_per_s(self) -> float:
        """Decode alone: without the first token, which is prefill's."""
        return (self.completion_tokens - 1) / (self.token_times_s[-1] - self.token_times_s[0])


class _Timeline:
    """Which moment a byte of the response arrived at."""

    def __init__(self, pieces: list[tuple[float, bytes]]):
        self.raw = b"".join(data for _, data in pieces)
        self._times = [at for at, _ in pieces]
        self._ends = []
        total = 0
        for _, data in pieces:
            total += len(data)
            self._ends.append(total)

    def at(self, offset: int) -> float:
        return self._times[bisect.bisect_right(self._ends, offset)]


def _payload(timeline: _Timeline, start: int, chunked: bool) -> list[tuple[int, bytes]]:
    """The body as (offset in the raw bytes, data), transfer chunks taken apart."""
    raw = timeline.raw
    if not chunked:
        return [(start, raw[start:])]
    parts = []
    while True:
        end = raw.find(b"\r\n", start)
        if end < 0:
            raise RequestError("the response ends inside a transfer chunk")
        size = int(raw[start:end].split(b";")[0], 16)
        if size == 0:
            return parts
        parts.append((end + 2, raw[end + 2:end + 2 + size]))
        start = end + 2 + size + 2


def _events(parts: list[tuple[int, bytes]], timeline: _Timeline) -> list[tuple[float, str]]:
    """Server-sent events with the arrival of their last byte."""
    events, line = [], b""
    for offset, data in parts:
        for piece in data.splitlines(keepends=True):
            offset += len(piece)
            line += piece
            if line.endswith(b"\n"):
                if line.startswith(b"data:"):
                    events.append((timeline.at(offset - 1), line[5:].strip().decode()))
                line = b""
    return events


def parse_reply(sent_s: float, pieces: list[tuple[float, bytes]]) -> Reply:
    timeline = _Timeline(pieces)
    head_end = timeline.raw.find(b"\r\n\r\n")
    if head_end < 0:
        raise RequestError("no HTTP response")
    head = timeline.raw[:head_end].decode("latin-1").lower()
    parts = _payload(timeline, head_end + 4, "transfer-encoding: chunked" in head)
    if " 200 " not in head.split("\r\n")[0] + " ":
        body = b"".join(data for _, data in parts)[:300]
        raise RequestError(f"{head.splitlines()[0]}: {body.decode(errors='replace')}")
    times, text, usage = [], "", None
    for at, data in _events(parts, timeline):
        if data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise RequestError(f"error in the stream: {event['error']}")
        usage = event.get("usage") or usage
        for choice in event.get("choices") or []:
            piece = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            if piece:
                times.append(at)
                text += piece
    if not times or usage is None:
        raise RequestError("the stream had no token or no usage")
    details = usage.get("prompt_tokens_details") or {}
    return Reply(sent_s, times, text, usage["prompt_tokens"], details.get("cached_tokens") or 0,
                 usage["completion_tokens"])


async def _exchange(port: int, path: str, body: dict, timeout_s: float) -> Reply:
    data = json.dumps(body).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode()
    pieces = []
    sent_s = time.perf_counter()
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(head + data)
        async with asyncio.timeout(timeout_s):
            while piece := await reader.read(1 << 16):
                pieces.append((time.perf_counter(), piece))
    except TimeoutError as error:
        raise RequestError(f"no end of the answer within {timeout_s:g} s") from error
    finally:
        writer.close()
    return parse_reply(sent_s, pieces)


def complete(port: int, model: str, prompts: list[str], new_tokens: int, whole: bool = True,
             timeout_s: float = 600) -> list[Reply]:
    """Sends all prompts at once, greedy. With `whole` an answer of another length is an error."""
    async def together() -> list[Reply]:
        return await asyncio.gather(*(
            _exchange(port, "/v1/completions", {
                "model": model, "prompt": prompt, "max_tokens": new_tokens, "temperature": 0,
                "stream": True, "stream_options": {"include_usage": True},
                # vLLM needs min_tokens beside ignore_eos to keep going.
                **({"ignore_eos": True, "min_tokens": new_tokens} if whole else {})}, timeout_s)
            for prompt in prompts))

    replies = asyncio.run(together())
    for reply in replies:
        if whole and reply.completion_tokens != new_tokens:
            raise RequestError(f"{reply.completion_tokens} tokens came instead of {new_tokens}")
    return replies
