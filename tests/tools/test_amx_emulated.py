"""tools/check/amx_emulated: what it reads from the serial line, and when it says that all passed."""

import pytest

SERIAL = """\
[    0.000000] Linux version 6.1\r
@@ begin machine\r
flags\t\t: fpu amx_bf16 amx_tile amx_int8\r
@@ end 0\r
@@ begin kernels/cpu:linear_test\r
[ RUN      ] Levels/LinearTest.IsExact/amx\r
[       OK ] Levels/LinearTest.IsExact/amx (812 ms)\r
[ RUN      ] Levels/LinearTest.Scales/amx\r
[  SKIPPED ] Levels/LinearTest.Scales/amx (0 ms)\r
[==========] 2 tests from 1 test suite ran. (812 ms total)\r
[  PASSED  ] 1 test.\r
@@ end 0\r
@@ begin answer amx f16\r
{"level":"info","msg":"ready"}\r
@@ answer {"choices":[{"message":{"role":"assistant","content":"Paris."},"logprobs":[-0.25]}]}\r
@@ end 0\r
@@ begin answer avx512_vnni f16\r
@@ answer {"choices":[{"message":{"role":"assistant","content":"Paris."},"logprobs":[-0.25]}]}\r
@@ end 0\r
"""
STEPS = ["kernels/cpu:linear_test", "answer amx f16", "answer avx512_vnni f16"]


@pytest.fixture
def tool(load_tool):
    return load_tool("amx_emulated", folder="check")


def judged(tool, serial: str) -> list[str]:
    return tool.judge(tool.read_serial(serial), STEPS)


def test_reads_cases_and_answers(tool):
    machine, linear, amx, _ = tool.read_serial(SERIAL)
    assert machine.status == 0
    assert linear.cases == {"OK": ["Levels/LinearTest.IsExact/amx"], "FAILED": [],
                            "SKIPPED": ["Levels/LinearTest.Scales/amx"]}
    assert amx.answer == "Paris. [-0.25]"


def test_all_passed(tool):
    assert judged(tool, SERIAL) == []


@pytest.mark.parametrize("old, new, complaint", [
    ("       OK ] Levels/LinearTest.IsExact/amx (", "  FAILED  ] Levels/LinearTest.IsExact/amx, where "
     "GetParam() = 4-byte object <06-00 00-00> (", "IsExact/amx"),
    ("1 test.\r\n@@ end 0", "1 test.\r\n@@ end 139", "exit status 139"),
    ("       OK ]", "  SKIPPED ]", "no case ran"),
    ('"content":"Paris."', '"content":""', "no answer"),
    ("@@ answer {", "@@ answer wget: server returned error: HTTP/1.1 503 {", "no answer"),
])
def test_finds_what_went_wrong(tool, old, new, complaint):
    assert old in SERIAL
    assert complaint in " ".join(judged(tool, SERIAL.replace(old, new, 1)))


@pytest.mark.parametrize("old, new", [("Paris.", "London."), ("-0.25", "-0.2500001")])
def test_answers_that_differ_are_wrong(tool, old, new):
    before, last = SERIAL.rsplit(old, 1)
    assert "answers differ" in judged(tool, before + new + last)[0]


def test_a_machine_that_stopped_passed_nothing(tool):
    cut = SERIAL[:SERIAL.index("[       OK ]")]
    assert judged(tool, cut) == ["kernels/cpu:linear_test: did not end", "answer amx f16: did not begin",
                                 "answer avx512_vnni f16: did not begin"]


def test_steps_are_chosen_by_a_part_of_their_name(tool):
    assert [step.label for step in tool.steps_of("conformance:linear_test")] == [
        "//tests/kernels/conformance:linear_test"]
    answers = tool.steps_of("answer")
    assert {step.label for step in answers} == {"//server:refraind"}
    assert answers[0].command == ["answer", "amx", "auto"]
