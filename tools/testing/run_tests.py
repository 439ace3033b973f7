"""The body of tools/test: runs Bazel's tests, then pytest's, and counts the cases of both."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import disk_cache
import summary as summaries

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
DISK_CACHE = CACHE / "refrain-bazel"
DAEMON = "//server:refraind"
FAKE_DAEMON = "//tests/server:refraind_fake"  # the end-to-end tests find it beside the daemon
GRAMMAR_SAMPLES = "//tests/engine/grammar:grammar_samples"  # and this
TOOL_TESTS = "tests/tools"
END_TO_END_TESTS = "tests/integration/python"

OPTIMISED = ["--config=opt"]


def random_steps(count: int) -> str:
    """The tests' own default is 10^4 steps of a random run."""
    return f"--test_env=REFRAIN_RANDOM_STEPS={count}"


# A hundred times the steps of a usual run, on whatever else the machine is doing.
LONG_RUN = [random_steps(10**6), "--test_timeout=600,1800,3600,7200"]
# Windows of both lengths of every setting, not of what is served alone.
ALL_GOLDENS = ["--test_env=REFRAIN_GOLDEN_WINDOWS=all"]
GOLDEN_TESTS = "//tests/integration/golden/..."
# Under TSan a step takes ten times as long, and what it looks for shows early or by chance.
SANITIZERS = {
    "ASan+UBSan": ["--config=asan", "--config=ubsan", "--config=precompiled", *LONG_RUN],
    "TSan": ["--config=tsan", "--config=precompiled", random_steps(10**5)],
}
# Kernels of the emulated device, with its race detector: what links them, but for tests of tools and
# of shell scripts, which run none.
RACE_CHECK = ["--config=racecheck", *OPTIMISED, "--test_timeout=600,1800,3600,7200"]
DEVICE_TESTS = ('kind("cc_test", rdeps(//tests/..., //kernels/cuda/emulated:emulated_device)) '
                'except //tests/tools/...')
# Hours of arithmetic whose threads other tests have, too; and what runs in one thread.
NOT_UNDER_TSAN = [GOLDEN_TESTS, "//tests/kernels/cuda/...", "//tests/kernels/reference/...",
                  "//tests/kvcache/...", "//tools/..."]
NO_TESTS_COLLECTED = 5


class CannotRun(Exception):
    """What is missing before any test can run."""


def say(text: str) -> None:
    print(f"tools/test: {text}", file=sys.stderr, flush=True)


def bazel(command: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(["bazel", command, *arguments], cwd=ROOT, **options)


def bazel_query(expression: str) -> list[str]:
    done = bazel("query", "--noshow_progress", "--ui_event_filters=-info", expression, text=True,
                 stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise CannotRun(f"bazel query (exit status {done.returncode}) of {expression}")
    return done.stdout.split()


def shared_flags(flags: list[str]) -> list[str]:
    return [*flags, f"--disk_cache={DISK_CACHE}"]


def built_file(flags: list[str], label: str) -> pathlib.Path:
    done = bazel("info", *shared_flags(flags), "bazel-bin", text=True, check=True,
                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    package, name = label.removeprefix("//").split(":")
    return pathlib.Path(done.stdout.strip()) / package / name


def run_bazel_tests(flags: list[str], targets: list[str]) -> tuple[summaries.Summary, set[str]]:
    """`bazel test` of the targets, those that are no tests being built only."""
    with tempfile.TemporaryDirectory(prefix="refrain-test-") as scratch:
        events = pathlib.Path(scratch) / "events.json"
        done = bazel("test", "--keep_going", *shared_flags(flags),
                     f"--build_event_json_file={events}", "--", *targets)
        if not events.exists():
            return summaries.Summary(failures=[f"bazel test (exit status {done.returncode})"]), set()
        summary, built = summaries.read_build_events(events)
    no_test_targets = 4
    if done.returncode not in (0, no_test_targets) and not summary.failures:
        summary.failures.append(f"bazel test (exit status {done.returncode})")
    return summary, built


def run_pytest(folder: str, arguments: list[str],
               run_under: list[str] | None = None) -> summaries.Summary:
    with tempfile.TemporaryDirectory(prefix="refrain-test-") as scratch:
        report = pathlib.Path(scratch) / "junit.xml"
        done = subprocess.run(
            [*(run_under or []), sys.executable, "-m", "pytest", folder, "-q", f"--rootdir={ROOT}",
             "-p", "no:cacheprovider", f"--basetemp={scratch}/tmp", f"--junitxml={report}", *arguments],
            cwd=ROOT, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        try:
            summary = summaries.read_junit(report, folder)
        except (OSError, SyntaxError):  # ParseError is a SyntaxError
            summary = summaries.Summary()
    if done.returncode not in (0, NO_TESTS_COLLECTED) and not summary.failures:
        summary.failures.append(f"{folder} (pytest exit status {done.returncode})")
    return summary


def pytest_finds(folder: str, arguments: list[str]) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", folder, "-q", "--collect-only", "-p", "no:cacheprovider",
         *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return done.returncode != NO_TESTS_COLLECTED


def select_targets(text: str) -> list[str]:
    tests = bazel_query('tests(//...) except attr(tags, "[\\[ ]manual[,\\]]", tests(//...))')
    return [label for label in tests if text in label]


def run_everything(flags: list[str], model: str, text: str | None, marker: str = "not soak",
                   tool_tests: bool = True, run_under: list[str] | None = None,
                   excluded: list[str] | None = None) -> summaries.Summary:
    """Bazel's tests and pytest's, all but the `excluded` or those whose name holds `text`. Only
    the plain run has `tool_tests`, and two of pytest's files at a time: under a sanitizer one
    daemon is load enough."""
    selection = ["-k", text] if text else []
    at_a_time = ["-n", "2", "--dist", "loadfile"] if tool_tests else []
    daemon_arguments = ["-m", marker, *selection, "--model", model]
    end_to_end = pytest_finds(END_TO_END_TESTS, [*daemon_arguments, "--refraind", "/bin/false"])
    targets = ["//...", *(f"-{pattern}" for pattern in excluded or [])]
    if text:
        targets = select_targets(text) + (
            [DAEMON, FAKE_DAEMON, GRAMMAR_SAMPLES] if end_to_end else [])
    total, built = run_bazel_tests(flags, targets) if targets else (summaries.Summary(), set())
    if tool_tests:
        total.add(run_pytest(TOOL_TESTS, [*selection, *at_a_time]))
    if end_to_end and DAEMON in built:
        refraind = str(built_file(flags, DAEMON))
        total.add(run_pytest(END_TO_END_TESTS, [*daemon_arguments, "--refraind", refraind, *at_a_time],
                             run_under))
    elif end_to_end:
        total.failures.append(f"{END_TO_END_TESTS} ({DAEMON} did not build)")
    return total


def without_random_addresses() -> list[str]:
    """A prefix for programs under TSan: g++ 12's knows no mappings spread over 32 random bits."""
    try:
        bits = int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except (OSError, ValueError):
        return []
    return ["/usr/bin/setarch", "-R"] if bits > 28 else []


def run_sanitizers(names: list[str], model: str, text: str | None) -> summaries.Summary:
    total = summaries.Summary()
    for name in names:
        flags = SANITIZERS[name]
        say(name)
        prefix = without_random_addresses() if name == "TSan" else []
        run_under = [f"--run_under={' '.join(prefix)}"] if prefix else []
        marker = "not soak and not optimised" + (" and not no_tsan" if name == "TSan" else "")
        part = run_everything([*flags, *run_under], model, text, marker, tool_tests=False,
                              run_under=prefix,
                              excluded=NOT_UNDER_TSAN if name == "TSan" else None)
        say(f"{name}: {part.last_line()}")
        total.add(part)
    return total


def run_soak(model: str) -> summaries.Summary:
    """The tests tagged soak with 10^6 steps, and random requests to a daemon for ten minutes."""
    targets = bazel_query('attr(tags, "[\\[ ]soak[,\\]]", tests(//...))')
    flags = [*OPTIMISED, *LONG_RUN]
    total, built = run_bazel_tests(flags, [*targets, DAEMON, FAKE_DAEMON])
    if not {DAEMON, FAKE_DAEMON} <= built:
        return total
    refraind = str(built_file(flags, DAEMON))
    total.add(run_pytest(END_TO_END_TESTS, ["-m", "soak", "--model", model,
                                            "--refraind", refraind]))
    soak = subprocess.run([sys.executable, ROOT / "tools" / "testing" / "soak.py",
                           "--refraind", refraind, "--model", model])
    if soak.returncode == 0:
        total.passed += 1
    else:
        total.failures.append("random requests (soak.py)")
    return total


def run_race_check(text: str | None) -> summaries.Summary:
    targets = [label for label in bazel_query(DEVICE_TESTS) if not text or text in label]
    return run_bazel_tests(RACE_CHECK, targets)[0] if targets else summaries.Summary()


def run_fuzzer(target: str, binary: pathlib.Path, seconds: int, artefacts: pathlib.Path) -> bool:
    """Fuzzes from a copy of the kept corpus; what crashed is left in `artefacts`."""
    corpus = bazel_query(f"labels(data, {target}_corpus_test)")
    with tempfile.TemporaryDirectory(prefix="refrain-fuzz-") as scratch:
        seeds = pathlib.Path(scratch) / "seeds"
        seeds.mkdir()
        for number, label in enumerate(corpus):
            source = ROOT / label.removeprefix("//").replace(":", "/")
            for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
                if file.is_file():
                    shutil.copyfile(file, seeds / f"{number}-{file.name}")
        done = subprocess.run(
            [str(binary), str(seeds), f"-max_total_time={seconds}", "-timeout=25",
             "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=1",
             f"-artifact_prefix={artefacts}/{target.rpartition(':')[2]}-"],
            cwd=ROOT, env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"})
    return done.returncode == 0


def run_fuzzers(seconds: int, text: str | None) -> summaries.Summary:
    targets = [label for label in bazel_query("kind(cc_binary, //tests/fuzz/...)")
               if not text or text in label]
    flags = ["--config=fuzz"]
    summary = summaries.Summary()
    if not targets:
        return summary
    artefacts = ROOT / ".bazel" / "fuzz-artefacts"
    artefacts.mkdir(parents=True, exist_ok=True)
    for target in targets:
        if bazel("build", *shared_flags(flags), target).returncode != 0:
            summary.failures.append(f"{target} (did not build)")
            continue
        say(f"fuzzing {target} for {seconds} s")
        if run_fuzzer(target, built_file(flags, target), seconds, artefacts):
            summary.passed += 1
        else:
            summary.failures.append(f"{target} (see {artefacts})")
    return summary


def default_model() -> str:
    done = subprocess.run([ROOT / "tools" / "fetch_model"], text=True, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise CannotRun("no model to test with")
    return done.stdout.strip()


def positive_seconds(text: str) -> int:
    """libFuzzer takes 0 for no end."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/test", allow_abbrev=False)
    parser.add_argument("filter", nargs="?", help="part of a Bazel label or of a pytest name")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--sanitize", dest="sanitizers", action="store_const",
                      const=list(SANITIZERS), help="ASan+UBSan, then TSan")
    for name in SANITIZERS:
        mode.add_argument(f"--{name.partition('+')[0].lower()}", dest="sanitizers",
                          action="store_const", const=[name], help=f"{name} alone")
    mode.add_argument("--races", action="store_true",
                      help="kernels on the emulated device, with its race detector")
    mode.add_argument("--fuzz", type=positive_seconds, metavar="SECONDS", help="per fuzz target")
    mode.add_argument("--soak", action="store_true", help="the long tests")
    mode.add_argument("--goldens", action="store_true", help="all windows of every golden setting")
    arguments = parser.parse_args()
    for name in ("soak", "goldens"):
        if getattr(arguments, name) and arguments.filter:
            parser.error(f"--{name} runs all of its tests: it takes no filter ({arguments.filter})")
    return arguments


def run_what_is_asked(arguments: argparse.Namespace) -> summaries.Summary:
    if arguments.fuzz is not None:
        return run_fuzzers(arguments.fuzz, arguments.filter)
    if arguments.sanitizers:
        return run_sanitizers(arguments.sanitizers, default_model(), arguments.filter)
    if arguments.races:
        default_model()  # where the tests look for it
        return run_race_check(arguments.filter)
    if arguments.soak:
        return run_soak(default_model())
    if arguments.goldens:
        default_model()  # where the tests look for it
        return run_bazel_tests([*OPTIMISED, *ALL_GOLDENS], [GOLDEN_TESTS])[0]
    return run_everything(OPTIMISED, default_model(), arguments.filter)


def main() -> int:
    arguments = parse_arguments()
    started = time.monotonic()
    try:
        total = run_what_is_asked(arguments)
    except CannotRun as problem:
        total = summaries.Summary(failures=[str(problem)])
    disk_cache.prune(DISK_CACHE)

    sys.stderr.flush()
    for name in total.skips:
        print(f"skipped: {name}")
    for name in total.failures:
        print(f"FAILED: {name}")
    if not total.passed and not total.failures:
        print("nothing ran")
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    print(f"{minutes} min {seconds} s")
    print(total.last_line(), flush=True)
    return 0 if total.succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
