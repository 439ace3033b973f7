"""tools/packages.txt names what the build links: the machine that runs this may have more installed."""

import functools
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def packages(section: str) -> list[str]:
    lines, inside = [], False
    for line in (ROOT / "tools" / "packages.txt").read_text().splitlines():
        if line.startswith("["):
            inside = line == f"[{section}]"
        elif inside and line and not line.startswith("#"):
            lines += line.split("|")
    return lines


def linked_libraries() -> set[str]:
    text = (ROOT / "third_party" / "BUILD.bazel").read_text()
    named = set(re.findall(r'"-l([a-z0-9+_-]+)"', text))
    listed = set(re.findall(r'^        \("[a-z0-9]+", "([a-z0-9-]+)", \[', text, re.MULTILINE))
    return named | listed


@functools.cache
def with_dependencies(section: str) -> set[str]:
    """The installed packages of the section and all that they pull in."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package}|${Depends}, ${Pre-Depends}\n"],
                          text=True, check=True, stdout=subprocess.PIPE)
    depends = {}
    for line in done.stdout.splitlines():
        name, _, needs = line.partition("|")
        depends[name] = re.findall(r"[a-z0-9][a-z0-9+.-]+(?=[ :,(|]|$)", re.sub(r"\([^)]*\)", "", needs))
    found, waiting = set(), packages(section)
    while waiting:
        name = waiting.pop()
        if name in depends and name not in found:
            found.add(name)
            waiting += depends[name]
    return found


def owner(library: str) -> str | None:
    """The package of the file that the linker takes for -lLIBRARY."""
    for ending in (".so", ".a"):
        path = f"/usr/lib/x86_64-linux-gnu/lib{library}{ending}"
        done = subprocess.run(["dpkg", "-S", path], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            return done.stdout.partition(":")[0]
    return None


def test_the_build_file_is_understood():
    libraries = linked_libraries()
    assert {"grpc++", "ssl", "spdlog", "pcre2-8", "xxhash", "z", "absl_status"} <= libraries


@pytest.mark.parametrize("library", sorted(linked_libraries()))
def test_the_build_list_brings(library):
    package = owner(library)
    assert package is not None, f"no package on this machine has lib{library}"
    assert package in with_dependencies("build"), (
        f"-l{library} is of {package}, which tools/packages.txt neither lists nor pulls in")
