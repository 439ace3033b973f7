"""Rules for CUDA sources, which are compiled twice.

A .cu file is compiled by nvcc (cuda_library, only where the toolkit is: --config=cuda) and by the
host compiler for the emulated device, with no toolkit at all. What is built on top of them exists
in both variants too: `name` for a GPU, `name_emulated` for the emulated device.

The two variants of one function may meet in one program (a test that links the daemon's back end
and the emulated one), so the emulated variant lives in namespace refrain::kernels::cuda_emulated:
its targets, and all that depend on them, are compiled with cuda defined as cuda_emulated.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

TOOLKIT = "/usr/local/cuda"

NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    "-ccbin",
    "/usr/bin/g++",
    "-Xcompiler",
    "-fPIC",
    # Device code at 0.4 of the default's size, unpacked when it is loaded (drivers from 12.4 on).
    "-compress-mode=size",
    "--expt-relaxed-constexpr",
    "-I.",
]

# Machine code for sm_90a runs on Hopper only, PTX for compute_80 on every later device.
ARCHITECTURES = [
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_80,code=[sm_80,compute_80]",
]

EMULATED_DEFINES = ["cuda=cuda_emulated"]

# Kernels of the emulated device that tell the race detector of each load and store.
RACE_CHECK_COPTS = [
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "-g1",
]
RACE_INSTRUMENTATION = "//kernels/cuda/emulated:race_instrumentation"

_NEEDS_CUDA = select({
    "//kernels/cuda:with_cuda": [],
    "//conditions:default": ["//kernels/cuda:never"],
})

def _cuda_objects_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    own = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    headers = depset(
        ctx.files.hdrs,
        transitive = [deps.compilation_context.headers],
    )
    defines = ["-D" + define for define in deps.compilation_context.defines.to_list()]
    objects = []
    for source in ctx.files.srcs:
        name = "_objects/%s/%s.o" % (ctx.label.name, source.basename)

        # Host code as such: nvcc's own front end knows less C++ than g++.
        language = "cu" if source.extension == "cu" else "c++"
        compiled = ctx.actions.declare_file(name)
        ctx.actions.run(
            executable = TOOLKIT + "/bin/nvcc",
            arguments = NVCC_FLAGS + ARCHITECTURES + defines +
                        ["-x", language, "-c", source.path, "-o", compiled.path],
            inputs = depset([source], transitive = [headers]),
            outputs = [compiled],
            env = {"PATH": TOOLKIT + "/bin:/usr/bin:/bin"},
            mnemonic = "Nvcc",
            progress_message = "Compiling %s for GPUs" % source.short_path,
        )
        objects.append(compiled)
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        disallow_dynamic_library = True,
    )
    info = CcInfo(compilation_context = own, linking_context = linking)
    return [
        DefaultInfo(files = depset(objects)),
        cc_common.merge_cc_infos(cc_infos = [info, deps]),
    ]

cuda_library = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu", ".cc"]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _variant(label):
    return label + "_emulated"

def cuda_kernels(name, srcs, hdrs = [], deps = [], plain_deps = [], copts = [], visibility = None):
    """Kernels: `name` by nvcc, `name_emulated` by the host compiler.

    Args:
      name: of the GPU variant.
      srcs: .cu files.
      hdrs: their headers.
      deps: targets that have both variants.
      plain_deps: targets that have one.
      copts: for the host compiler.
      visibility: of both variants.
    """
    cuda_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + plain_deps + [
            "//kernels/cuda:device_language",
            "//kernels/cuda:toolkit_runtime",
        ],
        target_compatible_with = _NEEDS_CUDA,
        visibility = visibility,
    )
    wrappers = []
    for source in srcs:
        wrapper = source.replace(".cu", "_emulated.cc")
        native.genrule(
            name = name + "_" + wrapper.replace(".", "_"),
            outs = [wrapper],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), source),
        )
        wrappers.append(wrapper)
    native.cc_library(
        name = _variant(name),
        srcs = wrappers,
        hdrs = hdrs,
        textual_hdrs = srcs,
        copts = ["-O2", "-Wno-unknown-pragmas"] + copts + select({
            "//kernels/cuda:with_race_check": RACE_CHECK_COPTS,
            "//conditions:default": [],
        }),
        defines = EMULATED_DEFINES,
        deps = [_variant(dep) for dep in deps] + plain_deps + [
            "//kernels/cuda:device_language",
            "//kernels/cuda/emulated:emulated_device",
        ] + select({
            "//kernels/cuda:with_race_check": [RACE_INSTRUMENTATION],
            "//conditions:default": [],
        }),
        visibility = visibility,
    )

def cuda_host_library(name, srcs = [], hdrs = [], deps = [], plain_deps = [], visibility = None):
    """Host code over runtime.h and over kernels, in both variants. Arguments as cuda_kernels."""
    native.cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + plain_deps,
        target_compatible_with = _NEEDS_CUDA,
        visibility = visibility,
    )
    native.cc_library(
        name = _variant(name),
        srcs = srcs,
        hdrs = hdrs,
        defines = EMULATED_DEFINES,
        deps = [_variant(dep) for dep in deps] + plain_deps,
        visibility = visibility,
    )
