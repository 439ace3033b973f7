"""tools/check/all in a small repository whose checks only say how they ended."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = ("check/format", "check/sizes", "check/layers.py", "check/tidy", "check/thread_safety",
          "test", "setup")
NOT_RUN = "not run yet"


@pytest.fixture(name="repository")
def repository_of_fakes(tmp_path):
    tools = tmp_path / "tools"
    (tools / "check").mkdir(parents=True)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "check" / "all", tools / "check" / "all")
    for name in CHECKS:
        set_outcome(tmp_path, name, "0 findings", 0)
    for command in (["init", "-q"], ["add", "."],
                    ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "fakes"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def set_outcome(repository, name, last_line, status):
    path = repository / "tools" / name
    path.write_text(f"#!/bin/bash\necho '{last_line}'\nexit {status}\n")
    path.chmod(0o755)


def check(repository, *arguments):
    return subprocess.run([repository / "tools" / "check" / "all", *arguments], text=True,
                          capture_output=True, timeout=60, check=False)


def record(repository):
    """{check: its row's cells} of what is kept."""
    rows = (repository / "docs" / "results" / "check-all.md").read_text().splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows
             if row.startswith("|")]
    return {row[0]: row[1:] for row in cells[2:]}


def test_keeps_what_each_check_last_came_to(repository):
    set_outcome(repository, "check/tidy", "3 findings | of 9", 1)
    done = check(repository, "layers", "tidy")
    assert done.returncode == 1
    assert "1 checks failed" in done.stdout
    first = record(repository)
    assert first["layers"][:2] == ["passed", "0 findings"]
    assert first["tidy"][:2] == ["FAILED", "3 findings / of 9"]
    assert "with changes" in first["tidy"][3]
    assert first["format"][0] == NOT_RUN

    set_outcome(repository, "check/tidy", "0 findings", 0)
    done = check(repository, "tidy")
    assert done.returncode == 0, done.stderr
    second = record(repository)
    assert second["tidy"][:2] == ["passed", "0 findings"]
    assert "with changes" not in second["tidy"][3]  # as it was committed
    assert second["layers"] == first["layers"]
    assert second["format"][0] == NOT_RUN


def test_all_of_them_are_run(repository):
    done = check(repository)
    assert done.returncode == 0, done.stderr
    outcomes = {name: row[0] for name, row in record(repository).items()}
    assert outcomes == {name: "passed" for name in (
        "format", "sizes", "layers", "tests", "tidy", "thread_safety", "asan", "tsan", "races", "fuzz",
        "soak", "goldens")}


def test_quick_keeps_no_record(repository):
    done = check(repository, "--quick")
    assert done.returncode == 0, done.stderr
    assert "| tests | passed |" in done.stdout
    assert not (repository / "docs" / "results" / "check-all.md").exists()


@pytest.mark.parametrize("arguments", [["nonsense"], ["--slow"], ["--quick", "tidy"]])
def test_refuses_what_it_does_not_know(repository, arguments):
    done = check(repository, *arguments)
    assert done.returncode == 2
    assert "tools/check/all: " in done.stderr


def test_tells_what_was_not_run_again(repository):
    path = repository / "tools" / "test"
    path.write_text("#!/bin/bash\necho '//tests/a:b_test   (cached) PASSED in 1.0s'\n"
                    "echo '//tests/a:c_test   PASSED in 1.0s'\necho '9 passed, 0 failed'\n")
    assert check(repository, "tests").returncode == 0
    assert record(repository)["tests"][1] == \
        "9 passed, 0 failed; 1 targets ran before, unchanged since"
