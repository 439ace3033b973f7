"""tools/run shows one answer and leaves no daemon behind, whatever goes wrong."""

import pathlib
import signal
import socket
import subprocess
import sys

import daemon_session
import pytest

FAKE = pathlib.Path(__file__).with_name("fake_refraind.py")


@pytest.fixture(name="port")
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_stays_in_the_foreground_until_it_is_stopped(port, stop):
    # Where the tests run in the background of a script, SIGINT is ignored and children inherit that.
    with subprocess.Popen(command(port, "good"), stdout=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(stop, signal.SIG_DFL)) as session:
        try:
            shown = ""
            for line in session.stdout:
                shown += line
                if "Ctrl-C" in line:
                    break
            assert f"curl -N http://127.0.0.1:{port}/v1/chat/completions" in shown
            assert session.poll() is None
            session.send_signal(stop)
            assert session.wait(30) == 0
        finally:
            session.kill()
    assert is_free(port)
