"""Grammars of JSON Schemas, against a validator of its own: what a grammar writes is valid, and what
is not valid is not taken.

Of the official suite of tests every schema that is understood is tried, if the suite is there: the
Debian package json-schema-test-suite, or a clone of json-schema-org/JSON-Schema-Test-Suite whose
folder JSON_SCHEMA_TEST_SUITE names.
"""

import functools
import json
import os
import pathlib

import jsonschema_rs
import pytest

from random_schemas import RandomSchemas

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "tests" / "data" / "json-schemas"
SUITE = pathlib.Path(os.environ.get("JSON_SCHEMA_TEST_SUITE", "/usr/share/json-schema-test-suite"))
DRAFTS = {
    "draft4": jsonschema_rs.Draft4Validator,
    "draft6": jsonschema_rs.Draft6Validator,
    "draft7": jsonschema_rs.Draft7Validator,
    "draft2019-09": jsonschema_rs.Draft201909Validator,
    "draft2020-12": jsonschema_rs.Draft202012Validator,
}
# JSON Schema's that a string is held to. Its others say nothing, as it has it.
FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"]
SAMPLES = 30
RANDOM_SCHEMAS = 2000


def question(schema, values=(), samples=SAMPLES) -> dict:
    return {"schema": json.dumps(schema), "samples": samples, "texts": [written(v) for v in values]}


def written(value) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def draft_of(schema: dict) -> str:
    return "draft7" if "draft-07" in schema.get("$schema", "") else "draft2020-12"


def as_validated(schema):
    """As validators have it: OpenAPI's `nullable` is a type, and a format says nothing where a pattern
    beside it says what the format is."""
    if isinstance(schema, list):
        return [as_validated(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {"nullable"} | ({"format"} if "pattern" in schema else set())
    plain = {name: as_validated(value) for name, value in schema.items() if name not in left_out}
    if schema.get("nullable") is True:
        plain["type"] = [schema["type"], "null"]
    return plain


def cases() -> list:
    return [pytest.param(case, id=f"{file.stem}: {case['name']}")
            for file in sorted(SCHEMAS.glob("*.json")) for case in json.loads(file.read_text())]


@pytest.mark.parametrize("case", cases())
def test_what_a_grammar_writes_is_valid(ask_grammars, case):
    values = case["valid"] + case["invalid"]
    answer, = ask_grammars([question(case["schema"], values)])
    assert "refused" not in answer
    schema = case["schema"]
    validator = DRAFTS[draft_of(schema)](as_validated(schema), validate_formats=True)
    for sample in answer["samples"]:
        assert validator.is_valid(json.loads(sample)), sample
    for value in case["valid"]:
        assert validator.is_valid(value), value
    accepted = dict(zip(map(written, values), answer["accepted"]))
    assert [text for text, taken in accepted.items() if not taken] == \
        [written(value) for value in case["invalid"]]


def test_random_schemas_have_no_invalid_text(ask_grammars):
    """A schema whose texts are valid may still be read as narrower than it is: of those that allow a
    value at all, most are to be understood."""
    schemas = RandomSchemas(seed=7)
    made = [schemas.next() for _ in range(RANDOM_SCHEMAS)]
    answers = ask_grammars([question(schema, samples=5) for schema in made])
    wrong = []
    for schema, answer in zip(made, answers):
        if "refused" in answer:
            continue
        validator = DRAFTS["draft2020-12"](schema, validate_formats=False)
        wrong += [f"{json.dumps(schema)} wrote {sample}" for sample in answer["samples"]
                  if not validator.is_valid(json.loads(sample))]
    assert wrong == []
    assert sum("samples" in answer for answer in answers) > RANDOM_SCHEMAS / 2


def suite_groups() -> list[tuple[str, jsonschema_rs.Validator, dict]]:
    """Names of groups of tests, their schemas' validators, and they."""
    groups = []
    for draft, validator in DRAFTS.items():
        folder = SUITE / "tests" / draft
        formats = [folder / "optional" / "format" / f"{name}.json" for name in FORMATS]
        for file in [*sorted(folder.glob("*.json")), *filter(pathlib.Path.is_file, formats)]:
            for group in json.loads(file.read_text()):
                groups.append((f"{draft} {file.stem}: {group['description']}",
                               functools.partial(validator, validate_formats=file in formats), group))
    return groups


@pytest.mark.skipif(not (SUITE / "tests").is_dir(), reason=f"no test suite in {SUITE}")
def test_the_official_suite_finds_no_invalid_text(ask_grammars):
    groups = suite_groups()
    answers = ask_grammars([question(group["schema"], [test["data"] for test in group["tests"]])
                   for _, _, group in groups])
    wrong, understood = [], 0
    for (name, validator_of, group), answer in zip(groups, answers):
        if "refused" in answer:
            continue
        understood += 1
        validator = validator_of(group["schema"])
        wrong += [f"{name}: wrote {sample}" for sample in answer["samples"]
                  if not validator.is_valid(json.loads(sample))]
        wrong += [f"{name}: took {written(test['data'])}"
                  for test, taken in zip(group["tests"], answer["accepted"])
                  if taken and not test["valid"]]
    assert wrong == []
    assert understood > len(groups) / 2
