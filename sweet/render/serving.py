"""The only server that a browser can reach: it listens on the loopback interface and answers for every host.

Each browser is configured to send all requests to this server as its proxy (see `sweet.render.firefox`). The server
never connects to another host: it serves the page that is being rendered under an invented host, the assets under the
addresses of `sweet.render.assets`, and answers everything else with status 204, on which a browser stays on its page.
Requests over TLS are answered over TLS, with a certificate made for this process only, so that pages load their assets
unchanged, and the browser can cache them, which avoids reading the same stylesheet of 3 MB for every page.

A second barrier is the content security policy of the pages, which allows only assets, and puts a page into the
browser's sandbox without dialogs, windows, downloads and forms.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweet.errors import SweetError
from sweet.render.assets import HOSTS, AssetStore, Served, picture_size

HOST = "page.invalid"
"""The host of the rendered pages, which no name server knows."""

LONGEST_HEAD = 64 * 1024
"""Maximum bytes of a request's head; a longer one ends the connection."""

_ASSET_SOURCES = " ".join(f"{scheme}://{host}" for host in HOSTS for scheme in ("http", "https"))

POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src 'unsafe-inline' 'unsafe-eval' data: blob: {_ASSET_SOURCES}",
        f"style-src 'unsafe-inline' data: blob: {_ASSET_SOURCES}",
        f"img-src data: blob: {_ASSET_SOURCES}",
        "font-src data:",
        "media-src data: blob:",
        "form-action 'none'",
        "worker-src 'none'",  # a worker has a clock and random numbers of its own, which settle.js does not reach
        # A sandboxed page may do only what is named here: no dialogs, windows, downloads, forms, printing, full screen.
        "sandbox allow-scripts allow-same-origin",
    )
)


class PageServer:
    """The server of one browser; `listen` opens it.

    Attributes:
        trouble: the error of an asset that the browser requested since the last call of `put`, or None.
    """

    def __init__(self, assets: AssetStore, tls: ssl.SSLContext) -> None:
        self.assets = assets
        self.port = 0
        self.trouble: SweetError | None = None
        self._tls = tls
        self._name = ""
        self._page: bytes | None = None
        self._listener: asyncio.Server | None = None
        self._busy: set[asyncio.Task[Any]] = set()

    async def listen(self) -> None:
        self._listener = await asyncio.start_server(self.answer, "127.0.0.1", 0, limit=LONGEST_HEAD)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close all connections; those over TLS without the closing handshake, for which they would wait."""
        if self._listener is not None:
            self._listener.close()
        busy = list(self._busy)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    def put(self, name: str, html: str) -> str:
        """Set the page to serve and return its address. It is served once; if it reloads itself, it stays unchanged."""
        self._name, self._page = name, html.encode("utf-8", "replace")
        self.trouble = None
        return f"http://{HOST}/{name}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a browser."""
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        tunnel = ""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, remainder = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
                target = remainder.rpartition(" ")[0]
                if method == "CONNECT" and not tunnel:
                    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                    await writer.drain()
                    await writer.start_tls(self._tls)
                    tunnel = target.removesuffix(":443")
                    continue
                address = f"https://{tunnel}{target}" if tunnel else target
                if method != "GET":
                    body = _NOTHING
                elif picture_size(address):  # drawing a large one takes longer than the other pages may wait
                    body = await asyncio.to_thread(self._reply, address)
                else:
                    body = self._reply(address)
                writer.write(body)
                await writer.drain()
                if method not in ("GET", "HEAD"):  # the body is not read
                    return
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ssl.SSLError):
            return  # the connection is closed, or the request is malformed
        except asyncio.CancelledError:
            return  # by `close`
        finally:
            self._busy.discard(task)
            writer.transport.abort()
            await asyncio.sleep(0)

    def _reply(self, address: str) -> bytes:
        parts = urlsplit(address)
        if parts.scheme == "http" and parts.netloc == HOST:
            if self._page is None or parts.path != f"/{self._name}":
                return _NOTHING
            page, self._page = self._page, None
            return _answer(Served(page, "text/html; charset=utf-8"), page=True)
        try:
            asset = self.assets.at(address)
        except SweetError as error:
            self.trouble = error
            return _NOTHING
        return _NOTHING if asset is None else _answer(asset, page=False)


_NOTHING = b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n"


def _answer(served: Served, *, page: bool) -> bytes:
    caching = f"no-store\r\nContent-Security-Policy: {POLICY}" if page else "public, max-age=31536000, immutable"
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {served.content_type}\r\nContent-Length: {len(served.body)}\r\n"
        f"Last-Modified: Mon, 01 Jan 2024 12:00:00 GMT\r\nAccess-Control-Allow-Origin: *\r\n"
        f"Cache-Control: {caching}\r\n\r\n"
    )
    return head.encode("latin-1") + served.body


def certificate() -> ssl.SSLContext:
    """Return a TLS context with a self-signed certificate for a year; the browsers accept any certificate. That the
    package cryptography is installed is checked with the browser (`sweet.render.firefox.find_firefox`)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    signed = builder.not_valid_after(now + datetime.timedelta(days=365)).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:  # ssl reads certificates only from files
        file = Path(folder) / "pair.pem"
        file.write_bytes(secret + signed.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(file)
    return context
