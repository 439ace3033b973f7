"""Starts refraind, waits until it is ready, streams one answer to the terminal (for tools/run).

Stays in the foreground until Ctrl-C or SIGTERM, which the daemon gets as SIGTERM, also where the
answer failed; with --once it stops after the answer, and fails as that did. Standard library only.
"""

import argparse
import dataclasses
import http.client
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import interruption

LOADING_NOTICE_S = 10
ANSWER_TIMEOUT_S = 120
STOP_TIMEOUT_S = 15


class SessionError(Exception):
    """What the user is told, in one sentence."""


FAILURES = (SessionError, OSError, http.client.HTTPException, ValueError, LookupError)


@dataclasses.dataclass(frozen=True)
class Route:
    """Where a model generates, and how it is asked there."""
    path: str
    question: str
    example: str
    as_chat: bool

    def prompt(self, text: str) -> dict:
        return {"messages": [{"role": "user", "content": text}]} if self.as_chat else {"prompt": text}

    def piece(self, choice: dict) -> str:
        return (choice["delta"].get("content") if self.as_chat else choice["text"]) or ""


# The model is small: a question whose answer does not hang on the last bit of the arithmetic.
CHAT = Route("/v1/chat/completions", "What is gravity? Answer in one sentence.", "Tell me a joke.",
             as_chat=True)
TEXT = Route("/v1/completions", "Gravity is", "Once upon a time", as_chat=False)


def parse_listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # whose colons are its own?
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT or [IPV6]:PORT with a port of 1 to "
                                         "65535")
    return host, int(port)


def parse_listen_or_off(text: str) -> tuple[str, int] | tuple[()]:
    return parse_listen(text) if text else ()


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_port_is_free(host: str, port: int, flag: str = "--listen") -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise SessionError(
            f"{address_text(host, port)} cannot be listened on ({error.strerror}): stop the program "
            f"that has it, or choose another with {flag} {address_text(host, port + 2)}") from error


def log_path(port: int) -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(cache) / "refrain" / "log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"refraind-{port}.log"


def start_daemon(arguments: argparse.Namespace, log: pathlib.Path) -> subprocess.Popen:
    addresses = []
    for flag, address in (("--listen", arguments.listen), ("--grpc-listen", arguments.grpc_listen)):
        addresses += [flag, address_text(*address) if address else ""]
    # A session of its own: Ctrl-C reaches this program alone, which then asks the daemon to stop.
    with log.open("wb") as output:
        return subprocess.Popen([arguments.refraind, "--model", arguments.model, *addresses],
                                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                start_new_session=True, preexec_fn=interruption.stop_with_parent)


def describe_exit(daemon: subprocess.Popen, log: pathlib.Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-10:]
    return "\n".join([f"the daemon ended with status {daemon.returncode}; its log {log} ends with:",
                      *lines])


def wait_until_ready(daemon: subprocess.Popen, host: str, port: int, log: pathlib.Path) -> None:
    """However long it takes: a large model comes from a slow disk."""
    started = time.monotonic()
    notices = 0
    while True:
        if daemon.poll() is not None:
            raise SessionError(describe_exit(daemon, log))
        try:
            connection = http.client.HTTPConnection(host, port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        waited_s = time.monotonic() - started
        if waited_s >= (notices + 1) * LOADING_NOTICE_S:
            notices = int(waited_s // LOADING_NOTICE_S)
            print(f"tools/run: still loading after {waited_s:.0f} s; log: {log}", file=sys.stderr)
        time.sleep(0.02)


def served_model(host: str, port: int) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    connection.request("GET", "/v1/models")
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise SessionError(f"/v1/models answered {response.status}: {body.decode(errors='replace')}")
    return json.loads(body)["data"][0]["id"]


def ask(host: str, port: int, model: str, route: Route) -> http.client.HTTPResponse:
    print(f"> {route.question}", flush=True)
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    body = json.dumps({"model": model, "stream": True, "temperature": 0, "max_tokens": 64,
                       **route.prompt(route.question)})
    connection.request("POST", route.path, body, {"Content-Type": "application/json"})
    return connection.getresponse()


def print_answer(response: http.client.HTTPResponse, route: Route) -> None:
    """As it comes."""
    if response.status != 200:
        raise SessionError(f"{route.path} answered {response.status}: "
                           f"{response.read().decode(errors='replace')}")
    answer = ""
    for line in response:
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:"):].strip()
        if data == b"[DONE]":
            break
        event = json.loads(data)
        if "error" in event:
            raise SessionError(f"the stream ended with an error: {event['error']}")
        for choice in event["choices"]:
            piece = route.piece(choice)
            answer += piece
            print(piece, end="", flush=True)
    print()
    if not answer.strip():
        raise SessionError("the answer is empty")


def curl_line(listen: str, model: str, route: Route) -> str:
    body = json.dumps({"model": model, "stream": True, **route.prompt(route.example)})
    return (f"curl -N http://{listen}{route.path} -H 'Content-Type: application/json' "
            f"-d {shlex.quote(body)}")


def stop_daemon(daemon: subprocess.Popen, timeout_s: float | None) -> None:
    """The daemon finishes what others ask of it, within its own limit (limits.drain_s); whoever does
    not want to wait presses Ctrl-C once more."""
    if daemon.poll() is not None:
        return
    daemon.terminate()
    try:
        daemon.wait(timeout_s)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        daemon.terminate()
        try:
            daemon.wait(STOP_TIMEOUT_S)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            daemon.kill()
            daemon.wait()


def converse(daemon: subprocess.Popen, arguments: argparse.Namespace, log: pathlib.Path) -> None:
    host, port = arguments.listen
    listen = address_text(host, port)
    started = time.monotonic()
    wait_until_ready(daemon, host, port, log)
    model = served_model(host, port)
    print(f"ready after {time.monotonic() - started:.2f} s: {model} on http://{listen}\n")
    route = CHAT
    try:
        response = ask(host, port, model, route)
        if response.status == 400:
            # The question is well formed: it is the model that cannot chat.
            message = json.loads(response.read())["error"]["message"]
            print(f"No chat with this model ({message}).\n")
            route = TEXT
            response = ask(host, port, model, route)
        print_answer(response, route)
    except FAILURES as error:
        if arguments.once:
            raise
        print(f"tools/run: {error}", file=sys.stderr)
    if arguments.once:
        return
    print(f"\nTry it:\n  {curl_line(listen, model, route)}\n\nLog: {log}. Ctrl-C stops the daemon.",
          flush=True)
    if daemon.wait() != 0:
        raise SessionError(describe_exit(daemon, log))


def interrupt(_signal, _frame) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/run")
    parser.add_argument("--refraind")
    parser.add_argument("--model")
    parser.add_argument("--listen", type=parse_listen, default=("127.0.0.1", 8000))
    parser.add_argument("--grpc-listen", type=parse_listen_or_off,
                        help="default: the port after that of --listen; empty = no gRPC")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--check-port", action="store_true", help="only check that it is free")
    arguments = parser.parse_args()
    host, port = arguments.listen
    if arguments.grpc_listen is None:
        arguments.grpc_listen = (host, port + 1) if port < 65535 else ()
    daemon = None
    signal.signal(signal.SIGTERM, interrupt)
    try:
        check_port_is_free(host, port)
        if arguments.grpc_listen:
            check_port_is_free(*arguments.grpc_listen, "--grpc-listen")
        if arguments.check_port:
            return 0
        log = log_path(port)
        daemon = start_daemon(arguments, log)
        converse(daemon, arguments, log)
    except KeyboardInterrupt:
        print("\nstopping", file=sys.stderr)
        if arguments.once:
            return 130
    except FAILURES as error:
        print(f"tools/run: {error}", file=sys.stderr)
        return 1
    finally:
        if daemon is not None:
            stop_daemon(daemon, STOP_TIMEOUT_S if arguments.once else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
