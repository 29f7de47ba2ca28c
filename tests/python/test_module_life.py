"""What may go wrong around a feed: memory that is used too long or again too early, threads, signals, forks, the end."""
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import penstock
from test_module_feed import FIELDS, SMALL, copied, same

# ---- views


def test_views_outlive_batch_and_feed(tones):
    feed = penstock.Feed(tones, **SMALL)
    expected = [copied(feed.next()) for _ in range(6)]
    feed.reset()
    kept = [(batch.mel[1:, ::2], batch.tokens.T, batch.ids) for batch in (feed.next() for _ in range(6))]
    feed.close()
    del feed
    for (mel, tokens, ids), e in zip(kept, expected):
        assert same(mel, e["mel"][1:, ::2]) and same(tokens, e["tokens"].T) and ids == e["ids"]


def test_a_slot_is_used_again_when_its_last_view_is_gone(tones):
    feed = penstock.Feed(tones, prefetch_buffer_size=2, shapes=1, **SMALL)
    views = [feed.next().mel, feed.next().mel]
    kept = [view.copy() for view in views]
    with pytest.raises(penstock.Error, match="let go of batches"):
        views.append(feed.next().mel)
        views.append(feed.next().mel)
        views.append(feed.next().mel)
    assert all(same(view, copy) for view, copy in zip(views, kept))
    at = feed.state()
    views.clear()
    assert feed.next().step == at["step"]  # and no batch was lost
    for _ in range(20):
        feed.next()
    assert feed.stats()["buffers"] <= 4


def test_what_a_consumer_writes_never_comes_back(tones, tmp_path):
    extras = tmp_path / "f0"
    extras.mkdir()
    for p in (tones / "wavs").iterdir():
        np.save(extras / p.stem, np.ones(3, np.float32))
    keys = {**SMALL, "prefetch_buffer_size": 2, "remainder": "pad", "extra": {"f0": extras}, "mel_pad_value": -3.0}
    clean, dirty = penstock.Feed(tones, **keys), penstock.Feed(tones, **keys)
    for _ in range(3 * len(clean)):
        batch = dirty.next().writable()
        assert same(copied(batch), copied(clean.next()))
        for name in FIELDS:
            getattr(batch, name).view(np.uint8)[...] = 255
        batch.extras["f0"][...] = np.nan


def test_threads_share_a_feed_and_keep_what_they_like(tones):
    """Every batch goes to one thread, whole; what is kept stays as it was, until it is dropped anywhere."""
    feed = penstock.Feed(tones, prefetch_buffer_size=16, **SMALL)
    expected = {b["at"]: b for b in (copied(feed.next()) for _ in range(4 * len(feed)))}
    feed.reset()
    total, asked, exchange, lock = len(expected), iter(range(len(expected))), [], threading.Lock()

    def check(kept):
        mel, tokens, e = kept
        assert same(mel, e["mel"][:, e["mel"].shape[1] - mel.shape[1]:]) and same(tokens, e["tokens"])

    def work(number):
        rng, kept, seen = random.Random(number), [], []
        while True:
            with lock:
                if next(asked, None) is None:
                    break
            batch = feed.next()
            seen.append((batch.epoch, batch.step))
            kept.append((batch.mel[:, rng.randrange(4):], batch.tokens, expected[seen[-1]]))
            with lock:
                exchange.append(kept.pop(rng.randrange(len(kept))))
                if len(exchange) > 2:
                    kept.append(exchange.pop(0))  # another thread's
            while len(kept) > 2:
                check(kept.pop(rng.randrange(len(kept))))
        for last in kept:
            check(last)
        return seen

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work, number) for number in range(4)]
        while not all(future.done() for future in futures):  # questions that never wait
            assert feed.state()["seed"] == 0 and feed.stats()["workers"] == 2 and len(feed) * 4 == total
            time.sleep(0.001)
    assert sorted(at for future in futures for at in future.result()) == sorted(expected)


def test_no_leak_over_ten_thousand_batches(tones, tmp_path, script):
    source = """
        import gc, sys
        import penstock

        def anonymous():  # bytes of this process that are no file's
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024

        feed = penstock.Feed(sys.argv[1], batch_size=2, split="all", cache_dir=sys.argv[2], preprocessing_mode="precompute")

        def run(count):
            for _ in range(count):
                batch = feed.next()
                arrays = batch.mel, batch.mel_lengths, batch.tokens, batch.token_lengths, batch.speakers, batch.ids
                kept = arrays[0][1:], batch.extras, feed.state()
            gc.collect()
            return anonymous(), len(gc.get_objects()), sys.getallocatedblocks()

        run(1000)
        before = run(1000)
        after = run(10000)
        grown = [b - a for a, b in zip(before, after)]
        assert grown[0] < 8 << 20, grown
        assert grown[1] < 50 and grown[2] < 500, grown
        print(grown)
    """
    # ASan keeps freed memory for a while, if there is one.
    options = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "quarantine_size_mb=1"]))
    script(source, tones, tmp_path / "cache", environment={"ASAN_OPTIONS": options})


def test_feeds_come_and_go(tones, tmp_path, script):
    source = """
        import os, sys
        import penstock

        def resources():
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

        penstock.Feed(sys.argv[1], split="all").close()
        before = resources()
        for i in range(50):
            feed = penstock.Feed(sys.argv[1], split="all", batch_size=4, device=("cpu", "simulated")[i % 2])
            if i % 3:
                batch = feed.next()
            if i % 4:
                feed.restore({**feed.state(), "epoch": i})
            del feed
        batch = None
        assert resources() == before, (before, resources())
    """
    script(source, tones)


# ---- signals

# A feed whose first batch takes many seconds, honestly: the reference kernel, one worker, four times the frames.
SLOW = 'dict(split="all", batch_size=32, shapes=1, num_workers=1, native_loading=False, hop_length=64)'

INTERRUPTS = """
    import os, signal, sys, threading, time
    import penstock

    def when_waiting(function, act):
        '''Acts as soon as the main thread is inside a function of this name.'''
        main = threading.main_thread().ident
        def watch():
            while sys._current_frames()[main].f_code.co_name != function:
                time.sleep(0.001)
            time.sleep(0.1)  # it is on its way into the wait, or there
            act()
        threading.Thread(target=watch, daemon=True).start()

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_ends_a_wait_for_a_batch(tones, script):
    script(INTERRUPTS + f"""
    feed = penstock.Feed(sys.argv[1], **{SLOW})
    for function, ask in [("next", feed.next), ("__next__", lambda: next(iter(feed)))]:
        when_waiting(function, interrupt)
        try:
            ask()
            sys.exit("the batch came first")
        except KeyboardInterrupt:
            pass
        assert feed.stats()["samples"] == 0 and feed.state()["step"] == 0
    """, tones)


def test_ctrl_c_ends_a_wait_for_another_threads_wait(tones, script):
    script(INTERRUPTS + f"""
    feed = penstock.Feed(sys.argv[1], **{SLOW})
    other = threading.Thread(target=feed.next, daemon=True)
    other.start()
    time.sleep(0.2)
    when_waiting("next", interrupt)
    try:
        feed.next()
        sys.exit("the batch came first")
    except KeyboardInterrupt:
        pass
    assert other.is_alive()
    """, tones, leaks=True)


def test_a_signal_handler_may_ask_for_the_state(tones, script):
    script(INTERRUPTS + f"""
    feed = penstock.Feed(sys.argv[1], **{SLOW})
    seen = []
    def handler(*_):
        seen.append((feed.state(), len(feed), feed.shapes, feed.stats()["samples"], feed.skipped))
        try:
            feed.next()
        except penstock.Error as error:
            seen.append(str(error))
        raise SystemExit
    signal.signal(signal.SIGTERM, handler)
    when_waiting("next", lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        feed.next()
    except SystemExit:
        assert seen[0][0]["step"] == 0 and seen[0][3] == 0 and "waiting for the feed already" in seen[1], seen
    """, tones)


def test_ctrl_c_ends_a_build_and_the_next_one_goes_on(tones, tmp_path, script):
    script(INTERRUPTS + """
    from pathlib import Path
    keys = dict(cache_dir=sys.argv[2], native_loading=False)

    def when_building(act):
        def watch():
            while not any(file.stat().st_size > 0 for file in Path(sys.argv[2]).rglob("mel-*/*.part")):
                time.sleep(0.001)
            act()
        threading.Thread(target=watch, daemon=True).start()

    when_building(interrupt)
    try:
        penstock.cache.build(sys.argv[1], **keys)
        sys.exit("the cache came first")
    except KeyboardInterrupt:
        pass
    report = penstock.cache.build(sys.argv[1], **keys)
    assert report["built"] + report["kept"] == 80 and report["built"] > 0, report
    """, tones, tmp_path / "cache")


def test_ctrl_c_ends_an_opening(tones, tmp_path, script):
    script(INTERRUPTS + """
    def stop(*_):
        interrupt()
    try:
        penstock.Feed(sys.argv[1], cache_dir=sys.argv[2], preprocessing_mode="precompute", native_loading=False,
                      progress=stop)
        sys.exit("the feed came first")
    except KeyboardInterrupt:
        pass
    """, tones, tmp_path / "cache")


# ---- the end


@pytest.mark.parametrize("waiting", [
    "feed.next()", "for batch in feed: pass", "penstock.cache.build(sys.argv[1], cache_dir=sys.argv[2], **keys)"])
def test_the_interpreter_ends_while_a_thread_waits(tones, tmp_path, script, waiting):
    script(f"""
    import sys, threading, time
    import penstock
    keys = {SLOW}
    feed = penstock.Feed(sys.argv[1], **keys)
    def work():
        {waiting}
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    class Long:  # so does the end: the thread comes back while the interpreter goes
        def __del__(self, sleep=time.sleep):
            sleep(0.3)
    long = Long()
    """, tones, tmp_path / "cache", leaks=True)


def test_what_runs_at_the_end_can_still_use_a_feed(tones, script):
    assert script("""
    import atexit, sys
    def last():
        print(feed.next().step, penstock.info(sys.argv[1])["clips"])
        feed.close()
    atexit.register(last)  # before the package's own, so it runs behind it
    import penstock
    feed = penstock.Feed(sys.argv[1], split="all")
    """, tones) == "0 40\n"


def test_the_interpreter_ends_with_everything_alive(tones, script):
    script("""
    import sys
    import penstock
    feed = penstock.Feed(sys.argv[1], split="all")
    batches = [feed.next() for _ in range(4)]
    arrays = [batch.mel for batch in batches]
    mel = penstock.mel(arrays[0].reshape(-1))
    loop = iter(feed)
    """, tones)


# ---- forks

FORKS = """
    import os, sys
    import penstock

    feed = penstock.Feed(sys.argv[1], split="all", batch_size=4)
    batch = feed.next()
    total = float(batch.mel.sum())

    def in_child(act):
        child = os.fork()
        if child == 0:
            act()
            sys.exit(0)  # with everything that a Python that ends does
        assert os.waitpid(child, 0)[1] == 0
"""


def test_after_a_fork_the_child_gets_an_error(tones, script):
    script(FORKS + """
    def refused():
        for use in (feed.next, feed.state, feed.stats, lambda: feed.skipped, lambda: feed.epoch(1), lambda: next(iter(feed))):
            try:
                use()
                os._exit(1)
            except penstock.Error as error:
                assert "did not come along through the fork" in str(error)
        feed.close()
    in_child(refused)
    assert feed.next().step == 1
    """, tones)


def test_after_a_fork_batches_can_be_read_and_dropped(tones, script):
    script(FORKS + """
    def read():
        global batch
        assert float(batch.mel.sum()) == total and len(batch.ids) == 4
        batch.writable().mel[...] = 0
        batch = None
    in_child(read)
    in_child(lambda: None)
    assert float(batch.mel.sum()) == total
    assert feed.next().step == 1
    """, tones)


def test_after_a_fork_the_child_has_the_rest(tones, script):
    script(FORKS + """
    import threading, numpy
    stop = threading.Event()
    def churn():  # locks are taken all the time while the fork happens
        while not stop.is_set():
            feed.next()
            penstock.mel(numpy.zeros(30000, numpy.float32))
    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    def anew():
        own = penstock.Feed(sys.argv[1], split="all", batch_size=4)
        assert float(own.next().mel.sum()) == total
        assert penstock.mel(numpy.zeros(3000, numpy.float32)).shape == (11, 80)
        assert penstock.info(sys.argv[1])["clips"] == 40
    for _ in range(10):
        in_child(anew)
    stop.set()
    for thread in threads:
        thread.join()
    """, tones, leaks=True)


def test_forked_workers_of_multiprocessing(tones, script):
    script(FORKS + """
    import multiprocessing
    def work(number):
        try:
            feed.next()
        except penstock.Error:
            return float(batch.mel.sum())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(work, range(4)) == [total] * 4
    """, tones)
