"""Which of several servers gets the next request: least busy first, without those that are out or hold old weights.

No network here: `send` and `revive` are given, so that the rules can be tried with servers that fail on purpose. A
request is sent again, to another server where there is one, until it has one answer; it is given out once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TypeVar

from r1zero.errors import UserError

R = TypeVar("R")
A = TypeVar("A")


class ServerLostError(Exception):
    """A server gave no answer: it is left out, and the request goes to another."""


@dataclass
class _Server:
    busy: int = 0
    """Requests under way."""
    version: int | None = None
    """Of the weights it holds; None: not known."""
    failures: int = 0
    """In a row."""
    again: float = 0.0
    """When to ask it again, where it is out."""
    out: bool = True
    """Out until it has shown that it is there, with the weights in force."""


class Fleet:
    """The state of the servers. Safe to use from many threads."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        first_delay: float = 1.0,
        longest_delay: float = 60.0,
    ) -> None:
        """A server that fails is asked again after `first_delay` seconds, then twice as long, up to `longest_delay`."""
        self.version = 0
        """Of the weights in force."""
        self.urls = list(urls)
        self._servers = {url: _Server() for url in urls}
        self._clock, self._first, self._longest = clock, first_delay, longest_delay
        self._lock = threading.Lock()

    def take(self, avoid: str | None = None) -> tuple[str, int] | None:
        """`(url, version of its weights)` of the least busy server that is fit, not `avoid` where there is another;
        None where none is. To be given back by `done` or `lost`."""
        with self._lock:
            fit = [url for url, s in self._servers.items() if not s.out and s.version == self.version]
            if not fit:
                return None
            url = min(fit, key=lambda url: (url == avoid, self._servers[url].busy))
            self._servers[url].busy += 1
            return url, self.version

    def done(self, url: str) -> None:
        """It has answered."""
        with self._lock:
            self._servers[url].busy -= 1
            self._servers[url].failures = 0

    def lost(self, url: str, *, busy: bool = True) -> None:
        """It has not: it is out, for longer each time. `busy`: a request is given back with it."""
        with self._lock:
            server = self._servers[url]
            server.busy -= busy
            if not server.out or not busy:  # requests that were under way together fail together: one failure
                server.failures += 1
                delay = min(self._longest, self._first * 2 ** min(server.failures - 1, 30))
                server.again = self._clock() + delay
            server.out, server.version = True, None

    def back(self, url: str, version: int) -> None:
        """It is there and holds the weights of `version`."""
        with self._lock:
            self._servers[url].out, self._servers[url].version = False, version

    def publish(self) -> int:
        """New weights are in force: no server is fit until it has them. Returns their version."""
        with self._lock:
            self.version += 1
            for server in self._servers.values():
                if not server.out:
                    server.out, server.again = True, self._clock()
            return self.version

    def due(self) -> list[str]:
        """Servers that are out and may be asked now."""
        with self._lock:
            now = self._clock()
            return [url for url, s in self._servers.items() if s.out and s.again <= now]

    def fit(self) -> list[str]:
        """Servers that may be sent requests."""
        with self._lock:
            return [url for url, s in self._servers.items() if not s.out and s.version == self.version]


Revive = Callable[[str, int], None]
"""Ask whether the server at a url is there, and give it the weights of a version; raises ServerLostError."""


def revive_due(fleet: Fleet, revive: Revive) -> None:
    """Ask every server that is out and due, all at once."""
    due, version = fleet.due(), fleet.version
    if not due:
        return

    def ask(url: str) -> None:
        try:
            revive(url, version)
        except ServerLostError:
            fleet.lost(url, busy=False)
        else:
            fleet.back(url, version)

    with ThreadPoolExecutor(max_workers=len(due)) as pool:
        list(pool.map(ask, due))


def _wait_for_one(
    fleet: Fleet, avoid: str | None, stop: threading.Event, patience_seconds: float, tick_seconds: float
) -> tuple[str, int]:
    """A server to send to and its version. Raises UserError where none is fit for too long."""
    began = time.monotonic()
    while not stop.is_set():
        if (taken := fleet.take(avoid)) is not None:
            return taken
        if time.monotonic() - began > patience_seconds:
            raise UserError(f"no rollout server has answered for {patience_seconds:g} s: start one again")
        stop.wait(tick_seconds)
    raise ServerLostError("the run has ended")


def deal(
    requests: Sequence[R],
    fleet: Fleet,
    send: Callable[[str, int, R], A],
    revive: Revive,
    *,
    workers: int,
    attempts: int = 10,
    patience_seconds: float = 600.0,
    tick_seconds: float = 0.2,
) -> Iterator[tuple[int, A]]:
    """`(index, answer)` of each request, once, as they come. `send` (url, version, request) may raise ServerLostError.

    Raises UserError where no server is fit for `patience_seconds`, RuntimeError where one request has failed on
    `attempts` servers (it may be what ends them); what `send` raises else is passed on.
    """
    stop = threading.Event()

    def until_done(request: R) -> A:
        last, avoid = "", None
        for _ in range(attempts):
            url, version = _wait_for_one(fleet, avoid, stop, patience_seconds, tick_seconds / 4)
            try:
                answer = send(url, version, request)
            except ServerLostError as error:
                fleet.lost(url)
                last, avoid = str(error), url
                continue
            except BaseException:
                fleet.done(url)
                raise
            fleet.done(url)
            return answer
        raise RuntimeError(f"a request has failed {attempts} times, last: {last}")

    def keep() -> None:
        while not stop.is_set():
            revive_due(fleet, revive)
            stop.wait(tick_seconds)

    keeper = threading.Thread(target=keep, name="fleet-keeper", daemon=True)
    keeper.start()
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        futures = {pool.submit(until_done, request): i for i, request in enumerate(requests)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        keeper.join()
