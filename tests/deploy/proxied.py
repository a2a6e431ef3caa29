"""A reverse proxy of the samples in deploy/, before a real node: only ports and paths are replaced."""

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests.cli.processes import until
from tests.deploy.tools import DEPLOY, tool
from tests.node.running import free_port

NAME = "enc.example.org"
NODE = """
hosts = ["localhost"]
[proxy]
trusted = ["127.0.0.1"]
[limits]
connections_per_address = 0
incoming_bytes_per_address = 0
"""
"""The settings that a node needs behind these proxies."""


def certificate(folder: Path) -> tuple[Path, Path, Path]:
    """Return the files of an authority, a certificate for localhost, and its key."""
    authority, files = trustme.CA(), tuple(folder / f"{name}.pem" for name in ("ca", "chain", "key"))
    made = authority.issue_cert("localhost")
    for file, blobs in zip(files, ([authority.cert_pem], made.cert_chain_pems, [made.private_key_pem]), strict=True):
        file.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return files[0], files[1], files[2]


def nginx_config(folder: Path, sample: Path, port: int, upstream: str) -> Path:
    """Write a whole configuration of nginx around a sample; return its path."""
    _, chain, key = certificate(folder)
    text = re.sub(r"^ +listen \[::\].*\n", "", sample.read_text(), flags=re.MULTILINE)
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    text = text.replace(f"server_name {NAME}", "server_name _")
    text = re.sub(r"(?<=server )[\w.]+:7700", upstream, text)
    text = re.sub(r"(?<=ssl_certificate )\s*\S+;", f"{chain};", text)
    text = re.sub(r"(?<=ssl_certificate_key )\S+;", f"{key};", text)
    text = text.replace("/etc/nginx/enc-node.inc", str(DEPLOY / "nginx" / "enc-node.inc"))
    (folder / "site.conf").write_text(text)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}include {folder}/site.conf;\n}}\n"
    )
    return config


def caddy_config(folder: Path, sample: Path, port: int, upstream: str) -> Path:
    _, chain, key = certificate(folder)
    text = sample.read_text().replace(f"{NAME} {{", f"https://localhost:{port} {{\n\ttls {chain} {key}", 1)
    config = folder / "Caddyfile"
    text = text.replace("127.0.0.1:7700", upstream)
    config.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
    return config


COMMANDS = {
    "nginx": (nginx_config, DEPLOY / "nginx" / "enc.conf", ("-c",)),
    "caddy": (caddy_config, DEPLOY / "caddy" / "Caddyfile", ("run", "--adapter", "caddyfile", "--config")),
}


@contextmanager
def proxy(kind: str, folder: Path, upstream: str) -> Iterator[str]:
    """Run a proxy before the node at this address until the block ends; yield its URL."""
    write, sample, words = COMMANDS[kind]
    port, program = free_port(), tool(kind)
    command = [program, *words, str(write(folder, sample, port, upstream))]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    log = folder / "proxy.log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as process:
        try:
            until(lambda: process.poll() is not None or _answers(port))
            assert process.poll() is None, log.read_text()
            yield f"https://localhost:{port}"
        finally:
            process.kill()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
