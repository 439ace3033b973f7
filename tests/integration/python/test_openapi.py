"""/openapi.json tells of the whole daemon, and schemathesis sends what it describes, right and wrong,
and compares the answers."""

import pathlib
import re
import subprocess
import sys

import httpx
import jsonschema_rs
import pytest

from access_tools import bearer, make_key
from conftest import Daemon
from schema_values import SchemaValues

ROOT = pathlib.Path(__file__).parents[3]
OPEN = {"/health", "/ping", "/ready", "/live"}  # no key is asked for

# All that a schema allows is accepted, but for a request that takes longer than it said, a model that
# is not there, and what asks for another key.
SETTINGS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "403", "404", "408"]
"""
# Nor where text is generated: a prompt may be longer than the context or have no token, a bias name
# one beyond the vocabulary, and fields have combinations that no schema says. There each field is
# sent alone (test_each_field_takes_what_its_schema_allows).
GENERATING = "^/v1/((chat/)?completions|responses)$"


@pytest.fixture(scope="module", params=["open", "with keys"])
def described(request, daemon_arguments, tmp_path_factory):
    """A daemon with all its routes, and the header that opens them."""
    folder = tmp_path_factory.mktemp("openapi")
    arguments, headers = ["--set", "server.debug=on", "--set", "server.tokenizer_info=on"], {}
    if request.param == "with keys":
        headers = bearer(make_key(daemon_arguments[0], folder / "keys", "team"))
        make_key(daemon_arguments[0], folder / "admin", "root")
        arguments += ["--set", f"auth.keys_file={folder / 'keys'}",
                      "--set", f"auth.admin_keys_file={folder / 'admin'}"]
    outputs = pathlib.Path(daemon_arguments[0]).absolute().parents[1]
    running = Daemon(str(outputs / "tests/server/refraind_fake"), "tools", folder,
                     *arguments).wait_until_ready()
    yield running, headers
    assert running.stop() == 0, running.log.read_text(errors="replace")


SOMETHING_FOR_ALL = (b'{"prompt":"hi","messages":[{"role":"user","content":"hi"}],"tokens":[1],'
                     b'"max_tokens":1}')
SOMETHING = {"/v1/responses": b'{"input":"hi","max_output_tokens":1}'}  # for which a prompt is wrong


def documented_paths() -> set[str]:
    """Those of the table in docs/http-api.md."""
    rows = re.findall(r"^\| (?:GET|POST) (.*?) \|", (ROOT / "docs" / "http-api.md").read_text(),
                      re.MULTILINE)
    return {path for row in rows for path in re.findall(r"`(/[^`? ]*)", row)}


def test_describes_the_whole_daemon(described):
    daemon, headers = described
    document = httpx.get(f"{daemon.url}/openapi.json", headers=headers).json()
    assert set(document["paths"]) == documented_paths()
    assert {"/metrics", "/debug/cache"} <= set(document["paths"])
    assert document["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary"), f"{method} {path} is not described"
            asks = bool(headers) and path not in OPEN
            assert operation["security"] == ([{"key": []}] if asks else []), path
            # As it is: without a key the answer is 401 exactly where the document says so.
            status = httpx.request(method, daemon.url + path).status_code
            assert (status == 401) == asks, (path, status)
            names = {parameter["name"] for parameter in operation["parameters"]}
            # As it is: where the header counts, one that is no number is refused for it.
            answer = httpx.request(method, daemon.url + path, headers={
                **headers, "X-Request-Timeout": "soon", "Content-Type": "application/json"},
                content=SOMETHING.get(path, SOMETHING_FOR_ALL) if method == "post" else None)
            counts = answer.status_code == 400 and "timeout" in answer.text.lower()
            assert ("X-Request-Timeout" in names) == counts, (path, answer.text)


def test_tells_of_no_route_that_is_off(fake_daemon):
    paths = httpx.get(f"{fake_daemon.url}/openapi.json").json()["paths"]
    for path in ("/debug/cache", "/tokenizer_info"):
        assert path not in paths
        assert httpx.get(fake_daemon.url + path).status_code == 404


def run_schemathesis(described, folder, examples: int, *options: str) -> None:
    daemon, headers = described
    settings = folder / "schemathesis.toml"
    settings.write_text(SETTINGS)
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings),
         "run", f"{daemon.url}/openapi.json", "--checks", "all", *options,
         "--max-examples", str(examples), "--seed", "7", "--phases", "examples,coverage,fuzzing",
         "--generation-database", "none", "--request-timeout", "20", "--no-color",
         "--suppress-health-check", "too_slow",  # of what makes the requests, on a busy machine
         *(f"--header={name}: {value}" for name, value in headers.items())],
        cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def check_description(described, folder, examples: int) -> None:
    run_schemathesis(described, folder, examples, f"--exclude-path-regex={GENERATING}")
    run_schemathesis(described, folder, examples, f"--include-path-regex={GENERATING}",
                     "--exclude-checks=positive_data_acceptance")


def test_the_description_is_true(described, tmp_path):
    check_description(described, tmp_path, examples=5)


# The least that each takes; and what a field needs beside it.
LEAST = {"/v1/completions": {"prompt": "hi", "max_tokens": 1},
         "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
         "/v1/responses": {"input": "hi", "max_output_tokens": 1}}
BESIDE = {"stream_options": {"stream": True}, "top_logprobs": {"logprobs": True}}
# What docs/http-api.md says that schemas do not: of which field, and in which words.
REFUSED = {("min_tokens", "more than max_"), ("tool_choice", "which is not among 'tools'"),
           ("structured_outputs", "is not JSON"), ("guided_json", "is not JSON"),
           ("json_schema", "is not JSON"),
           ("input", "has nothing that the model could be shown")}


def test_each_field_takes_what_its_schema_allows(fake_daemon):
    met, sent = set(), 0
    with httpx.Client(base_url=fake_daemon.url, timeout=60) as http:
        document = http.get("/openapi.json").json()
        components = document["components"]
        values = SchemaValues(document)
        for path, least in LEAST.items():
            body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            schema = components["schemas"][body["schema"]["$ref"].rsplit("/", 1)[1]]
            for field, allowed in schema["properties"].items():
                validator = jsonschema_rs.validator_for({**allowed, "components": components})
                for value in filter(validator.is_valid, values.of(allowed)):
                    answer = http.post(path, json={**least, **BESIDE.get(field, {}), field: value})
                    sent += 1
                    if answer.status_code == 200:
                        continue
                    known = {(name, words) for name, words in REFUSED
                             if name == field and words in answer.text}
                    assert known, f"{path}: {field}: {value!r:.200}: {answer.text}"
                    met |= known
    assert met == REFUSED
    assert sent > 1000


@pytest.mark.soak
def test_the_description_is_true_at_length(described, tmp_path):
    check_description(described, tmp_path, examples=1000)
