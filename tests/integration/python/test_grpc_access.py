"""Keys and TLS on the gRPC port, which are those of the HTTP one."""

import re
import shutil
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from access_tools import make_certificate, make_key
from grpc_services import Services, text_of

pytestmark = pytest.mark.no_tsan

GRPC = ("--grpc-listen", "127.0.0.1:0")


def port_of(daemon) -> int:
    return int(re.search(r"grpc=127\.0\.0\.1:([0-9]+)", daemon.log.read_text()).group(1))


def code_of(call) -> grpc.StatusCode:
    try:
        result = call()
        list(result) if hasattr(result, "__iter__") else result
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.fixture
def keyed(start_daemon, daemon_arguments, tmp_path):
    """A daemon that asks for keys, an API key and an administration key of it."""
    key = make_key(daemon_arguments[0], tmp_path / "keys", "a")
    admin = make_key(daemon_arguments[0], tmp_path / "admin", "root")
    daemon = start_daemon(*GRPC, f"--set=auth.keys_file={tmp_path / 'keys'}",
                          f"--set=auth.admin_keys_file={tmp_path / 'admin'}").wait_until_ready()
    return daemon, key, admin


def test_keys_open_what_they_are_for(keyed):
    daemon, key, admin = keyed
    with grpc.insecure_channel(f"127.0.0.1:{port_of(daemon)}") as channel:
        services = Services(channel, metadata=(("authorization", f"Bearer {key}"),))

        def generate(secret):
            metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
            return code_of(lambda: services("Inference/Generate", text={"text": "Hello"},
                                            params={"stop": {"max_tokens": 2}}, metadata=metadata))

        def statistics(secret):
            return code_of(lambda: services("Admin/CacheStatistics",
                                            metadata=(("authorization", f"Bearer {secret}"),)))

        assert generate(None) == grpc.StatusCode.UNAUTHENTICATED
        assert generate(key[:-1]) == grpc.StatusCode.UNAUTHENTICATED
        assert generate(key) == grpc.StatusCode.OK
        assert statistics(key) == grpc.StatusCode.PERMISSION_DENIED
        assert statistics(admin) == grpc.StatusCode.OK
        # Nothing of a message is read before its sender is known.
        for method in ("Inference/Generate", "Inference/Tokenize", "Admin/Drop"):
            send = channel.unary_stream(f"/refrain.v1.{method}")  # of bytes
            assert code_of(lambda: send(b"\xff", timeout=10)) == grpc.StatusCode.UNAUTHENTICATED
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=10).status == 1


def test_reflection_asks_for_a_key(keyed):
    daemon, key, admin = keyed
    with grpc.insecure_channel(f"127.0.0.1:{port_of(daemon)}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)

        def ask(secret, **question):
            """The answers, and the status in the end."""
            metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
            call = stub.ServerReflectionInfo(
                iter([reflection_pb2.ServerReflectionRequest(**question)] * 2), timeout=10,
                metadata=metadata)
            answers = []
            status = code_of(lambda: answers.extend(call))
            return answers, status

        for question in ({"list_services": ""}, {"file_containing_symbol": "refrain.v1.Inference"}):
            for secret in (None, key[:-1], "x" * 200):
                answers, status = ask(secret, **question)
                assert status == grpc.StatusCode.UNAUTHENTICATED
                for answer in answers:
                    assert answer.WhichOneof("message_response") == "error_response"
                    assert answer.error_response.error_code == status.value[0]
                    assert "API key" in answer.error_response.error_message
            for secret in (key, admin):
                answers, status = ask(secret, **question)
                assert status == grpc.StatusCode.OK
                assert len(answers) == 2
                assert answers[0].WhichOneof("message_response") != "error_response"


def test_tls_and_its_certificate_replaced_while_running(start_daemon, tmp_path):
    cert, key = make_certificate(tmp_path, "cert")
    old = shutil.copy(cert, tmp_path / "old.pem")
    daemon = start_daemon(*GRPC, f"--set=tls.cert_file={cert}",
                          f"--set=tls.key_file={key}").wait_until_ready()
    target = f"localhost:{port_of(daemon)}"

    def text(trusted):
        credentials = grpc.ssl_channel_credentials(open(trusted, "rb").read())
        # A connection of its own, not one that an earlier channel left.
        options = (("grpc.use_local_subchannel_pool", 1),)
        with grpc.secure_channel(target, credentials, options) as channel:
            return text_of(Services(channel)("Inference/Generate", text={"text": "Hello"},
                                             params={"stop": {"max_tokens": 2}}, timeout=5))

    assert text(old)
    with grpc.insecure_channel(target) as plain:
        assert code_of(lambda: Services(plain)("Inference/Models", timeout=5)) != grpc.StatusCode.OK
    new_cert, new_key = make_certificate(tmp_path, "next")
    shutil.copy(new_key, key)
    shutil.copy(new_cert, cert)
    deadline = time.monotonic() + 20
    while True:
        try:
            assert text(new_cert)
            break
        except grpc.RpcError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    with pytest.raises(grpc.RpcError):
        text(old)
