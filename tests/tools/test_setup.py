"""tools/setup on a machine where nothing is installed, with an apt that only notes what it is asked."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

FAKES = {
    "dpkg-query": "exit 1",  # knows none of the names
    "sudo": 'exec "$@"',
    "apt-get": 'echo "$*" >> "{folder}/asked"',
    # As apt does: in the user's language, unless it is told otherwise.
    "apt-cache": 'if [[ ${{LC_ALL:-}} == C ]]; then word=Candidate; else word=Installationskandidat; fi\n'
                 'echo "$2:"; echo "  $word: 1.0"',
}


@pytest.fixture(name="environment")
def environment_with_fakes(tmp_path):
    for name, body in FAKES.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{body.format(folder=tmp_path)}\n")
        path.chmod(0o755)
    without_locale = {name: value for name, value in os.environ.items()
                      if not name.startswith(("LC_", "LANG"))}
    return {**without_locale, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_finds_packages_whatever_the_users_language(environment, tmp_path):
    done = subprocess.run([ROOT / "tools" / "setup"], capture_output=True, text=True, timeout=60,
                          env={**environment, "LANG": "de_DE.UTF-8", "LANGUAGE": "de"})
    assert done.returncode == 0, done.stderr
    installed = next(line for line in (tmp_path / "asked").read_text().splitlines()
                     if " install " in line)
    # The first of the alternatives that the index offers.
    assert {"bazel-bootstrap", "libboost1.81-dev", "zlib1g-dev"} <= set(installed.split())
