"""A lock that a finalizer can use in the middle of anything."""

from __future__ import annotations

import threading

from forebay.drivers.lock import PostLock

_PATIENCE_S = 20


def test_what_is_posted_while_the_lock_is_free_is_done_at_once() -> None:
    lock, done = PostLock(), []
    lock.post(lambda: done.append(1))
    assert done == [1]


def test_what_is_posted_by_whoever_has_the_lock_is_done_when_it_lets_go() -> None:
    lock, done = PostLock(), []
    with lock:
        with lock:
            lock.post(lambda: done.append(1))
            lock.post(lambda: lock.post(lambda: done.append(2)))
        assert done == []
    assert done == [1, 2]


def test_what_another_thread_posts_is_left_to_whoever_has_the_lock() -> None:
    lock, done = PostLock(), []
    with lock:
        other = threading.Thread(target=lambda: lock.post(lambda: done.append(1)))
        other.start()
        other.join(_PATIENCE_S)
        assert not other.is_alive()  # it never waits
        assert done == []
    assert done == [1]


def test_the_lock_is_held_while_what_was_posted_is_done() -> None:
    lock, others = PostLock(), []

    def try_elsewhere() -> None:
        thread = threading.Thread(target=lambda: others.append(lock._lock.acquire(blocking=False)))
        thread.start()
        thread.join(_PATIENCE_S)

    lock.post(try_elsewhere)
    assert others == [False]


def test_nothing_that_is_posted_is_forgotten_however_threads_meet() -> None:
    lock, total, counts = PostLock(), 0, []

    def count() -> None:
        nonlocal total
        total += 1

    def work() -> None:
        for _ in range(3000):
            with lock:
                count()
            lock.post(count)
        counts.append(6000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_S)
    assert total == sum(counts) == 24_000
