"""tools/run shows one answer and leaves no daemon behind, whatever goes wrong."""

import argparse
import json
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
import types

import daemon_session
import free_ports
import pytest

FAKE = pathlib.Path(__file__).with_name("fake_refraind.py")


@pytest.fixture(name="port")
def free_port():
    return free_ports.free_pair()


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def command(port, model, *options):
    return [sys.executable, daemon_session.__file__, "--refraind", str(FAKE), "--model", model,
            "--listen", f"127.0.0.1:{port}", "--grpc-listen", "", *options]


def run_once(port, model):
    return subprocess.run(command(port, model, "--once"), capture_output=True, text=True,
                          timeout=60)


def is_free(port):
    daemon_session.check_port_is_free("127.0.0.1", port)
    return True


def test_prints_the_whole_answer_and_stops(port):
    done = run_once(port, "good")
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris.\n" in done.stdout
    assert is_free(port)


def test_says_that_the_port_is_taken(port):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        done = run_once(port, "good")
    assert done.returncode == 1
    assert f"127.0.0.1:{port} cannot be listened on" in done.stderr


def test_says_that_the_port_of_grpc_is_taken(port):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        done = subprocess.run(command(port, "good", "--once", "--grpc-listen", f"127.0.0.1:{taken}"),
                              capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"127.0.0.1:{taken} cannot be listened on" in done.stderr
    assert "--grpc-listen 127.0.0.1:" in done.stderr


def test_shows_why_the_daemon_ended(port):
    done = run_once(port, "damaged")
    assert done.returncode == 1
    assert "status 3" in done.stderr
    assert "tensor 3 ends past the end of the file" in done.stderr


def test_an_error_answer_is_shown(port):
    done = run_once(port, "refuses")
    assert done.returncode == 1
    assert "429" in done.stderr and "no room" in done.stderr
    assert is_free(port)


def test_an_empty_answer_is_a_failure(port):
    assert run_once(port, "silent").returncode == 1


def test_a_model_without_chat_template_goes_on_with_a_text(port):
    done = run_once(port, "base")
    assert done.returncode == 0, done.stderr
    assert "the model has no chat template" in done.stdout
    assert "> Gravity is\nThe capital of France is Paris.\n" in done.stdout


def test_a_daemon_that_lives_may_load_for_long(port, monkeypatch, tmp_path, capsys):
    """A clock a thousand times too fast: the 0.2 s of loading are more than three minutes."""
    monkeypatch.setattr(daemon_session, "time", types.SimpleNamespace(
        monotonic=lambda: 1000 * time.monotonic(), sleep=time.sleep))
    log = tmp_path / "log"
    with subprocess.Popen([FAKE, "--model", "good", "--listen", f"127.0.0.1:{port}"]) as daemon:
        try:
            daemon_session.wait_until_ready(daemon, "127.0.0.1", port, log)
        finally:
            daemon.terminate()
    assert f"s; log: {log}" in capsys.readouterr().err


class Session:
    """tools/run without --once, up to where it waits for Ctrl-C."""

    def __init__(self, port, model, stop=signal.SIGINT):
        # Where the tests run in the background of a script, SIGINT is ignored and children inherit
        # that.
        self.process = subprocess.Popen(
            command(port, model), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(stop, signal.SIG_DFL))
        self.stop = stop

    def __enter__(self):
        self.shown = ""
        for line in self.process.stdout:
            self.shown += line
            if "Ctrl-C" in line:
                break
        return self

    def end(self) -> str:
        """Returns what it said to stderr."""
        assert self.process.poll() is None
        self.process.send_signal(self.stop)
        _, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return errors

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_stays_in_the_foreground_until_it_is_stopped(port, stop):
    with Session(port, "good", stop) as session:
        assert f"curl -N http://127.0.0.1:{port}/v1/chat/completions" in session.shown
        session.end()
    assert is_free(port)


def test_waits_for_the_answers_of_others_until_ctrl_c_is_pressed_again(port):
    with Session(port, "drains") as session:
        session.process.send_signal(signal.SIGINT)
        # Two signals that come together are one.
        assert any("stopping" in line for line in session.process.stderr)
        with pytest.raises(subprocess.TimeoutExpired):
            session.process.wait(0.5)
        session.end()
    assert is_free(port)


def test_addresses_of_ip_version_6_have_brackets():
    assert daemon_session.parse_listen("[::1]:8000") == ("::1", 8000)
    assert daemon_session.address_text("::1", 8000) == "[::1]:8000"
    with pytest.raises(argparse.ArgumentTypeError, match=r"\[IPV6\]:PORT"):
        daemon_session.parse_listen("::1:8000")


def test_shows_how_to_ask_a_model_without_chat_template(port):
    with Session(port, "base") as session:
        assert f"curl -N http://127.0.0.1:{port}/v1/completions" in session.shown
        assert '"prompt"' in session.shown


@pytest.mark.parametrize("model, error", [("silent", "the answer is empty"), ("refuses", "no room")])
def test_a_failed_answer_stops_no_daemon(port, model, error):
    with Session(port, model) as session:
        assert f"curl -N http://127.0.0.1:{port}/v1/chat/completions" in session.shown
        assert error in session.end()
    assert is_free(port)


def test_the_curl_line_is_one_for_the_shell():
    line = daemon_session.curl_line("127.0.0.1:8000", "it's a \"model\"", daemon_session.CHAT)
    words = shlex.split(line)
    assert json.loads(words[words.index("-d") + 1])["model"] == "it's a \"model\""
