"""API keys, what they open, what they share, and the request log."""

import concurrent.futures
import contextlib
import json
import signal
import threading

import grpc
import httpx
import metrics_page
import openai
import pytest

from access_tools import bearer, make_key
from grpc_services import Services, address
from waiting import wait_until

LONG = "The quick brown fox jumps over the lazy dog. " * 30


@pytest.fixture
def keyed(start_daemon, daemon_arguments, tmp_path):
    """Starts a daemon with keys: {name: arguments of make-key}; returns it and the keys."""

    def start(names: dict[str, list[str]], *settings: str):
        path = tmp_path / "keys"
        keys = {name: make_key(daemon_arguments[0], path, name, *arguments)
                for name, arguments in names.items()}
        arguments = [f"--set={setting}" for setting in (f"auth.keys_file={path}", *settings)]
        return start_daemon(*arguments).wait_until_ready(), keys

    return start


def complete(url, key, prompt, **fields):
    return httpx.post(f"{url}/v1/completions", headers=bearer(key), timeout=120,
                      json={"prompt": prompt, "max_tokens": 4, "ignore_eos": True, **fields})


def test_keys_are_asked_for_everywhere_but_at_health(keyed, daemon_arguments, tmp_path):
    admin = make_key(daemon_arguments[0], tmp_path / "admin", "root")
    daemon, keys = keyed({"a": [], "b": []}, f"auth.admin_keys_file={tmp_path / 'admin'}",
                         "server.debug=on")
    with httpx.Client(base_url=daemon.url) as http:
        assert http.get("/v1/models", headers=bearer(keys["b"])).status_code == 200
        for path in ("/health", "/ping", "/ready", "/live"):
            assert http.get(path).status_code == 200
        for path in ("/v1/models", "/version", "/debug/cache", "/nothing"):
            answer = http.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
            error = answer.json()["error"]
            assert error["code"] == "invalid_api_key"
            assert str(tmp_path) not in answer.text
        wrong = keys["a"][:-1] + ("0" if keys["a"][-1] != "0" else "1")
        assert http.get("/v1/models", headers=bearer(wrong)).status_code == 401
        assert http.get("/v1/models", headers=bearer(keys["a"])).status_code == 200
        assert http.get("/version", headers=bearer(keys["a"])).status_code == 200
        assert http.get("/version", headers=bearer(admin)).status_code == 200
        assert http.get("/debug/cache", headers=bearer(keys["a"])).status_code == 403
        assert http.get("/debug/cache", headers=bearer(admin)).status_code == 200
        assert http.get("/v1/models", headers=bearer(admin)).status_code == 403
        for presented, shown in ((keys["a"], 'key="(others)"'), (admin, 'key="b"')):
            page = http.get("/metrics", headers=bearer(presented)).text
            assert 'code="200",key="a"' in page and shown in page
            assert ('"b"' in page) == (presented is admin)
        # The body of a stranger is not even read.
        assert http.post("/v1/completions", content=b"x" * (1 << 20)).status_code == 401
    with pytest.raises(openai.AuthenticationError):
        daemon.client().models.list()
    client = openai.OpenAI(base_url=f"{daemon.url}/v1", api_key=keys["a"], max_retries=0)
    assert client.models.list().data


def test_without_keys_any_bearer_is_accepted(http):
    assert http.get("/v1/models", headers=bearer("whatever")).status_code == 200


@pytest.mark.parametrize("file, asked", [("keys", "/v1/models"), ("admin", "/debug/cache")])
def test_hangup_reloads_keys_and_a_bad_file_keeps_them(keyed, daemon_arguments, tmp_path, file,
                                                       asked):
    path = tmp_path / file
    admin = make_key(daemon_arguments[0], tmp_path / "admin", "root")
    daemon, keys = keyed({"a": []}, f"auth.admin_keys_file={tmp_path / 'admin'}",
                         "server.debug=on")
    kept = keys["a"] if file == "keys" else admin
    added = make_key(daemon_arguments[0], path, "b")

    def status(key):
        return httpx.get(f"{daemon.url}{asked}", headers=bearer(key)).status_code

    assert status(added) == 401
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for_log("reloaded what=keys")
    assert status(added) == 200 and status(kept) == 200
    path.write_text(path.read_text() + "nonsense\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for_log("cannot reload")
    assert status(added) == 200 and status(kept) == 200
    path.unlink()
    path.mkdir()
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for_log("Is a directory")
    assert status(added) == 200 and status(kept) == 200


@pytest.mark.no_tsan
def test_what_waits_of_a_removed_key_ends_and_what_runs_goes_on(keyed, tmp_path):
    daemon, keys = keyed({"gone": [], "stays": []}, "engine.max_sequences=1",
                         "server.grpc_listen=127.0.0.1:0")
    path = tmp_path / "keys"

    def ask(key):
        answer = complete(daemon.url, key, "A queue is", max_tokens=2)
        return answer.status_code, answer.json().get("error", {}).get("code"), answer.text

    def call(services):
        try:
            list(services("Inference/Generate", text={"text": "A queue is"},
                          params={"stop": {"max_tokens": 2}},
                          metadata=[("authorization", f"Bearer {keys['gone']}")]))
        except grpc.RpcError as error:
            return error.code(), error.details()

    body = {"prompt": "One, two,", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with grpc.insecure_channel(address(daemon)) as channel, \
            concurrent.futures.ThreadPoolExecutor() as others, \
            httpx.stream("POST", f"{daemon.url}/v1/completions", headers=bearer(keys["gone"]),
                         json=body, timeout=120) as running:
        events = running.iter_lines()
        next(events)
        services = Services(channel, [("authorization", f"Bearer {keys['gone']}")])
        waiting = [others.submit(ask, keys["gone"]), others.submit(call, services)]
        served = others.submit(ask, keys["stays"])
        daemon.wait_for_queued(3, bearer(keys["stays"]))
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if '"stays"' in line]
        assert len(kept) == 1 < len(lines)
        # A reload that fails ends nothing.
        path.write_text("".join(kept) + "nonsense\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_log("cannot reload")
        path.write_text("".join(kept))
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_log("requests that waited ended with their keys names=1 ended=2")
        status, code, text = waiting[0].result(timeout=60)
        assert (status, code) == (401, "invalid_api_key") and "removed" in text
        status, details = waiting[1].result(timeout=60)
        assert status == grpc.StatusCode.UNAUTHENTICATED and "removed" in details
        assert not served.done(), "what ran has ended"
        event = next(line for line in events if line.startswith("data: "))
        assert "choices" in json.loads(event[6:])
        running.close()
        assert served.result(timeout=60)[0] == 200
        assert ask(keys["gone"])[0] == 401


def test_isolated_keys_share_nothing_and_one_key_shares_with_itself(keyed):
    daemon, keys = keyed({"a": [], "b": []}, "kv_cache.isolation=api_key")

    def cached(key, prompt):
        usage = complete(daemon.url, key, prompt).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(keys["a"], LONG) == 0
    assert cached(keys["a"], LONG) > 200
    assert cached(keys["b"], LONG) == 0
    assert cached(keys["b"], LONG) > 200


def test_a_miss_is_explained_within_the_keys_own_cache(keyed):
    daemon, keys = keyed({"a": [], "b": []}, "kv_cache.isolation=api_key")

    def miss(key, prompt):
        answer = httpx.post(f"{daemon.url}/v1/completions", headers=bearer(key), timeout=120,
                            json={"prompt": prompt, "max_tokens": 1, "cache_report": True}).json()
        return answer["usage"]["prompt_tokens_details"]["cache_misses"][0]

    assert miss(keys["a"], LONG)["reason"] == "never_seen"
    half = LONG[:len(LONG) // 2] + " Here it parts. " + LONG
    assert miss(keys["a"], half)["reason"] == "diverged"
    assert miss(keys["b"], half)["reason"] == "never_seen"


def test_what_a_key_was_answered_is_found_again_by_that_key_alone(keyed):
    daemon, keys = keyed({"a": [], "b": []}, "kv_cache.isolation=api_key")

    def ask(key, messages):
        answer = httpx.post(f"{daemon.url}/v1/chat/completions", headers=bearer(key), timeout=120,
                            json={"messages": messages, "max_tokens": 48, "temperature": 1,
                                  "seed": 7, "ignore_eos": True}).json()
        usage = answer["usage"]
        return (answer["choices"][0]["message"]["content"], usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"])

    messages = [{"role": "user", "content": LONG}]
    text, prompt_tokens, _ = ask(keys["a"], messages)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    assert ask(keys["b"], messages)[2] == 0
    assert ask(keys["a"], messages)[2] >= prompt_tokens + 40


def test_keys_share_where_isolation_is_off(keyed):
    daemon, keys = keyed({"a": [], "b": []})
    complete(daemon.url, keys["a"], LONG)
    usage = complete(daemon.url, keys["b"], LONG).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 200


def test_a_key_is_kept_to_its_requests_at_once(keyed):
    daemon, keys = keyed({"one": ["--requests", "1"], "free": []})
    with httpx.stream("POST", f"{daemon.url}/v1/completions", headers=bearer(keys["one"]),
                      json={"prompt": "Go", "max_tokens": 1900, "ignore_eos": True, "stream": True},
                      timeout=60) as running:
        lines = running.iter_lines()  # kept: without it the stream is closed
        next(lines)
        refused = complete(daemon.url, keys["one"], "Hello")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "\"one\"" in refused.json()["error"]["message"]
        assert complete(daemon.url, keys["free"], "Hello").status_code == 200
    # The place is free again once the stream is dropped.
    wait_until(lambda: complete(daemon.url, keys["one"], "Hello").status_code == 200)


def test_a_key_is_kept_to_its_tokens_per_second(keyed):
    daemon, keys = keyed({"slow": ["--tokens-per-s", "20"]})
    assert complete(daemon.url, keys["slow"], LONG).status_code == 200
    refused = complete(daemon.url, keys["slow"], "Hello")
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 10  # 300 tokens are owed


@pytest.mark.parametrize("prompts", ["off", "on"])
def test_request_log_tells_what_happened_and_prompts_only_when_asked(keyed, tmp_path, prompts):
    path = tmp_path / "requests.jsonl"
    daemon, keys = keyed({"team-a": []}, f"log.requests_file={path}", f"log.prompts={prompts}",
                         "log.level=trace")
    secret = "xyzzy plugh"
    answers = [complete(daemon.url, key, secret) for key in (keys["team-a"], keys["team-a"], "wrong")]
    answers += [httpx.post(f"{daemon.url}{path}", content="{no JSON", headers=bearer(keys["team-a"]))
                for path in ("/v1/completions", "/tokenize", "/detokenize")]
    # A line may come after the answer that it tells of.
    wait_until(lambda: path.read_text().count("\n") >= len(answers))
    path.rename(tmp_path / "rotated.jsonl")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for_log("request log")
    httpx.get(f"{daemon.url}/health")
    assert daemon.stop() == 0
    new = path.read_text()
    old = (tmp_path / "rotated.jsonl").read_text()
    # One connection's line may come before that of another which was answered earlier.
    lines = {line["request"]: line for line in map(json.loads, old.splitlines())}
    first, second, refused, *malformed = (
        lines.pop(answer.headers["x-request-id"]) for answer in answers)
    assert not lines
    assert [line["status"] for line in (first, second, refused)] == [200, 200, 401]
    for line in malformed:  # what one looks for when a client is refused
        assert line["status"] == 400
        assert line.get("body") == ("{no JSON" if prompts == "on" else None)
        assert line["error"] == "invalid_request_error"
    assert refused["error"] == "invalid_api_key"
    assert first["key"] == "team-a" and first["route"] == "/v1/completions"
    assert first["completion_tokens"] == 4 and first["cached_tokens"] == 0
    assert second["cached_tokens"] > 0 and second["prompt_tokens"] == first["prompt_tokens"]
    assert 0 < second["first_token_ms"] <= second["duration_ms"] + 1
    assert refused["key"] == "" and "prompt_tokens" not in refused
    assert (secret in old) == (prompts == "on")
    for key in keys.values():
        assert key not in old + new
    (health,) = map(json.loads, new.splitlines())
    assert (health["route"], health["status"]) == ("/health", 200)
    assert secret not in daemon.log.read_text()


def test_browsers_are_let_in_only_where_configured(keyed, http):
    origin = "https://chat.example"
    ask = {"Origin": origin, "Access-Control-Request-Method": "POST",
           "Access-Control-Request-Headers": "authorization,content-type"}
    assert "access-control-allow-origin" not in http.get("/health", headers=ask).headers
    # Without keys a page that asks nobody first, as it may for text/plain, is refused, too.
    for answer in (http.options("/v1/completions", headers=ask),
                   http.post("/v1/completions", content='{"prompt":"Hi"}',
                             headers={"Origin": origin, "Content-Type": "text/plain"})):
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "origin_not_allowed" and origin in answer.text
    daemon, keys = keyed({"a": []}, f"http.cors_origins={origin}")
    allowed = httpx.options(f"{daemon.url}/v1/completions", headers=ask)  # browsers send no key
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == origin
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    answer = httpx.get(f"{daemon.url}/v1/models", headers={**bearer(keys["a"]), "Origin": origin})
    assert answer.headers["access-control-allow-origin"] == origin
    refused = httpx.get(f"{daemon.url}/v1/models", headers={"Origin": origin})
    assert refused.status_code == 401 and "access-control-allow-origin" in refused.headers
    other = {**ask, "Origin": "https://evil.example"}
    assert httpx.options(f"{daemon.url}/v1/completions", headers=other).status_code == 401


@pytest.mark.no_tsan
def test_a_queue_of_one_key_does_not_delay_the_single_one_of_another(keyed):
    """A slot is taken from the busy key at once: of its requests hardly any ends meanwhile."""
    slots, requests = 4, 1000
    daemon, keys = keyed({"busy": [], "single": []}, f"engine.max_sequences={slots}",
                         f"limits.queued_requests={requests}")

    def ask():
        with contextlib.suppress(httpx.TransportError):  # the daemon is stopped in the end
            complete(daemon.url, keys["busy"], [f"Tale {i}: once" for i in range(requests)],
                     max_tokens=200)

    thread = threading.Thread(target=ask)
    with httpx.Client(base_url=daemon.url, timeout=120, headers=bearer(keys["single"])) as single:
        def finished() -> float:
            page = metrics_page.samples(single.get("/metrics").text)
            return metrics_page.total(page, "vllm:request_success_total")

        assert finished() == 0
        thread.start()
        daemon.wait_for_queued(requests - 2 * slots, bearer(keys["single"]))
        wait_until(lambda: finished() >= slots, within_s=100)
        before = finished()
        answer = single.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 8,
                                                      "ignore_eos": True})
        meanwhile = finished() - before - 1  # but itself
    daemon.process.kill()
    thread.join()
    assert answer.status_code == 200
    # Eight of its steps pass, of the 200 that each of the others takes; without fair shares 996 of
    # those would have ended before it.
    assert meanwhile <= 2 * slots
