"""C++ code of .proto files, made by the system's protoc."""

def cc_grpc_library(name, srcs, services = [], deps = [], visibility = None):
    """Messages of `srcs` and, for those in `services`, gRPC stubs and services.

    Headers are included as "proto/NAME.pb.h" and "proto/NAME.grpc.pb.h".
    """
    stems = [src[:-len(".proto")] for src in srcs]
    service_stems = [src[:-len(".proto")] for src in services]
    headers = [stem + ".pb.h" for stem in stems] + [stem + ".grpc.pb.h" for stem in service_stems]
    sources = [stem + ".pb.cc" for stem in stems] + [stem + ".grpc.pb.cc" for stem in service_stems]
    command = "/usr/bin/protoc -I. --cpp_out=$(GENDIR) $(SRCS)"
    if services:
        paths = " ".join(["$(location %s)" % src for src in services])
        command += (" && /usr/bin/protoc -I. --grpc_out=$(GENDIR)" +
                    " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " + paths)
    native.genrule(
        name = name + "_code",
        srcs = srcs,
        outs = headers + sources,
        cmd = command,
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        visibility = visibility,
        # What registers a file of services alone is referred to by nothing.
        alwayslink = True,
        deps = deps,
    )
