"""tools/run from end to end, with a compiler and a daemon that cost nothing."""

import os
import pathlib
import socket
import stat
import subprocess

import free_ports
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE = pathlib.Path(__file__).with_name("fake_refraind.py")

# Answers `bazel build` and `bazel info`, and notes that it was asked.
BAZEL = """#!/bin/bash
echo "$1" >> "{folder}/asked"
case "$1" in
  build) exit "$(cat "{folder}/status")" ;;
  info) echo "{folder}/bin" ;;
esac
"""


class Workshop:
    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.model = folder / "model.gguf"
        self.model.touch()
        (folder / "bin" / "server").mkdir(parents=True)
        self.script("bin/server/refraind", f'#!/bin/bash\necho "$*" > "{folder}/arguments"\n'
                                           f'exec "{FAKE}" "$@"\n')
        self.script("bazel", BAZEL.format(folder=folder))
        self.fail_build(0)
        # Logs go here; what tools/setup has unpacked is found where it is.
        user_cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        self.cache = folder / "cache"
        (self.cache / "refrain").mkdir(parents=True)
        unpacked = user_cache / "refrain" / "debian"
        if unpacked.exists():
            (self.cache / "refrain" / "debian").symlink_to(unpacked)
        self.listen = f"127.0.0.1:{free_ports.free_pair()}"

    def script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def fail_build(self, status: int) -> None:
        (self.folder / "status").write_text(str(status))

    def asked(self) -> list[str]:
        asked = self.folder / "asked"
        return asked.read_text().split() if asked.exists() else []

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                       "XDG_CACHE_HOME": str(self.cache)}
        return subprocess.run([ROOT / "tools" / "run", *arguments], env=environment, timeout=120,
                              capture_output=True, text=True, cwd=self.folder)


@pytest.fixture(name="workshop")
def workshop_in_a_folder(tmp_path):
    return Workshop(tmp_path)


def test_builds_starts_answers_and_stops(workshop):
    # A relative path is from where the user stands.
    done = workshop.run("model.gguf", "--once", "--listen", workshop.listen)
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris.\n" in done.stdout
    assert workshop.asked() == ["build", "info"]
    assert f"--model {workshop.model} " in (workshop.folder / "arguments").read_text()


def test_a_model_keeps_its_name_where_it_is_a_link(workshop):
    # As in Hugging Face's cache, where the file is called by its hash.
    blob = workshop.folder / "f00d"
    workshop.model.rename(blob)
    workshop.model.symlink_to(blob)
    done = workshop.run("model.gguf", "--once", "--listen", workshop.listen)
    assert done.returncode == 0, done.stderr
    assert f"--model {workshop.model} " in (workshop.folder / "arguments").read_text()


def test_a_failing_build_ends_it(workshop):
    workshop.fail_build(1)
    done = workshop.run("model.gguf", "--once", "--listen", workshop.listen)
    assert done.returncode == 1
    assert f"the build failed, by {workshop.folder}/bazel; it needs Bazel 4.2" in done.stderr
    assert done.stdout == ""


def test_a_taken_port_is_told_before_the_build(workshop):
    host, port = workshop.listen.split(":")
    with socket.socket() as holder:
        holder.bind((host, int(port)))
        holder.listen()
        done = workshop.run("model.gguf", "--once", "--listen", workshop.listen)
    assert done.returncode == 1
    assert f"{workshop.listen} cannot be listened on" in done.stderr
    assert workshop.asked() == []


def test_launchers_of_another_bazel_get_the_one_of_setup(workshop):
    workshop.script("bazel-8", "#!/bin/bash\necho bazel 8.4.2\n")
    done = subprocess.run([ROOT / "tools" / "bazel", "--version"], capture_output=True, text=True,
                          env={**os.environ, "BAZEL_REAL": str(workshop.folder / "bazel-8")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bazel ") and "8.4.2" not in done.stdout


@pytest.mark.parametrize("arguments, status, mention", [
    (["missing.gguf"], 1, "no such model: missing.gguf"),
    (["--twice"], 2, "unknown option '--twice'"),
    (["model.gguf", "another.gguf"], 2, "more than one MODEL"),
    (["--listen"], 2, "tools/run [MODEL]"),
])
def test_wrong_arguments_are_told_at_once(workshop, arguments, status, mention):
    done = workshop.run(*arguments)
    assert done.returncode == status
    assert mention in done.stderr
    assert workshop.asked() == []


def test_help_names_the_options(workshop):
    done = workshop.run("--help")
    assert done.returncode == 0
    assert "--once" in done.stdout and "--listen" in done.stdout


def test_a_second_setup_finds_nothing_to_do():
    """tools/test has set up already; what the second run prints or takes would be work done."""
    stamp = ROOT / ".venv" / "requirements.sha256"
    before = stamp.stat().st_mtime_ns
    done = subprocess.run([ROOT / "tools" / "setup"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "installing" not in done.stderr and "making" not in done.stderr
    assert stamp.stat().st_mtime_ns == before
