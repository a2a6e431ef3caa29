"""HTTPS, and certificates that change."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trustme

from enc.core.errors import MisuseError
from tests.node.certificates import Certificate, secured
from tests.node.served import PATIENCE_S, SMALL, Served, good


def is_trusted(node: Served, authority: trustme.CA) -> bool:
    """Return whether a new connection is secured by this authority's certificate."""
    with secured(node, authority) as client:
        try:
            return client.get("/info").status_code == 200
        except httpx.ConnectError as e:
            if "certificate verify failed" not in str(e):
                raise
            return False


def test_https(certificate: Certificate) -> None:
    with Served(certificate.config) as node:
        assert node.url.startswith("https://127.0.0.1:")
        node.http.close()
        with secured(node, certificate.authority) as node.http:
            enclave = node.create(SMALL)
            enclave.send("bob", "message", "sealed twice")
            assert enclave.seqs("bob") == [0, 1]
            assert not is_trusted(node, trustme.CA())
            with pytest.raises(httpx.HTTPError):
                httpx.get(node.url.replace("https", "http") + "/info", timeout=PATIENCE_S, trust_env=False)
            good(node.get("/info"))


def test_http() -> None:
    with Served() as node:
        assert node.url.startswith("http://127.0.0.1:")
        with pytest.raises(httpx.HTTPError):
            httpx.get(node.url.replace("http", "https") + "/info", timeout=PATIENCE_S, trust_env=False)
        good(node.get("/info"))


def reload(node: Served) -> None:
    node.on_loop(node.server._certificates.reload_if_changed)


def test_a_new_certificate_is_taken_without_a_restart(certificate: Certificate) -> None:
    old = certificate.authority
    with Served(certificate.config) as node, secured(node, old) as lasting:
        good(lasting.get("/info"))
        new = certificate.write()
        reload(node)
        assert (is_trusted(node, new), is_trusted(node, old)) == (True, False)
        good(lasting.get("/info"))  # on the connection from before


def test_the_node_looks_for_new_certificates_by_itself(certificate: Certificate) -> None:
    with Served(certificate.config) as node:
        new = certificate.write()
        ticked = asyncio.run_coroutine_threadsafe(node.server.on_tick(10), node.node.loop)
        assert ticked.result(PATIENCE_S) is False
        assert is_trusted(node, new)


Breaks = Callable[[Certificate], Any]


@pytest.mark.parametrize(
    "breaks",
    [
        lambda certificate: certificate.files[0].unlink(),
        lambda certificate: certificate.files[1].unlink(),
        lambda certificate: certificate.put(0, b"no certificate"),
        lambda certificate: certificate.put(1, b"no key"),
        lambda certificate: certificate.write(key=False),
        lambda certificate: certificate.write(chain=False),
    ],
    ids=["no chain", "no key", "broken chain", "broken key", "another's key", "another's chain"],
)
def test_files_that_do_not_fit_together_leave_the_old_ones_in_use(certificate: Certificate, breaks: Breaks) -> None:
    old = certificate.authority
    with Served(certificate.config) as node:
        breaks(certificate)
        reload(node)
        assert is_trusted(node, old)
        new = certificate.write()
        reload(node)
        assert (is_trusted(node, new), is_trusted(node, old)) == (True, False)


@pytest.mark.parametrize("file", [0, 1])
def test_a_node_does_not_start_without_its_certificate(certificate: Certificate, file: int) -> None:
    certificate.files[file].write_bytes(b"nonsense")
    with pytest.raises(MisuseError, match="tls"):
        Served(certificate.config)
    certificate.files[file].unlink()
    with pytest.raises(MisuseError, match="tls"):
        Served(certificate.config)
