"""A model in several GGUF files is the model of the one file that they were."""

import pathlib
import struct

import httpx
from conftest import Daemon

# Bytes of a value by its type; 8 is a string, 9 an array.
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def end_of_value(data: bytes, kind: int, at: int) -> int:
    if kind == 8:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != 9:
        return at + FIXED[kind]
    of, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if of != 8:
        return at + count * FIXED[of]
    for _ in range(count):
        at = end_of_value(data, 8, at)
    return at


def split_values(number: int, tensors: int) -> bytes:
    values = b""
    for key, kind, value in (("split.no", 2, struct.pack("<H", number)),
                             ("split.count", 2, struct.pack("<H", 2)),
                             ("split.tensors.count", 5, struct.pack("<i", tensors))):
        values += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
    return values


def write_parts(model: pathlib.Path, stem: pathlib.Path) -> list[pathlib.Path]:
    """What the model says in one file, its tensors in the other."""
    data = model.read_bytes()
    magic, version, tensors, values = struct.unpack_from("<4sIQQ", data)
    at = 24
    for _ in range(values):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at = end_of_value(data, struct.unpack_from("<I", data, at)[0], at + 4)
    end_of_values = at
    for _ in range(tensors):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4 + 8
    padding = lambda size: bytes(-size % 32)  # noqa: E731
    paths = [stem.with_name(f"{stem.name}-0000{i}-of-00002.gguf") for i in (1, 2)]
    paths[0].write_bytes(struct.pack("<4sIQQ", magic, version, 0, values + 3) +
                         data[24:end_of_values] + split_values(0, tensors))
    head = struct.pack("<4sIQQ", magic, version, tensors, 3) + split_values(1, tensors)
    head += data[end_of_values:at]
    paths[1].write_bytes(head + padding(len(head)) + data[at + len(padding(at)):])
    return paths


def answer(url: str, **body) -> dict:
    reply = httpx.post(f"{url}/v1/completions", timeout=120, json={
        "prompt": "The capital of France is", "max_tokens": 16, "temperature": 0, **body})
    reply.raise_for_status()
    return reply.json()


def test_either_part_is_served_as_the_whole(daemon_arguments, daemon, tmp_path):
    expected = answer(daemon.url)["choices"][0]["text"]
    paths = write_parts(pathlib.Path(daemon_arguments[1]), tmp_path / "smol")
    for path in paths:
        folder = tmp_path / path.stem
        folder.mkdir()
        own = Daemon(daemon_arguments[0], str(path), folder).wait_until_ready()
        found = answer(own.url)
        assert found["choices"][0]["text"] == expected
        assert found["model"] == "smol"
        assert "2 files, " in own.log.read_text()
        assert own.stop() == 0, own.log.read_text(errors="replace")


def test_a_part_alone_says_what_is_missing(daemon_arguments, tmp_path):
    paths = write_parts(pathlib.Path(daemon_arguments[1]), tmp_path / "smol")
    paths[1].unlink()
    own = Daemon(daemon_arguments[0], str(paths[0]), tmp_path)
    assert own.process.wait(timeout=30) != 0
    log = own.log.read_text()
    assert "smol-00002-of-00002.gguf" in log and "the model is in 2 parts" in log
