"""KV memory that refraind takes while prompts run, and what they need at least."""

import http.client
import json
import threading
import urllib.request

import load
import metrics_page
import servers

# A page takes a millisecond or so of the server; users hold a chunk for a second and more.
INTERVAL_S = 0.1


def _page(server: servers.Server) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{load.HOST}:{server.port}/metrics", timeout=10) as answer:
        return metrics_page.samples(answer.read().decode())


def _value(server: servers.Server, page: dict[str, float], name: str) -> float:
    try:
        return metrics_page.value(page, name)
    except LookupError as error:
        raise load.RequestError(f"{server.name}: {error}") from error


def chunk_tokens(server: servers.Server) -> int:
    page = _page(server)
    return round(_value(server, page, "refrain_kv_capacity_tokens") /
                 _value(server, page, "refrain_kv_chunks"))


def tokens_of(server: servers.Server, prompt: str) -> list[int]:
    request = urllib.request.Request(
        f"http://{load.HOST}:{server.port}/tokenize",
        json.dumps({"model": server.model, "prompt": prompt}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["tokens"]


def unique_tokens(prompts: list[list[int]], new_tokens: int, chunk: int) -> int:
    """Of lineages (a prompt and its new tokens), each rounded up to its chunk: a whole chunk of
    prompts that begin alike counts once. The last new token has no keys and values yet."""
    of_prompts = {tuple(ids[:end]) for ids in prompts for end in range(chunk, len(ids) + 1, chunk)}
    behind = sum(-(-(len(ids) + new_tokens - 1) // chunk) - len(ids) // chunk for ids in prompts)
    return chunk * (len(of_prompts) + behind)


class Watch:
    """Most room of the chunks in use, in tokens, of all looks within the block:

        with Watch(server) as watch:
            ...
        watch.most_tokens

    It looks from a thread of its own. A look that failed ends the block with RequestError, and so
    does a block in which no look found a chunk in use: it was over before one could.
    """

    def __init__(self, server: servers.Server):
        self._server = server
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most_tokens = 0.0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, kind, _error, _traceback) -> None:
        self._over.set()
        self._thread.join()
        error = self._error or ("no chunk was seen in use" if self.most_tokens <= 0 else None)
        if kind is None and error is not None:
            raise load.RequestError(f"{self._server.name}: KV memory: {error}")

    def _look(self) -> None:
        try:
            while not self._over.wait(INTERVAL_S):
                self.most_tokens = max(self.most_tokens, _value(
                    self._server, _page(self._server), "refrain_kv_physical_tokens"))
        except (OSError, ValueError, http.client.HTTPException, load.RequestError) as error:
            self._error = error
