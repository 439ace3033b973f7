"""tools/test ends with its closing line also where nothing could run."""

import re
import shutil
import subprocess

import pytest

import run_tests


@pytest.fixture
def bazel(monkeypatch, tmp_path):
    """A bazel that fails, whatever it is asked."""
    program = tmp_path / "bazel"
    program.write_text("#!/bin/sh\necho 'ERROR: no such package' >&2\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(run_tests, "DISK_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("arguments", [["wire"], ["--fuzz", "1"], ["--soak"]], ids=" ".join)
def test_a_query_that_fails_is_one_failure(arguments, bazel, monkeypatch, capfd):
    monkeypatch.setattr(run_tests, "default_model", lambda: "/no/model")
    monkeypatch.setattr(run_tests, "pytest_finds", lambda *_: False)
    monkeypatch.setattr("sys.argv", ["tools/test", *arguments])
    assert run_tests.main() == 1
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert lines[-1] == "0 passed, 1 failed"
    assert re.fullmatch(r"FAILED: bazel query \(exit status 7\) of .*", lines[0])
    assert err == "ERROR: no such package\n"


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_fuzzing_without_an_end_is_refused(seconds, monkeypatch, capfd):
    monkeypatch.setattr(run_tests, "run_fuzzers", lambda *_: pytest.fail("fuzzes"))
    monkeypatch.setattr("sys.argv", ["tools/test", f"--fuzz={seconds}"])
    with pytest.raises(SystemExit) as end:
        run_tests.main()
    assert end.value.code == 2
    assert "--fuzz" in capfd.readouterr().err


@pytest.mark.parametrize("arguments, setup", [
    (["--fuzz", "60"], "--check"), (["--fuzz=60"], "--check"), (["bpe", "--fuzz=60"], "--check"),
    (["--fuzzy"], ""), (["fuzz"], ""), ([], "")])
def test_fuzzing_installs_what_its_compiler_needs(arguments, setup, tmp_path):
    (tmp_path / "tools").mkdir()
    shutil.copy(run_tests.ROOT / "tools" / "test", tmp_path / "tools")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for program, text in ((tmp_path / "tools" / "setup", 'echo "setup $*"'), (python, "exit 0")):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    done = subprocess.run([tmp_path / "tools" / "test", *arguments], capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == f"setup {setup}".strip()


def test_goldens_are_asked_for_all_windows(bazel, monkeypatch, capfd, tmp_path):
    asked = tmp_path / "asked"
    (tmp_path / "bazel").write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexit 7\n')
    monkeypatch.setattr(run_tests, "default_model", lambda: "/no/model")
    monkeypatch.setattr("sys.argv", ["tools/test", "--goldens"])
    assert run_tests.main() == 1
    assert capfd.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"
    command, *arguments = asked.read_text().split()
    assert command == "test"
    assert "--test_env=REFRAIN_GOLDEN_WINDOWS=all" in arguments
    assert arguments[arguments.index("--") + 1:] == ["//tests/integration/golden/..."]


def test_races_are_looked_for_in_what_has_kernels(bazel, monkeypatch, capfd, tmp_path):
    asked = tmp_path / "asked"
    (tmp_path / "bazel").write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\n[ "$1" = query ] || exit 7\n'
        'echo //tests/kernels/cuda:sampling_test //tests/engine:device_steps_test\n')
    monkeypatch.setattr(run_tests, "default_model", lambda: "/no/model")
    monkeypatch.setattr("sys.argv", ["tools/test", "--races", "sampling"])
    assert run_tests.main() == 1
    assert capfd.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"
    query, test = asked.read_text().splitlines()
    assert "//kernels/cuda/emulated:emulated_device" in query
    assert "--config=racecheck" in test
    assert test.partition(" -- ")[2] == "//tests/kernels/cuda:sampling_test"


def test_no_model_is_one_failure(bazel, monkeypatch, capfd, tmp_path):
    (tmp_path / "tools").mkdir()
    fetch_model = tmp_path / "tools" / "fetch_model"
    fetch_model.write_text("#!/bin/sh\nexit 1\n")
    fetch_model.chmod(0o755)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["tools/test"])
    assert run_tests.main() == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "FAILED: no model to test with"
    assert lines[-1] == "0 passed, 1 failed"
