"""What tools/gpu_check does where its folders have no room, or let no program run."""

import subprocess

import pytest

from fake_gpu_pack import PASSES, Pack, gtest, step, with_smollm2


@pytest.fixture(name="pack")
def pack_of_cuda(tmp_path):
    return Pack(tmp_path)


def mount_temporary(pack, options):
    """The temporary folder is a file system of its own, seen by gpu_check alone."""
    pack.under = ["unshare", "-rm", "bash", "-c", f'mount -t tmpfs -o {options} none "$TMPDIR" && '
                  'exec "$@"', "bash"]
    if subprocess.run([*pack.under, "true"], capture_output=True, check=False,
                      env={"TMPDIR": str(pack.temporary), "PATH": "/usr/bin:/bin"}).returncode:
        pytest.skip("this machine lets nobody mount a file system")


# What was written of the model takes no room from steps behind it.
def test_a_model_that_does_not_fit_costs_its_own_steps_alone(pack):
    mount_temporary(pack, "size=1m")
    with_smollm2(pack, bytes(2 << 20))
    pack.step("smollm2", "smollm2", PASSES)
    pack.step("first", "gtest", gtest(First='mkdir -p "$XDG_CACHE_HOME" && '
                                      'echo text > "$XDG_CACHE_HOME/file"'))
    done, report = pack.run()
    assert done.returncode == 1
    detail = step(report, "smollm2")["detail"]
    assert detail.endswith("SmolLM2.gguf: cat: write error: No space left on device")
    assert step(report, "first")["result"] == "passed", step(report, "first")


def test_a_full_temporary_folder_loses_no_counts(pack):
    mount_temporary(pack, "size=1m")
    pack.step("fills", "gtest", gtest(
        First='mkdir -p "$XDG_CACHE_HOME"; ! head -c 2M /dev/zero > "$XDG_CACHE_HOME/file"'))
    pack.step("last", "gtest", PASSES)
    done, report = pack.run()
    assert done.returncode == 0, report
    assert step(report, "fills")["cases_passed"] == 1 and step(report, "last")["cases_passed"] == 2


# No card can be blamed for it.
def test_counts_that_are_missing_are_told(pack):
    pack.step("conformance", "gtest", "kill -9 $PPID\n")
    done, report = pack.run()
    assert done.returncode == 1
    detail = step(report, "conformance")["detail"]
    assert detail == f"gpu_cases left no counts in {pack.folder}/out/logs (full?): exit status 137"


def test_a_temporary_folder_that_lets_no_program_run_is_refused(pack):
    mount_temporary(pack, "noexec")
    pack.step("first", "gtest", PASSES)
    done, report = pack.run()
    assert done.returncode == 2 and report is None
    assert f"no program can be run from {pack.temporary}: set TMPDIR" in done.stderr
