"""schemathesis sends what /openapi.json describes, right and wrong, and compares the answers."""

import subprocess
import sys

import pytest

# Which statuses, bodies and types are answered, and that what the schema forbids is refused. That
# all it allows is accepted is not checked: fields have combinations that no schema says.
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,"
          "response_schema_conformance,negative_data_rejection")


def run_schemathesis(url: str, folder, examples: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json",
         "--checks", CHECKS, "--max-examples", str(examples), "--seed", "7",
         "--phases", "examples,coverage,fuzzing", "--generation-database", "none",
         "--request-timeout", "20", "--no-color"],
        cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_description_is_true(fake_daemon, tmp_path):
    run_schemathesis(fake_daemon.url, tmp_path, examples=5)


@pytest.mark.soak
def test_the_description_is_true_at_length(fake_daemon, tmp_path):
    run_schemathesis(fake_daemon.url, tmp_path, examples=1000)
