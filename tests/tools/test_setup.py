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
                 'if [[ " ${{ABSENT:-}} " == *" $2 "* ]]; then exit 0; fi\n'
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


def set_up(environment, **variables):
    return subprocess.run([ROOT / "tools" / "setup"], capture_output=True, text=True, timeout=60,
                          env={**environment, **variables})


def names_installed(folder):
    lines = (folder / "asked").read_text().splitlines()
    return set(next(line for line in lines if " install " in line).split())


def test_finds_packages_whatever_the_users_language(environment, tmp_path):
    done = set_up(environment, LANG="de_DE.UTF-8", LANGUAGE="de")
    assert done.returncode == 0, done.stderr
    # The first of the alternatives that the index offers.
    assert {"bazel-bootstrap", "libboost1.81-dev", "zlib1g-dev"} <= names_installed(tmp_path)


# apt-get install would ask to lift the hold.
def test_a_package_on_hold_is_there(environment, tmp_path):
    query = tmp_path / "dpkg-query"
    query.write_text("""#!/bin/bash
for name in "$@"; do
  case $name in
    git) echo "hi  $name" ;;
    zlib1g-dev) echo "rc  $name" ;;
    [a-z]*) echo "ii  $name" ;;
  esac
done
""")
    done = set_up(environment)
    assert done.returncode == 0, done.stderr
    assert "git" not in names_installed(tmp_path)
    assert "zlib1g-dev" in names_installed(tmp_path)


def test_takes_the_other_name_where_a_release_has_only_that(environment, tmp_path):
    done = set_up(environment, ABSENT="libboost1.81-dev")
    assert done.returncode == 0, done.stderr
    names = names_installed(tmp_path)
    assert "libboost1.83-dev" in names and "libboost1.81-dev" not in names


def test_says_which_package_a_release_has_under_no_name(environment, tmp_path):
    done = set_up(environment, ABSENT="libboost1.81-dev libboost1.83-dev")
    assert done.returncode != 0
    assert "no package libboost1.81-dev or libboost1.83-dev in this release's package index" in done.stderr
    assert " install " not in (tmp_path / "asked").read_text()
