"""Fuzz targets that every build can run over their kept corpus."""

def fuzz_target(name, srcs, deps, corpus, data = [], copts = [], tags = []):
    """Declares the fuzzer NAME and the test NAME_corpus_test.

    The fuzzer is built by clang only: bazel build --config=fuzz //tests/fuzz:NAME. The test feeds
    every file of the corpus to LLVMFuzzerTestOneInput with any compiler; a crash fails it.

    Args:
      name: the fuzzer; by convention ends in _fuzz.
      srcs: files that define LLVMFuzzerTestOneInput.
      deps: what they include.
      corpus: files or a glob, at least one.
      data: files that the target itself reads.
      copts: compiler options of srcs.
      tags: of the test.
    """
    if not corpus:
        fail("fuzz_target %s: the corpus is empty" % name)
    native.cc_library(
        name = name + "_input",
        testonly = True,
        srcs = srcs,
        copts = copts,
        data = data,
        visibility = ["//visibility:private"],
        deps = deps,
        alwayslink = True,
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        srcs = ["//tests/fuzz:corpus_main.cc"],
        args = ["$(rootpath %s)" % f if ":" in f else native.package_name() + "/" + f for f in corpus],
        data = corpus,
        tags = tags,
        visibility = ["//visibility:private"],
        deps = [":" + name + "_input"],
    )
    native.cc_binary(
        name = name,
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        visibility = ["//visibility:private"],
        deps = [":" + name + "_input"],
    )
