"""The last line of tools/test counts everything, above all what went wrong."""

import json
import pathlib

import summary

PASSING = '<testcase name="One" classname="A" status="run" result="completed"/>'
FAILING = '<testcase name="Two" classname="A"><failure message="no"/></testcase>'
ERROR = '<testcase name="crash"><error message="exited"/></testcase>'
SKIPPED = '<testcase name="Three" classname="A" result="skipped"><skipped message="x"/></testcase>'
DISABLED = '<testcase name="DISABLED_Four" classname="A" status="notrun" result="suppressed"/>'


class Events:
    """Writes build events as Bazel does, with the test.xml files that they name."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.lines = []

    def result(self, label, status, *cases, attempt=1, shard=1, xml=None):
        path = self.folder / f"{len(self.lines)} test.xml"  # a space: URIs quote it
        path.write_text(xml if xml is not None else
                        f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
        self.lines.append({
            "id": {"testResult": {"label": label, "run": 1, "shard": shard, "attempt": attempt}},
            "testResult": {"status": status, "testActionOutput": [
                {"name": "test.log", "uri": "file:///nowhere"},
                {"name": "test.xml", "uri": path.as_uri()}]}})
        return self.built(label)

    def built(self, label):
        return self.completed(label, completed={"success": True})

    def completed(self, label, **payload):
        self.lines.append({"id": {"targetCompleted": {"label": label}}, **payload})
        return self

    def read(self):
        path = self.folder / "events.json"
        path.write_text("\n".join(json.dumps(line) for line in self.lines))
        return summary.read_build_events(path)


def test_counts_cases_and_not_targets(tmp_path):
    total, built = Events(tmp_path).result("//a:t", "PASSED", PASSING, PASSING).read()
    assert total.last_line() == "2 passed, 0 failed"
    assert total.succeeded
    assert built == {"//a:t"}


def test_counts_each_failing_case_by_name(tmp_path):
    total, _ = Events(tmp_path).result("//a:t", "FAILED", PASSING, FAILING).read()
    assert total.last_line() == "1 passed, 1 failed"
    assert total.failures == ["//a:t A.Two"]
    assert not total.succeeded


def test_a_crash_is_one_failure(tmp_path):
    total, _ = Events(tmp_path).result("//a:t", "FAILED", ERROR).read()
    assert total.last_line() == "0 passed, 1 failed"


def test_a_failed_target_whose_cases_all_passed_is_one_failure(tmp_path):
    # A sanitizer's report at exit comes after every case has passed.
    total, _ = Events(tmp_path).result("//a:t", "FAILED", PASSING).read()
    assert total.last_line() == "1 passed, 1 failed"


def test_a_time_limit_without_a_whole_report_is_one_failure(tmp_path):
    total, _ = Events(tmp_path).result("//a:t", "TIMEOUT", xml="<testsuites><tests").read()
    assert total.failures == ["//a:t (TIMEOUT)"]


def test_a_pass_without_a_case_is_a_failure(tmp_path):
    total, _ = Events(tmp_path).result("//a:t", "PASSED").read()
    assert not total.succeeded and total.failed == 1


def test_skipped_and_disabled_cases_are_neither_passed_nor_failed(tmp_path):
    total, _ = Events(tmp_path).result("//a:t", "PASSED", PASSING, SKIPPED, DISABLED).read()
    assert total.last_line() == "1 passed, 0 failed"
    assert len(total.skips) == 2


def test_only_skipped_cases_is_no_success(tmp_path):
    total, _ = Events(tmp_path).result("//a:t", "PASSED", SKIPPED).read()
    assert not total.succeeded


def test_a_target_that_does_not_build_is_one_failure(tmp_path):
    events = Events(tmp_path).result("//a:t", "PASSED", PASSING)
    total, built = events.completed("//a:broken", completed={}).read()
    assert total.failures == ["//a:broken (did not build)"]
    assert built == {"//a:t"}


def test_a_target_for_another_build_is_no_failure(tmp_path):
    events = Events(tmp_path).result("//a:t", "PASSED", PASSING)
    total, _ = events.completed("//a:cuda_test", aborted={"reason": "SKIPPED"}).read()
    assert total.succeeded
    assert total.skips == ["//a:cuda_test (not for this build)"]


def test_a_library_for_another_build_is_not_worth_a_line(tmp_path):
    events = Events(tmp_path).result("//a:t", "PASSED", PASSING)
    for label, kind in (("//a:cuda_test", "cc_test rule"), ("//a:cuda", "cc_library rule")):
        events.lines.append({"id": {"targetConfigured": {"label": label}},
                             "configured": {"targetKind": kind}})
        events.completed(label, aborted={"reason": "SKIPPED"})
    total, _ = events.read()
    assert total.skips == ["//a:cuda_test (not for this build)"]


def test_a_missing_dependency_fails_the_target_once(tmp_path):
    events = Events(tmp_path).completed("//a:t", aborted={"reason": "ANALYSIS_FAILURE"})
    events.lines.append({"id": {"configuredLabel": {"label": "//nope:x"}},
                         "aborted": {"reason": "ANALYSIS_FAILURE"}})
    total, _ = events.read()
    assert total.failures == ["//a:t (did not build)"]


def test_a_pattern_that_cannot_be_loaded_is_a_failure(tmp_path):
    events = Events(tmp_path)
    events.lines.append({"id": {"pattern": {"pattern": ["//..."]}},
                         "aborted": {"reason": "LOADING_FAILURE"}})
    total, _ = events.read()
    assert total.failed == 1 and not total.succeeded


def test_the_last_attempt_counts_and_every_shard_does(tmp_path):
    events = Events(tmp_path)
    events.result("//a:flaky", "FAILED", FAILING, attempt=1)
    events.result("//a:flaky", "PASSED", PASSING, attempt=2)
    events.result("//a:sharded", "PASSED", PASSING, shard=1)
    events.result("//a:sharded", "PASSED", PASSING, shard=2)
    total, _ = events.read()
    assert total.last_line() == "3 passed, 0 failed"


def test_nothing_run_is_no_success(tmp_path):
    total, _ = Events(tmp_path).built("//a:library").read()
    assert total.last_line() == "0 passed, 0 failed"
    assert not total.succeeded


def test_ill_formed_bytes_in_a_parameter_do_not_hide_the_cases(tmp_path):
    path = tmp_path / "test.xml"
    path.write_bytes(b"<testsuites><testsuite>"
                     b'<testcase name="Bad/0" value_param="\xff" status="run" result="completed"/>'
                     b"</testsuite></testsuites>")
    assert summary.read_junit(path, "//a:a").passed == 1
