"""Requests dealt to servers that fail on purpose: none lost, none twice, none answered by old weights."""

import random
import threading
from collections import Counter

import pytest

from r1zero.errors import UserError
from r1zero.rollout.dealing import Fleet, ServerLostError, deal, revive_due


def started(urls: str, clock: list[float] | None = None) -> Fleet:
    fleet = Fleet(urls, clock=(lambda: clock[0]) if clock is not None else (lambda: 0.0))
    for url in urls:
        fleet.back(url, 0)
    return fleet


def test_the_least_busy_server_is_next_and_one_to_avoid_only_where_there_is_no_other() -> None:
    fleet = started("abc")
    assert [fleet.take() for _ in range(4)] == [("a", 0), ("b", 0), ("c", 0), ("a", 0)]
    fleet.done("c")
    assert fleet.take() == ("c", 0)
    fleet.done("c")
    assert fleet.take(avoid="c") == ("b", 0)
    fleet.lost("a")
    fleet.lost("b")
    assert fleet.take(avoid="c") == ("c", 0)


def test_a_lost_server_is_asked_again_after_longer_and_longer() -> None:
    now = [0.0]
    fleet = started("a", now)
    fleet.take()
    fleet.take()
    fleet.lost("a")
    fleet.lost("a")  # the same fall: counted once
    asked: list[float] = []

    def dead(url: str, version: int) -> None:
        asked.append(now[0])
        raise ServerLostError("no answer")

    while now[0] < 200:
        revive_due(fleet, dead)
        now[0] += 0.5
    assert asked == [1, 3, 7, 15, 31, 63, 123, 183]  # 1, 2, 4, ... 32, then every 60
    fleet.back("a", 0)
    assert fleet.fit() == ["a"]


def test_after_new_weights_only_servers_that_have_them_are_sent_requests() -> None:
    fleet = started("ab")
    assert fleet.publish() == 1
    assert fleet.take() is None
    assert fleet.due() == ["a", "b"]
    fleet.back("b", 1)
    fleet.back("a", 0)  # was given the old ones meanwhile
    assert fleet.fit() == ["b"]


def test_ten_thousand_requests_on_64_servers_that_fail_at_random() -> None:
    draw, lock = random.Random(0), threading.Lock()
    weights: dict[str, int | None] = {f"s{i}": None for i in range(64)}  # None: not running
    answered: Counter[int] = Counter()
    falls = 0
    fleet = Fleet(list(weights), first_delay=0.002, longest_delay=0.01)

    def revive(url: str, version: int) -> None:
        with lock:
            if draw.random() < 0.3:
                raise ServerLostError("still starting")
            weights[url] = version

    def send(url: str, version: int, request: int) -> tuple[int, str, int | None]:
        nonlocal falls
        with lock:
            held = weights[url]
            if held is None:
                raise ServerLostError("connection refused")
            if draw.random() < 0.05:
                weights[url] = None
                falls += 1
                raise ServerLostError("connection reset")
            answered[request] += 1
            assert held == version
            return request, url, held

    requests = range(10_000)
    for sync in (1, 2):
        assert fleet.publish() == sync
        half = requests[:5000] if sync == 1 else requests[5000:]
        found = dict(deal(half, fleet, send, revive, workers=64, attempts=30, tick_seconds=0.004))
        assert sorted(found) == list(range(5000))
        assert all(found[i][0] == request for i, request in enumerate(half))
        assert {version for _, _, version in found.values()} == {sync}
    assert set(answered) == set(requests)
    assert set(answered.values()) == {1}
    assert falls > 300


def test_a_request_that_fells_every_server_and_a_fleet_without_any_end_the_run() -> None:
    fleet = Fleet("ab", first_delay=0.001, longest_delay=0.001)

    def poison(url: str, version: int, request: int) -> int:
        raise ServerLostError(f"{url} is gone")

    with pytest.raises(RuntimeError, match=r"failed 3 times, last: . is gone"):
        list(deal([1], fleet, poison, lambda url, version: None, workers=1, attempts=3, tick_seconds=0.001))

    def never(url: str, version: int) -> None:
        raise ServerLostError("no")

    with pytest.raises(UserError, match="no rollout server has answered"):
        list(deal([1], Fleet("ab"), poison, never, workers=1, patience_seconds=0.05, tick_seconds=0.01))
