"""Commands as the documentation writes them can be run."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def lines_of_pages():
    for page in PAGES:
        for line in page.read_text().splitlines():
            yield page.name, line


def test_what_is_to_be_tested_holds_tests():
    commands = [(page, line, label) for page, line in lines_of_pages()
                for command in re.findall(r"bazel test([^`]*)", line)
                for label in re.findall(r"//([\w/]+)", command)]
    assert commands
    for page, line, label in commands:
        folder = ROOT / label.rstrip("/")
        rules = "".join(path.read_text() for path in folder.rglob("BUILD.bazel"))
        assert re.search(r"\w+_test\(", rules), f"{page}: {line}"


def test_plots_are_drawn_by_the_python_that_can():
    commands = [(page, line) for page, line in lines_of_pages() if "tools/plot/load_plot --" in line]
    assert commands
    for page, line in commands:
        assert ".venv/bin/python tools/plot/load_plot" in line, f"{page}: {line}"


@pytest.mark.parametrize("arguments", [["--help"], ["llama-3.2-1b", "out"]])
def test_random_gguf_says_what_it_lacks(arguments):
    program = str(ROOT / "tools" / "bench" / "random_gguf")
    done = subprocess.run(
        [sys.executable, "-c", "import runpy, sys\nsys.modules['gguf'] = None\n"
         f"sys.argv = {[program, *arguments]!r}\nrunpy.run_path({program!r}, run_name='__main__')"],
        capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"random_gguf: .*pip install gguf.*\n", done.stderr), done.stderr
