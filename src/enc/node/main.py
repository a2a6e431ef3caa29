"""Starts and stops a node: `run` is what `enc node run` calls."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from itertools import islice

import structlog
import uvloop
from msgspec.json import encode

from enc.core.errors import MisuseError
from enc.core.machine.state import EnclaveState
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Receipt
from enc.node.assembly import Node
from enc.node.config import NodeConfig
from enc.node.control.server import ControlServer
from enc.node.ops.key_file import AskPassphrase
from enc.node.ops.place import mark_if_copied
from enc.node.ops.registration import NodeRegistrar
from enc.node.ops.reload import SettingsReload
from enc.node.ops.signer import open_signer
from enc.node.sequence.commit_intake import MAX_BYTES
from enc.node.server import AdminServer, NodeServer, serving_limits
from enc.node.signatures.pool import SignaturePool
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.runtime.checked_http import authorities
from enc.runtime.log_throttle import LogThrottle
from enc.runtime.logs import setup_logs
from enc.runtime.memory import warn_if_little_memory
from enc.runtime.service_manager import ServiceManager
from enc.runtime.serving.descriptors import raise_file_limit
from enc.runtime.signals import end_on_next_signal

SAMPLE = 16
"""Enclaves that are checked at the start."""
GC_THRESHOLD = (10_000, 5, 400)
"""A batch makes thousands of objects that live for milliseconds, so the collector runs less often
than by default. It visits few of them at a time, and seldom all: the rules of large Manifests are
millions of objects, and no thread runs while it visits them.
"""
SWITCH_S = 0.0005
"""Longest time for which a thread keeps the interpreter while another waits for it. By default it is
ten times as long; and a commit passes from thread to thread several times.
"""

_log = structlog.get_logger("enc.node")


async def _serve(
    config: NodeConfig,
    store: Store,
    key: Signer,
    signatures: SignaturePool,
    sender_cores: set[int],
    cores: frozenset[int],
    manager: ServiceManager,
    throttle: LogThrottle,
    load: Callable[[], NodeConfig] | None,
) -> None:
    node, registrar = Node(config, store, key, signatures, sender_cores, cores), _registrar(config, key)

    def ready(url: str) -> None:
        line = {"url": url, "seq_pub": key.public.hex(), "admin": None if admin is None else admin.url}
        sys.stdout.write(encode({"ready": True, **line}).decode() + "\n")
        sys.stdout.flush()
        _log.info("ready", **line)
        if registrar is not None and not node.restored:
            registrar.start()

    server = NodeServer(node.app, config, node.drain, ready, node.http.quick, manager)
    node.watch(server.peers)
    admin = AdminServer(node.admin_app, config) if config.admin.host else None
    control = ControlServer(config.data_path, node.operations)
    if load is not None:
        apply = partial(_apply, node, server, throttle)
        node.loop.add_signal_handler(signal.SIGHUP, SettingsReload(config, load, apply).run)
    repeats = node.loop.create_task(_report_repeats(throttle))
    gc.freeze()  # existing objects stay, so the collector need not visit them
    gc.set_threshold(*GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_S)
    node.start()
    try:
        async with AsyncExitStack() as running:
            if admin is not None:
                await running.enter_async_context(admin.running())
            await running.enter_async_context(control.running())
            await server.run_until_stopped()
    finally:
        repeats.cancel()
        if registrar is not None:
            registrar.stop()
        end_on_next_signal()  # the event loop has removed its own handlers
        node.stop()


def _apply(node: Node, server: NodeServer, throttle: LogThrottle, config: NodeConfig) -> None:
    """Put changed settings into force."""
    setup_logs(config.log_level, config.log_format, throttle=throttle)
    raise_file_limit(config.limits.connections)
    node.apply(config)
    server.set_limits(serving_limits(config))


async def _report_repeats(throttle: LogThrottle) -> None:
    """Log how many repeats of entries were dropped, once they have ended."""
    while True:
        await asyncio.sleep(1)
        for event, count in throttle.ended().items():
            _log.warning("log_repeats", of=event, count=count)


def _assign_cores(config: NodeConfig) -> tuple[SignaturePool, set[int]]:
    """Start the processes that check signatures, and keep this one's threads, which share an interpreter, together.

    Returns the signature pool and the cores that are left to other processes; empty: all of them.
    """
    cores = sorted(os.sched_getaffinity(0))
    if not config.sequencing.one_core or len(cores) == 1:
        return SignaturePool(config.sequencing.verify_processes), set()
    own = cores[os.getpid() % len(cores)]
    others = set(cores) - {own}
    signatures = SignaturePool(config.sequencing.verify_processes, others)
    os.sched_setaffinity(0, {own})
    return signatures, others


def _signers(store: Store, state: EnclaveState) -> set[bytes]:
    """Return the log's sequencer and the one of its last event: they differ if the log moved away."""
    return {state.sequencer, *(event.sequencer for event in store.events(state.enclave, state.seq, 1))}


def check_key(store: Store, key: Signer, *, must_belong: bool = False) -> None:
    """Log an error if no enclave here belongs to this key: it may be another node's key.

    `must_belong`: raise MisuseError instead.
    """
    states = [state for enclave in islice(store.enclaves(), SAMPLE) if (state := store.load(enclave)) is not None]
    if not states or any(key.public in _signers(store, state) for state in states):
        return
    other = states[0].sequencer.hex()
    if must_belong:
        raise MisuseError(
            f"key.signer: the signer holds the key {key.public.hex()}, but the enclaves in this store are of {other}; "
            "start the signer with that key"
        )
    _log.error("key_of_no_enclave", seq_pub=key.public.hex(), sequencer=other)


def _registrar(config: NodeConfig, key: Signer) -> NodeRegistrar | None:
    """Return the registrar if the node registers itself in a registry.

    The client is imported on the thread that uses it.
    """
    where, endpoints = config.registry.announce_to, config.registry.endpoints or (config.public_url,)
    if not where:
        return None
    if not all(endpoints):
        raise MisuseError(
            "registry.announce_to: set registry.endpoints or public_url, so that others can reach the node"
        )
    url, _, rest = where.partition("#")
    id_, _, seq_pub = rest.partition(":")

    def register() -> Receipt | None:
        from enc.client import Client, Identity, Registry

        registry = Registry(url=url, enclave=bytes.fromhex(id_), seq_pub=bytes.fromhex(seq_pub) or None)
        pins = config.data_path / "pins"
        with Client(identity=Identity(key), registry=registry, pins=pins, patience=0) as client:
            return client.register_node(endpoints)

    return NodeRegistrar(register, endpoints)


def _check_registry(store: Store, config: NodeConfig) -> None:
    """Raise MisuseError if the enclave that lookups are served from is not a registry. It may be
    created later.
    """
    state = store.load(config.registry.id) if config.registry.id else None
    if state is not None and not state.policy.registry:
        raise MisuseError(f"registry: {config.registry.enclave}: the enclave is not a registry")


def run(config: NodeConfig, load: Callable[[], NodeConfig] | None = None, ask: AskPassphrase | None = None) -> int:
    """Run a node until it is stopped; return its exit code.

    `load` reads the settings again, at SIGHUP; in a terminal, SIGHUP ends the node with the
    terminal. `ask` asks a person for a passphrase.
    """
    if load is not None and os.isatty(0):
        load = None
    if load is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is ready; its processes always ignore it
    throttle = LogThrottle()
    setup_logs(config.log_level, config.log_format, throttle=throttle)
    manager = ServiceManager.take()  # before any child process starts
    raise_file_limit(config.limits.connections)
    warn_if_little_memory(config.memory_bytes + MAX_BYTES)
    authorities(config.push.ca_file, "push.ca_file")  # fail now: the sender reads the file later, in another process
    try:
        config.data_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise MisuseError(f"data: {config.data}: {e.strerror}") from None
    os.umask(0o077)  # only the node may read what it stores, whatever the directory allows
    key = open_signer(config, ask)
    with ExitStack() as stack:
        store = SqliteStore(config.store_path)
        stack.callback(store.close)
        if not config.dev:
            mark_if_copied(store, config.store_path, config.host_id)
        check_key(store, key, must_belong=bool(config.key.signer))
        _check_registry(store, config)
        cores = frozenset(os.sched_getaffinity(0))
        signatures, sender_cores = _assign_cores(config)
        stack.callback(signatures.close)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, store, key, signatures, sender_cores, cores, manager, throttle, load))
    _log.info("stopped")
    return 0
