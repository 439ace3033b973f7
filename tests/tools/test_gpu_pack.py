"""tools/gpu_pack cuts what gpu_check needs in parts, none of them over the limit."""

import fnmatch
import json
import os
import random
import re
import resource
import shutil
import subprocess

import pytest

from fake_gpu_pack import GPU, PASSES, ROOT, step


def pack(folder, *options, large=7, programs=(), **how):
    """tools/gpu_pack in `folder`, with a build that is none and programs that are none but for
    `programs`, scripts by their names; one has `large` bytes."""
    tools = folder / "tools"
    tools.mkdir()
    text = (ROOT / "tools" / "gpu_pack").read_text()
    for label in {"//tools/bench:gpu_info", *re.findall(r"//[\w/]+:\w+", text)}:
        program = folder / "bin" / label[2:].replace(":", "/")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("program")
        if program.name in programs:
            program.write_text("#!/bin/bash\n" + programs[program.name])
    one = folder / "bin/tests/kernels/cuda/sampling_gpu_test"
    one.write_bytes(random.Random(1).randbytes(large))
    for name, script in {"bazel": f"[ $1 = build ] || echo {folder}/bin", "strip": ""}.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    return subprocess.run(
        [ROOT / "tools" / "gpu_pack", "--out", "pack", *options], cwd=folder, text=True,
        capture_output=True, env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, **how)


def test_gpu_pack_takes_a_model_beside_who_calls_it(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"model of bytes")
    done = pack(tmp_path, "--model", "model.gguf")
    assert done.returncode == 0, done.stderr
    parts = [tmp_path / "pack" / f"part{n}" / f"smollm2.{n - 1}" for n in (2, 3)]
    assert b"".join(part.read_bytes() for part in parts) == b"model of bytes"
    assert "smollm2_file=model.gguf\n" in (tmp_path / "pack" / "part1" / "manifest").read_text()


# As on a full disk: the rest of the pack is smaller than the limit.
def test_gpu_pack_fails_where_the_model_cannot_be_written(tmp_path):
    limit = 8 << 20
    with open(tmp_path / "model.gguf", "wb") as model:
        model.truncate(3 * limit)
    done = pack(tmp_path, "--model", "model.gguf", preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 1
    assert "tools/gpu_pack: " in done.stderr and "smollm2.1 cannot be written" in done.stderr


def test_gpu_pack_refuses_a_model_that_is_none_before_it_builds(tmp_path):
    done = pack(tmp_path, "--model", "none.gguf")
    assert done.returncode == 2
    assert done.stderr == "tools/gpu_pack: --model is 'none.gguf', which cannot be read\n"


# Programs hold the same kernels, megabytes of them.
def test_what_files_have_in_common_is_packed_once(tmp_path):
    kernels = "# " + random.Random(1).randbytes(2 << 20).hex() + "\n"
    assert pack(tmp_path, "--without-smollm2", programs={
        name: kernels for name in ("gpu_info", "refraind", "all_linear_test")}).returncode == 0
    listed = (tmp_path / "pack/part1/files").read_text().splitlines()
    assert sum(int(line.split()[0]) for line in listed) > 12 << 20
    assert (tmp_path / "pack/part1/files.xz").stat().st_size < 7 << 20


def test_gpu_pack_fails_where_a_part_is_over_the_limit(tmp_path):
    done = pack(tmp_path, "--without-smollm2", "--part-mib", "6", large=7 << 20)
    assert done.returncode == 1
    assert re.search(r"part1 has 1\d{7} bytes, more than 6291456\n", done.stderr)


# As many as it takes, none of them over the limit, which gpu_check makes one file of again.
def test_a_model_is_cut_in_parts_and_joined_again(tmp_path):
    model = random.Random(1).randbytes(14_000_001)
    (tmp_path / "model.gguf").write_bytes(model)
    joined = 'cmp "$XDG_CACHE_HOME/refrain/models/model.gguf" ' + f"{tmp_path}/model.gguf || exit\n"
    done = pack(tmp_path, "--model", "model.gguf", "--part-mib", "6", programs={
        "gpu_info": GPU, "smollm2_cuda_test": joined + PASSES})
    assert done.returncode == 0, done.stderr
    parts = sorted((tmp_path / "pack").glob("part*/smollm2.*"))
    assert [str(part.relative_to(tmp_path / "pack")) for part in parts] == [
        f"part{n + 1}/smollm2.{n}" for n in (1, 2, 3)]
    assert all(part.stat().st_size < 6 << 20 for part in parts)
    assert b"".join(part.read_bytes() for part in parts) == model

    # A machine with nothing but bash, coreutils and what the scripts above call.
    tools = tmp_path / "target"
    tools.mkdir()
    listed = subprocess.run(["dpkg", "-L", "coreutils"], text=True, capture_output=True, check=True)
    for tool in [*re.findall(r"^(?:/usr)?/bin/(.+)$", listed.stdout, re.M), "cmp"]:
        (tools / tool).symlink_to(shutil.which(tool))
    checked = subprocess.run(
        [tmp_path / "pack/part1/gpu_check", "--out", "out", "--only", "smollm2"], cwd=tmp_path,
        text=True, capture_output=True, timeout=60, check=False, env={"PATH": str(tools)})
    assert checked.returncode == 0, checked.stdout + checked.stderr
    report = json.loads((tmp_path / "out/gpu-check.json").read_text())
    assert step(report, "smollm2")["cases_passed"] == 2


# All that gpu_check uses of part1; files.xz has a checksum of its own.
def test_a_damaged_file_of_part1_is_refused(tmp_path):
    done = pack(tmp_path, "--model", "/dev/null", programs={"gpu_info": GPU})
    assert done.returncode == 0, done.stderr
    part1 = tmp_path / "pack/part1"
    names = sorted(str(path.relative_to(part1)) for path in part1.rglob("*") if path.is_file())
    assert names == ["files", "files.xz", "gpu_answers", "gpu_cases", "gpu_check", "manifest", "steps",
                     "xz/liblzma.so.5", "xz/xz"]
    # Without it gpu_check knows a manifest that was cut short.
    assert (part1 / "manifest").read_text().splitlines()[-1].startswith("sha256_steps=")
    for name in sorted({*names} - {"files.xz", "manifest"}):
        content = (part1 / name).read_bytes()
        (part1 / name).write_bytes(content + b"\n")
        checked = subprocess.run([part1 / "gpu_check", "--out", "out"], cwd=tmp_path, text=True,
                                 capture_output=True, timeout=60, check=False)
        assert checked.returncode == 2, checked.stderr
        assert f"{part1}/{name} is not what was packed" in checked.stderr
        (part1 / name).write_bytes(content)


# Both cases of memory count what is free of the whole card, which programs beside them change.
@pytest.mark.parametrize("source, case, kind", [
    ("device_random_steps_test", "NeitherSharingNorTheWayOfReadingNorOthersChangeABit", "gtest"),
    ("device_random_steps_test", "JoiningAndLeavingLeaveNothingBehind", "alone"),
    ("full_card_test", "ARequestIsAnsweredAsElsewhereOrEndsForWantOfMemoryAndTheEngineGoesOn", "alone"),
])
def test_what_counts_the_cards_memory_runs_alone(tmp_path, source, case, kind):
    text = (ROOT / f"tests/engine/{source}.cc").read_text()
    suite = re.search(rf"TEST_P\((\w+), {case}\)", text)[1]
    assert pack(tmp_path, "--without-smollm2").returncode == 0
    steps = [line.split() for line in (tmp_path / "pack/part1/steps").read_text().splitlines()]
    kinds = [step[1] for step in steps if step[3] == "bin/device_steps_test" and fnmatch.fnmatch(
        f"Backends/{suite}.{case}/cuda", step[4].removeprefix("--gtest_filter=").split("-")[0])]
    assert kinds == [kind]
