"""model.sampling_defaults: what a request leaves out is as the model's files ask for."""

import json
import pathlib
import shutil

import grpc
import httpx
import pytest
from conftest import Daemon
from grpc_services import Services, address, text_of

# Google's libraries are not built for the thread sanitizer.
pytestmark = pytest.mark.no_tsan

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "stories260K" / "hf"
PROMPT = "Once upon a time"
TOKENS = 24


@pytest.fixture
def serve(daemon_arguments, tmp_path):
    """A daemon whose model asks for its most probable token."""
    model = tmp_path / "stories"
    shutil.copytree(FOLDER, model)
    (model / "generation_config.json").write_text(json.dumps({"do_sample": True, "top_k": 1}))
    started = []

    def start(*arguments: str) -> Daemon:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Daemon(daemon_arguments[0], str(model), folder, "--grpc-listen",
                              "127.0.0.1:0", *arguments).wait_until_ready())
        return started[-1]

    yield start
    for one in started:
        assert one.stop() == 0, one.log.read_text(errors="replace")


def complete(daemon: Daemon, **body) -> str:
    answer = httpx.post(f"{daemon.url}/v1/completions", timeout=60,
                        json={"prompt": PROMPT, "max_tokens": TOKENS, **body})
    answer.raise_for_status()
    return answer.json()["choices"][0]["text"]


def test_they_are_the_models_over_http_and_grpc(serve):
    daemon = serve()
    greedy = complete(daemon, temperature=0)
    assert [complete(daemon, seed=seed) for seed in range(3)] == 3 * [greedy]
    assert {complete(daemon, seed=seed, top_k=-1) for seed in range(3)} != {greedy}
    with grpc.insecure_channel(address(daemon)) as channel:
        services = Services(channel)

        def generate(sampling):
            params = {"sampling": sampling, "stop": {"max_tokens": TOKENS}}
            return text_of(services("Inference/Generate", text={"text": PROMPT}, params=params))

        assert [generate({"seed": seed}) for seed in range(3)] == 3 * [greedy]
        assert {generate({"seed": seed, "top_k": 0}) for seed in range(3)} != {greedy}
    assert "sampling defaults temperature=1 top_p=1 min_p=0 top_k=1" in daemon.log.read_text()


def test_openais_are_there_on_request(serve):
    daemon = serve("--set", "model.sampling_defaults=openai")
    greedy = complete(daemon, temperature=0)
    assert {complete(daemon, seed=seed) for seed in range(3)} != {greedy}
