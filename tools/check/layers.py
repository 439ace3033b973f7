#!/usr/bin/env python3
"""Fails on an include or a BUILD dependency against the arrows of the design.

    proto <- server -> engine -> {kvcache, kernels}

tools and tests may use all layers, nobody uses them; third_party is for all. Strong ids
(kvcache/types.h) cross every border but the one to kernels. Only server opens sockets, and below
the engine nobody reads JSON. Also checked: an include names our files from the repository root.

    tools/check/layers.py [ROOT]
"""

import ast
import os
import pathlib
import re
import subprocess
import sys
from typing import Iterator

# Who may use whom; a layer may always use itself and third_party.
ARROWS = {
    "proto": set(),
    "kernels": set(),
    "kvcache": set(),
    "engine": {"kernels", "kvcache"},
    "server": {"proto", "engine"},
    "configs": set(),
    "third_party": set(),
    "tools": {"proto", "kernels", "kvcache", "engine", "server", "configs", "tests"},
    "tests": {"proto", "kernels", "kvcache", "engine", "server", "configs", "tools"},
}
# Single files and targets that reach further than their layer.
ALSO_ALLOWED = {
    ("server", "kvcache/types.h"),
    ("server", "//kvcache:types"),
}
# Headers of libraries that belong to some layers (tools and tests may use them too).
HEADER_OWNERS = [
    (re.compile(r"(boost/(asio|beast)|sys/socket\.h|netinet/|arpa/|netdb\.h)"), {"server"}),
    (re.compile(r"(grpcpp?/|prometheus/)"), {"server"}),
    (re.compile(r"nlohmann/"), {"server", "engine"}),
]
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
# Attributes of a rule that name labels without using them.
NOT_DEPENDENCIES = {"visibility", "default_visibility", "tags", "name", "packages"}


def layer_of(path: str) -> str:
    return path.split("/", 1)[0]


def violates(user: str, used: str, item: str) -> bool:
    if used == user or used == "third_party" or used not in ARROWS:
        return False
    return used not in ARROWS[user] and (user, item) not in ALSO_ALLOWED


def include_violations(root: pathlib.Path, path: str) -> Iterator[str]:
    user = layer_of(path)
    for number, line in enumerate((root / path).read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, system = match.groups()
        header = quoted or system
        for pattern, owners in HEADER_OWNERS:
            if pattern.match(header) and user not in owners | {"tools", "tests", "third_party"}:
                yield f"{path}:{number}: {user} must not include <{header}>"
        if not quoted:
            continue
        if layer_of(quoted) in ARROWS:
            if violates(user, layer_of(quoted), quoted):
                yield f'{path}:{number}: {user} must not include "{quoted}"'
            elif not (root / quoted).exists() and not quoted.endswith(".pb.h"):
                yield f'{path}:{number}: "{quoted}" does not exist'
        elif "/" not in quoted or (root / path).parent.joinpath(quoted).exists():
            yield f'{path}:{number}: "{quoted}" is not a path from the repository root'


def labels_in(node: ast.AST) -> Iterator[tuple[int, str]]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            if child.value.startswith("//"):
                yield child.lineno, child.value


def used_labels(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Labels in the attributes of rules; a variable stands for the labels it was made of."""
    variables = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    variables[target.id] = statement.value
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name) and call.func.id in ("load", "package", "package_group"):
            continue
        for keyword in call.keywords:
            if keyword.arg in NOT_DEPENDENCIES:
                continue
            yield from labels_in(keyword.value)
            for name in ast.walk(keyword.value):
                if isinstance(name, ast.Name) and name.id in variables:
                    yield from labels_in(variables[name.id])


def build_violations(root: pathlib.Path, path: str) -> Iterator[str]:
    user = layer_of(path)
    try:
        tree = ast.parse((root / path).read_text())
    except SyntaxError as error:
        yield f"{path}:{error.lineno}: cannot be read: {error.msg}"
        return
    for number, label in sorted(set(used_labels(tree))):
        used = layer_of(label.removeprefix("//").replace(":", "/"))
        if violates(user, used, label):
            yield f"{path}:{number}: {user} must not depend on {label}"


def source_files(root: pathlib.Path) -> list[str]:
    """Tracked and new files in git, every file elsewhere."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True)
    if listed.returncode == 0:
        return [path for path in listed.stdout.splitlines() if (root / path).is_file()]
    return [os.path.relpath(os.path.join(parent, name), root)
            for parent, _, names in os.walk(root) for name in names]


def violations(root: pathlib.Path) -> Iterator[str]:
    for path in sorted(source_files(root)):
        if layer_of(path) not in ARROWS:
            continue
        if pathlib.PurePath(path).name in ("BUILD.bazel", "BUILD"):
            yield from build_violations(root, path)
        elif pathlib.PurePath(path).suffix in SOURCE_SUFFIXES:
            yield from include_violations(root, path)


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    found = list(violations(root))
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print(f"layers: {len(found)} violations", file=sys.stderr)
        return 1
    print("layers: no include and no dependency against the arrows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
