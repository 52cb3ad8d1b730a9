"""What users know of the client of openai: its variables, proxies, certificates, and Azure."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sweet.errors import ServerError, UsageError
from sweet.llm.base import Completion, Sampling
from sweet.llm.connect import open_client
from sweet.llm.http import proxy_of
from sweet.llm.servers import azure_address, base_url
from sweet.tasks.base import Message
from tests.local_server import QuietHandler, serving

ASK = [Message(role="user", content="What is the rate per hour?")]
REPLY = {"choices": [{"message": {"content": "It is 5."}, "finish_reason": "stop"}]}


class Recording(QuietHandler):
    """Serves the model `m`, and records the first line and the headers of each request."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[tuple[str, str, dict[str, str]]]] = []

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(REPLY)

    def _answer(self, body: object) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.requests.append((self.command, self.path, headers))
        self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    Recording.requests.clear()
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def ask(*urls: str, model: str = "m") -> Completion:
    async def inside() -> Completion:
        async with open_client(model, urls, retry_timeout=0.2) as client:
            return await client.chat(ASK, Sampling(max_tokens=9))

    return asyncio.run(inside())


def test_address_organisation_and_project_come_from_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with serving(Recording) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        assert ask().replies[0].text == "It is 5."
    (_, _, headers), (method, path, chat) = Recording.requests
    assert (method, path) == ("POST", "/v1/chat/completions")
    for sent in (headers, chat):
        assert sent["openai-organization"] == "org-1"
        assert sent["openai-project"] == "proj-1"
        assert sent["authorization"] == "Bearer a-key"
        assert not [name for name in sent if name.startswith("x-stainless")], "nothing about this machine is sent"


def test_a_model_on_this_machine_needs_no_server(monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert ask(model=str(checkpoint)).model == str(checkpoint)


def test_a_proxy_of_the_environment_is_used_but_for_hosts_that_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Recording) as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        assert ask("http://models.example:8000/v1").replies[0].text == "It is 5."
        assert [path for _, path, _ in Recording.requests] == [
            "http://models.example:8000/v1/models",
            "http://models.example:8000/v1/chat/completions",
        ]
        monkeypatch.setenv("NO_PROXY", "models.example")
        with pytest.raises(ServerError):
            ask("http://models.example:8000/v1")
        assert len(Recording.requests) == 2


def test_the_proxy_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_of("https://a.example/v1") is None
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", ".inside.example")
    assert proxy_of("https://a.example/v1") == "http://proxy.example:3128"
    assert proxy_of("https://b.inside.example/v1") is None
    assert proxy_of("http://a.example/v1") is None
    assert proxy_of("https://127.0.0.1/v1") is None, "no dialogue leaves this machine on its way to this machine"
    monkeypatch.setenv("ALL_PROXY", "socks5://user:secret@proxy.example:1080")
    with pytest.raises(UsageError, match="not an HTTP proxy") as refused:
        proxy_of("http://a.example/v1")
    assert "secret" not in str(refused.value)


@contextmanager
def https(folder: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server with a certificate that it signed itself, and the file of the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of this test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file, secret = folder / "certificate.pem", folder / "key.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    with ThreadingHTTPServer(("127.0.0.1", 0), Recording) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}/v1", file
        finally:
            server.shutdown()
            thread.join()


def test_a_certificate_of_ones_own_is_trusted_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with https(tmp_path) as (url, file):
        with pytest.raises(UsageError, match=r"(?i)certificate.*SSL_CERT_FILE"):
            ask(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert ask(url).replies[0].text == "It is 5."


@pytest.mark.parametrize("in_address", [False, True])
def test_azure_is_asked_by_deployment_version_and_key(in_address: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
    monkeypatch.setenv("OPENAI_API_KEY", "another-key")
    with serving(Recording) as url:
        if in_address:
            given = [f"{url}/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"]
        else:
            given = []
            monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", url)
            monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
        assert ask(*given, model="my-gpt").replies[0].text == "It is 5."
    ((method, path, headers),) = Recording.requests
    assert (method, path) == ("POST", "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21")
    assert headers["api-key"] == "azure-key"
    assert "authorization" not in headers


def test_what_azure_wants_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "https://us.openai.azure.com"
    with pytest.raises(UsageError, match="version of its interface") as refused:
        ask(address)
    assert "OPENAI_API_VERSION" in str(refused.value.fix)
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    with pytest.raises(UsageError, match="no key for Azure") as refused:
        ask(address)
    assert "AZURE_OPENAI_API_KEY" in str(refused.value.fix)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://us.openai.azure.com/", ("https://us.openai.azure.com", None)),
        ("https://us.openai.azure.com/openai/deployments/a%20b?api-version=1", ("https://us.openai.azure.com", "a b")),
        ("https://gateway.example/openai/deployments/x", ("https://gateway.example", "x")),
        ("https://us.openai.azure.com/openai/v1", None),
        ("https://api.openai.com/v1", None),
    ],
)
def test_addresses_of_azure(text: str, parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    found = azure_address(base_url(text))
    assert (found and (found.endpoint, found.deployment)) == parts
