"""Counts test cases, for the last line `N passed, N failed` of tools/test.

Reads what Bazel and pytest write for machines: Bazel's build events (--build_event_json_file),
which name each test's test.xml, and pytest's --junitxml. What did not build, crashed, timed out or
gave no result counts as one failed case, so that nothing can go missing silently.
"""

import dataclasses
import json
import pathlib
import urllib.parse
import urllib.request
import xml.etree.ElementTree


@dataclasses.dataclass
class Summary:
    """Cases by outcome; failures and skips by name."""

    passed: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    skips: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: "Summary") -> None:
        self.passed += other.passed
        self.failures += other.failures
        self.skips += other.skips

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def succeeded(self) -> bool:
        """Something ran and nothing failed."""
        return self.passed > 0 and not self.failures

    def last_line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed"


def read_junit(path: pathlib.Path, label: str) -> Summary:
    """Cases of one JUnit file. Raises OSError, or ParseError for a file cut short by a crash.

    GoogleTest writes the values of parameters as they are, ill-formed UTF-8 too: that is replaced.
    """
    summary = Summary()
    text = path.read_bytes().decode("utf-8", errors="replace")
    for case in xml.etree.ElementTree.fromstring(text.encode()).iter("testcase"):
        names = [case.get("classname"), case.get("name")]
        name = f"{label} {'.'.join(part for part in names if part)}"
        children = {child.tag for child in case}
        if children & {"failure", "error"}:
            summary.failures.append(name)
        elif "skipped" in children or case.get("result") in ("skipped", "suppressed"):
            summary.skips.append(name)
        elif case.get("status") == "notrun":
            summary.skips.append(f"{name} (disabled)")
        else:
            summary.passed += 1
    return summary


def _path_of(uri: str) -> pathlib.Path:
    return pathlib.Path(urllib.request.url2pathname(urllib.parse.urlsplit(uri).path))


def _read_test_result(label: str, result: dict) -> Summary:
    status = result.get("status", "NO_STATUS")
    reports = [output["uri"] for output in result.get("testActionOutput", [])
               if output.get("name") == "test.xml" and "uri" in output]
    try:
        summary = read_junit(_path_of(reports[0]), label) if reports else Summary()
    except (OSError, xml.etree.ElementTree.ParseError):
        summary = Summary()
    if status == "PASSED":
        if not (summary.passed or summary.failures or summary.skips):
            summary.failures.append(f"{label} (passed without running a case)")
    elif not summary.failures:
        # A crash after the last case, a time limit, a sanitizer's report at exit.
        summary.failures.append(f"{label} ({status})")
    return summary


def read_build_events(path: pathlib.Path) -> tuple[Summary, set[str]]:
    """Cases of one `bazel test`, and the labels that built."""
    results: dict[tuple, tuple[int, str, dict]] = {}
    built: set[str] = set()
    broken: dict[str, str] = {}
    unloadable: dict[str, str] = {}
    incompatible: set[str] = set()
    kinds: dict[str, str] = {}  # "cc_test rule", by label
    for line in path.read_text().splitlines():
        event = json.loads(line)
        kind, key = next(iter(event.get("id", {}).items()), (None, None))
        if kind == "testResult":
            run = (key["label"], key.get("run", 0), key.get("shard", 0))
            attempt = key.get("attempt", 0)
            # Only the last attempt of a run counts.
            if run not in results or attempt >= results[run][0]:
                results[run] = (attempt, key["label"], event.get("testResult", {}))
        elif kind == "targetConfigured":
            kinds[key["label"]] = event.get("configured", {}).get("targetKind", "")
        elif kind == "targetCompleted":
            if event.get("completed", {}).get("success"):
                built.add(key["label"])
            elif event.get("aborted", {}).get("reason") == "SKIPPED":
                incompatible.add(key["label"])
            else:
                broken[key["label"]] = "did not build"
        elif kind in ("pattern", "unconfiguredLabel", "configuredLabel") and "aborted" in event:
            label = key.get("label") or " ".join(key.get("pattern", ["?"]))
            reason = event["aborted"].get("reason", "UNKNOWN")
            if reason != "SKIPPED":
                unloadable[label] = f"could not be loaded: {reason}"

    summary = Summary()
    for _, label, result in results.values():
        summary.add(_read_test_result(label, result))
    tested = {label for _, label, _ in results.values()}
    # A label that is missing also breaks the targets that depend on it: one count is enough.
    broken = broken or unloadable
    summary.failures += [f"{label} ({why})" for label, why in sorted(broken.items())
                         if label not in tested]
    # A library for another build has nothing to be tested.
    summary.skips += [f"{label} (not for this build)" for label in sorted(incompatible)
                      if kinds.get(label, "_test rule").endswith("_test rule")]
    return summary, built
