"""Headers that most sources include, parsed once for all of them.

Half of a compilation of ours is the parsing of GoogleTest, Abseil and the standard library. A target
that depends on a precompiled_header can be compiled with `-include PACKAGE/NAME.h`; .bazelrc does that
(--config=precompiled, part of --config=opt and of tools/test --sanitize; the others, clang's among
them, still find an #include that is missing). Where g++ finds the flags of the two
compilations to differ it reads the header itself: slower, and all the same otherwise.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "".join(["#include <%s>\n" % name for name in ctx.attr.headers]))
    precompiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = precompiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                             ["-x", "c++-header"],
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([header], transitive = [toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % header.short_path,
    )
    files = depset([header, precompiled])
    return [
        DefaultInfo(files = files),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = files,
            quote_includes = depset([ctx.bin_dir.path]),
        )),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "headers": attr.string_list(mandatory = True, doc = "Of the system, as in #include <...>."),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
