"""tools/check/layers.py fails on each kind of planted violation and on nothing else."""

import pathlib
import subprocess
import sys

import layers

TREE = {
    "kvcache/types.h": "",
    "kvcache/pool.h": '#include "absl/status/status.h"\n#include "kvcache/types.h"\n',
    "kernels/ops.h": "#include <vector>\n",
    "engine/engine.h": '#include "kernels/ops.h"\n#include "kvcache/types.h"\n'
                       '#include "nlohmann/json.hpp"\n',
    "engine/text/bpe.h": "",
    "server/main.cc": '#include "engine/engine.h"\n#include "kvcache/types.h"\n'
                      "#include <boost/asio.hpp>\n",
    "tests/engine/engine_test.cc": '#include "kernels/ops.h"\n#include "server/main.cc"\n',
    "engine/BUILD.bazel": 'cc_library(name = "e", deps = ["//kernels:ops", "//kvcache:types"],\n'
                          '           visibility = ["//server:__subpackages__"])\n',
}


def plant(folder: pathlib.Path, path: str, text: str) -> list[str]:
    """The violations of the sound tree with one file more."""
    for name, content in {**TREE, path: text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return list(layers.violations(folder))


def test_the_arrows_themselves_pass(tmp_path):
    assert plant(tmp_path, "engine/more.h", "#include <string>\n") == []


def test_kvcache_must_not_include_kernels(tmp_path):
    found = plant(tmp_path, "kvcache/bad.h", '#pragma once\n#include "kernels/ops.h"\n')
    assert found == ['kvcache/bad.h:2: kvcache must not include "kernels/ops.h"']


def test_kernels_must_not_even_include_the_strong_ids(tmp_path):
    assert len(plant(tmp_path, "kernels/bad.cc", '#  include "kvcache/types.h"\n')) == 1


def test_engine_must_not_include_server(tmp_path):
    assert len(plant(tmp_path, "engine/bad.cc", '#include "server/main.cc"\n')) == 1


def test_server_reaches_the_layers_below_engine_only_by_engine(tmp_path):
    assert len(plant(tmp_path, "server/bad.cc", '#include "kvcache/pool.h"\n')) == 1


def test_nobody_includes_tests(tmp_path):
    assert len(plant(tmp_path, "engine/bad.cc", '#include "tests/engine/engine_test.cc"\n')) == 1


def test_only_server_opens_sockets(tmp_path):
    found = plant(tmp_path, "engine/bad.cc", "#include <boost/beast/http.hpp>\n")
    assert found == ["engine/bad.cc:1: engine must not include <boost/beast/http.hpp>"]


def test_kernels_do_not_read_json(tmp_path):
    assert len(plant(tmp_path, "kernels/bad.cc", '#include "nlohmann/json.hpp"\n')) == 1


def test_paths_are_from_the_root(tmp_path):
    assert len(plant(tmp_path, "engine/bad.cc", '#include "engine.h"\n')) == 1
    assert len(plant(tmp_path, "engine/bad.cc", '#include "text/bpe.h"\n')) == 1


def test_an_include_of_nothing_is_found(tmp_path):
    assert len(plant(tmp_path, "engine/bad.cc", '#include "engine/gone.h"\n')) == 1


def test_build_dependency_against_the_arrows_is_found(tmp_path):
    found = plant(tmp_path, "kvcache/BUILD.bazel",
                  'cc_library(name = "x", deps = [":types", "//kernels:ops"])\n')
    assert found == ["kvcache/BUILD.bazel:1: kvcache must not depend on //kernels:ops"]


def test_build_dependency_in_a_variable_or_a_select_is_found(tmp_path):
    text = ('_DEPS = ["//server:main"]\n'
            'cc_library(name = "x", deps = _DEPS)\n'
            'cc_library(name = "y", deps = select({"//third_party:cuda": ["//tests:z"]}))\n')
    assert len(plant(tmp_path, "engine/BUILD.bazel", text)) == 2


def test_naming_who_may_see_a_target_is_no_dependency(tmp_path):
    text = ('_USERS = ["//server:__subpackages__"]\n'
            'cc_library(name = "x", visibility = _USERS)\n')
    assert plant(tmp_path, "kernels/BUILD.bazel", text) == []


def test_the_script_exits_with_1_on_a_violation_and_0_without(tmp_path):
    script = layers.__file__
    plant(tmp_path, "kvcache/bad.h", "")
    assert subprocess.run([sys.executable, script, tmp_path], capture_output=True).returncode == 0
    plant(tmp_path, "kvcache/bad.h", '#include "kernels/ops.h"\n')
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "kvcache/bad.h:1" in done.stderr
