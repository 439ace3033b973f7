"""tools/bench/servers.py and tools/testing/soak.py leave no server behind, however they end."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import interruption
import load
import pytest
import servers
import soak

FOLDERS = [str(pathlib.Path(module.__file__).parent) for module in (servers, soak)]


def until(done, seconds=10):
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    return done()


def is_gone(pid: int) -> bool:
    """A zombie is: whoever has inherited it may be slow to reap."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pid_in(file: pathlib.Path) -> int:
    assert until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def server_of(script: str) -> servers.Server:
    return servers.Server("fake", ["bash", "-c", script], "m")


@pytest.mark.parametrize("script, status", [("exit 3", 3), ("kill -KILL $$", -9)])
def test_a_server_that_ended_is_told(tmp_path, script, status):
    server = server_of(script)
    with pytest.raises(load.RequestError, match="not started"):
        server.check_alive()
    server.spawn(tmp_path)
    for _ in range(2):
        with pytest.raises(load.RequestError, match=f"ended with status {status};"):
            server.wait_until_up()
    server.stop()
    server.stop()


def test_logs_are_kept_where_something_failed_and_the_error_says_where(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with servers.log_folder("bench-") as folder:
        assert folder.parent == tmp_path
    assert not folder.exists()
    server = server_of("echo why; exit 1")
    with pytest.raises(load.RequestError) as error:
        with servers.log_folder("bench-") as folder:
            server.spawn(folder)
            server.wait_until_up()
    log = pathlib.Path(str(error.value).rpartition("see ")[2])
    assert log.parent == folder and log.read_text() == "why\n"
    with pytest.raises(SystemExit):
        with servers.log_folder("bench-") as folder:
            sys.exit(130)
    assert not folder.exists()


# As vLLM's engine, where its API server dies.
@pytest.mark.parametrize("leader", ["exit 1", "wait"])
def test_what_a_leader_leaves_behind_is_stopped_too(tmp_path, leader):
    server = server_of(f"(trap '' TERM; echo $BASHPID > {tmp_path / 'child'}; exec sleep 60) & {leader}")
    server.spawn(tmp_path)
    child = pid_in(tmp_path / "child")
    server.stop()
    assert until(lambda: is_gone(child))


def test_a_signal_ends_the_wait_for_a_server_and_the_server(tmp_path, signals):
    server = server_of(f"trap 'kill -HUP {os.getpid()}' TERM; echo $$ > {tmp_path / 'pid'}; "
                       "while true; do sleep 0.02; done")
    server.spawn(tmp_path)
    pid = pid_in(tmp_path / "pid")
    with pytest.raises(RuntimeError, match="interrupted"):
        server.stop()
    assert is_gone(pid) and server.process is None


def test_the_first_signal_ends_the_program_and_under_nohup_none_of_a_terminal(signals):
    for ignored in (False, True):
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        interruption.exit_on_signals()
        with pytest.raises(SystemExit) as end:
            for number in (signal.SIGHUP, signal.SIGTERM):
                os.kill(os.getpid(), number)
        assert end.value.code == 128 + (signal.SIGTERM if ignored else signal.SIGHUP)
        for number in signals:
            os.kill(os.getpid(), number)


PROGRAMS = {
    "servers": "servers.Server('fake', [{fake!r}], 'm').spawn(pathlib.Path({folder!r})); "
               "signal.pause()",
    "soak": "sys.argv = ['soak', '--refraind', {fake!r}, '--model', 'm']; sys.exit(soak.main())"}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_a_server_ends_with_the_program_that_started_it(tmp_path, monkeypatch, program, number):
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/bash\necho $$ > {tmp_path / 'pid'}\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the soak's log
    text = PROGRAMS[program].format(fake=str(fake), folder=str(tmp_path))
    with subprocess.Popen(
            [sys.executable, "-c", f"import pathlib, signal, sys; sys.path[:0] = {FOLDERS}; "
             f"import servers, soak; {text}"],
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)
            if number != signal.SIGKILL else None) as parent:
        pid = pid_in(tmp_path / "pid")
        parent.send_signal(number)
        parent.wait(10)
    assert until(lambda: is_gone(pid))
