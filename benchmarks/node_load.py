"""The load on a node: prebuilt bytes over raw sockets in one thread, as a separate process.

Node and load share the cores, so a request must cost the load little: it builds all requests before the clock starts,
and parses all answers after it stopped. In between it only counts and stores answers.
`run` starts the process; a Job goes in by standard input, a Result comes out by standard output, both as msgpack.
"""

import gc
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

CHUNK = 1 << 18
PATIENCE = 30.0
"""Seconds without any answer after which a run has failed."""
TICKS = os.sysconf("SC_CLK_TCK")


class Job(Struct, kw_only=True):
    port: int
    pid: int
    """The node's process, whose CPU time is measured over the same seconds."""
    bodies: list[bytes]
    """One request each; an empty one is a GET."""
    path: str = "/"
    web_socket: bool = False
    """Use one connection with `window` requests in flight, instead of `window` connections with one each."""
    window: int = 64
    rate: float = 0.0
    """Requests a second, sent at fixed times, independent of the answers; 0 sends the next one after each answer."""


class Result(Struct, kw_only=True):
    seconds: float
    answers: list[bytes]
    """The body of each answer, in the order of the requests. Empty if the request failed."""
    refusals: list[bytes]
    """Errors, and answers without a request."""
    latencies: list[float]
    """Seconds from when the request was due, sorted."""
    done: list[float]
    """The time of each answer, in the order of the requests, by the clock of `time.perf_counter` here."""
    load_cores: float
    node_cores: float
    other_cores: float
    """CPU seconds per second, user and system: of the load, of the node, and of all other processes."""

    @property
    def per_second(self) -> float:
        return len(self.answers) / self.seconds

    def percentile(self, share: float) -> float:
        """Return a latency in milliseconds."""
        return self.latencies[min(int(len(self.latencies) * share), len(self.latencies) - 1)] * 1e3


def run(job: Job) -> Result:
    """Run the job in a separate process."""
    done = subprocess.run([sys.executable, __file__], input=msgspec.msgpack.encode(job), stdout=-1, check=True)  # noqa: S603
    return msgspec.msgpack.decode(done.stdout, type=Result)


class Clock:
    """The times at which each request was due and was answered."""

    def __init__(self, count: int, rate: float) -> None:
        self.count, self.rate, self.start = count, rate, time.perf_counter()
        self.due = [self.start + i / rate for i in range(count)] if rate else [0.0] * count
        self.done = [0.0] * count

    def ready(self, i: int) -> bool:
        """Return whether request `i` may be sent now. Without a rate, this call sets the time at which it is due."""
        if i >= self.count:
            return False
        now = time.perf_counter()
        if not self.rate:
            self.due[i] = now
        return self.due[i] <= now

    def wait(self, epoll: select.epoll, i: int) -> list[tuple[int, int]]:
        """Return the sockets that can be read or written before request `i` must be sent.

        An epoll counts in whole milliseconds: a request may be sent that much late, which counts as latency of it and
        of the next ones.
        """
        if self.rate and i < self.count:
            return epoll.poll(max(self.due[i] - time.perf_counter(), 0.0))
        return epoll.poll(PATIENCE) or sys.exit(f"no answer for {PATIENCE} s")


# HTTP


def http_request(job: Job, body: bytes) -> bytes:
    head = f"{'POST' if body else 'GET'} {job.path} HTTP/1.1\r\nHost: 127.0.0.1:{job.port}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def http_body(answer: bytes) -> bytes | None:
    """Return the body, or None until it is complete."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return None
    at = answer[:end].lower().find(b"content-length:") + 15
    stop = answer.find(b"\r\n", at)
    if len(answer) < end + 4 + int(answer[at:stop]):
        return None
    return answer[end + 4 :]


def drive_http(job: Job, requests: Sequence[bytes], clock: Clock, sockets: list[socket.socket]) -> list[bytes]:
    """Send all requests; return whole answers, in the order of the requests."""
    epoll, answers, free = select.epoll(), [b""] * len(requests), [s.fileno() for s in sockets]
    for fd in free:
        epoll.register(fd, select.EPOLLIN)
    parts, asked = dict.fromkeys(free, b""), dict.fromkeys(free, 0)
    ahead = answered = 0
    while answered < len(requests):
        while free and clock.ready(ahead):
            fd = free.pop(0)  # in turn, so that no connection is idle for so long that the node closes it
            assert os.write(fd, requests[ahead]) == len(requests[ahead])
            asked[fd] = ahead
            ahead += 1
        for fd, _ in clock.wait(epoll, ahead if free else clock.count):
            part = os.read(fd, CHUNK) or sys.exit("the node closed a connection")
            answer = parts[fd] + part if parts[fd] else part
            if http_body(answer) is None:
                parts[fd] = answer
                continue
            i, parts[fd] = asked[fd], b""
            answers[i], clock.done[i] = answer, time.perf_counter()
            answered += 1
            if clock.ready(ahead):
                assert os.write(fd, requests[ahead]) == len(requests[ahead])
                asked[fd] = ahead
                ahead += 1
            else:
                free.append(fd)
    return answers


# WebSocket


def frame(body: bytes) -> bytes:
    """Return a text frame of a client. RFC 6455 requires a mask; zeros need no computation."""
    size = len(body)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    else:
        head = b"\x81\xfe" + size.to_bytes(2, "big") if size < 1 << 16 else b"\x81\xff" + size.to_bytes(8, "big")
    return head + bytes(4) + body


def upgrade(connection: socket.socket, job: Job) -> None:
    connection.sendall(
        f"GET {job.path} HTTP/1.1\r\nHost: 127.0.0.1:{job.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1) or sys.exit("the node closed the connection")
    assert answer.startswith(b"HTTP/1.1 101"), answer


class Frames:
    """Collects whole text frames from the socket's data."""

    def __init__(self) -> None:
        self.rest = b""
        self.pongs: list[bytes] = []

    def take(self, data: bytes) -> list[bytes]:
        data = self.rest + data if self.rest else data
        at, end, found = 0, len(data), list[bytes]()
        while at + 2 <= end:
            size, body = data[at + 1], at + 2
            if size == 126:
                size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif size == 127:
                size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if body + size > end:
                break
            if data[at] == 0x81:
                found.append(data[body : body + size])
            else:
                self.control(data[at], data[body : body + size])
            at = body + size
        self.rest = data[at:]
        return found

    def control(self, kind: int, payload: bytes) -> None:
        if kind != 0x89:
            sys.exit(f"the node sent a frame of kind {kind:#x}: {payload!r}")
        self.pongs.append(b"\x8a" + bytes((0x80 | len(payload),)) + bytes(4) + payload)


def drive_web_socket(job: Job, requests: Sequence[bytes], clock: Clock, fd: int) -> list[tuple[float, bytes]]:
    """Return the answers with their times, as they arrived: a node need not answer in order."""
    epoll, frames, answers = select.epoll(), Frames(), list[tuple[float, bytes]]()
    epoll.register(fd, select.EPOLLIN)
    ahead, unsent = 0, b""
    while len(answers) < len(requests):
        first = ahead
        while ahead - len(answers) < job.window and clock.ready(ahead):
            ahead += 1
        out = unsent + b"".join((*requests[first:ahead], *frames.pongs))
        frames.pongs.clear()
        if out:
            sent = write_some(fd, out)
            if (sent < len(out)) != bool(unsent):
                epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if sent < len(out) else 0))
            unsent = out[sent:]
        full = ahead - len(answers) >= job.window
        for _, what in clock.wait(epoll, clock.count if full else ahead):
            if what & ~select.EPOLLOUT:
                data, now = os.read(fd, CHUNK) or sys.exit("the node closed the connection"), time.perf_counter()
                answers += [(now, found) for found in frames.take(data)]
    return answers


def write_some(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0


def name_of(text: bytes) -> bytes:
    """Return the commit hash in a commit or a receipt."""
    at = text.find(b'"hash":"')
    return text[at + 8 : at + 72] if at >= 0 else b""


# The process


def sort_http(job: Job, answers: list[bytes], result: Result) -> None:
    for i, answer in enumerate(answers):
        if answer.startswith(b"HTTP/1.1 200"):
            result.answers[i] = http_body(answer) or b""
        else:
            result.refusals.append(answer)


def sort_frames(job: Job, answers: list[tuple[float, bytes]], clock: Clock, result: Result) -> None:
    numbers = {name_of(body): i for i, body in enumerate(job.bodies)}
    for when, text in answers:
        i = numbers.pop(name_of(text), None) if b'"type":"Receipt"' in text else None
        if i is None:
            result.refusals.append(text)
        else:
            result.answers[i], clock.done[i] = text, when


class Usage(Struct):
    """Measures CPU seconds."""

    load: float
    node: float
    all: float


def usage(pid: int) -> Usage:
    own = resource.getrusage(resource.RUSAGE_SELF)
    node = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return Usage(
        load=own.ru_utime + own.ru_stime,
        node=(int(node[11]) + int(node[12])) / TICKS,
        all=(user + nice + system + sum(interrupts)) / TICKS,
    )


def connect(job: Job) -> list[socket.socket]:
    sockets = [socket.create_connection(("127.0.0.1", job.port)) for _ in range(1 if job.web_socket else job.window)]
    if job.web_socket:
        upgrade(sockets[0], job)
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
    return sockets


def work(job: Job) -> Result:
    requests = [frame(body) if job.web_socket else http_request(job, body) for body in job.bodies]
    sockets = connect(job)
    gc.collect()
    gc.disable()
    before = usage(job.pid)
    clock = Clock(len(requests), job.rate)
    if job.web_socket:
        framed = drive_web_socket(job, requests, clock, sockets[0].fileno())
    else:
        plain = drive_http(job, requests, clock, sockets)
    seconds, after = time.perf_counter() - clock.start, usage(job.pid)
    load, node = after.load - before.load, after.node - before.node
    result = Result(
        seconds=seconds,
        answers=[b""] * len(requests),
        refusals=[],
        latencies=[],
        done=clock.done,
        load_cores=load / seconds,
        node_cores=node / seconds,
        other_cores=max(after.all - before.all - load - node, 0.0) / seconds,
    )
    if job.web_socket:
        sort_frames(job, framed, clock, result)
    else:
        sort_http(job, plain, result)
    result.latencies = sorted(done - due for due, done in zip(clock.due, clock.done, strict=True) if done)
    return result


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.msgpack.encode(work(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job))))
