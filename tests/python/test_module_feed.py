"""The feed as Python sees it: batches that are right, in an order that is the seed's, wherever they are asked for."""
import itertools
import json
import multiprocessing
import os
import pickle
import shutil
import zlib

import numpy as np
import pytest
import soundfile

import penstock

SMALL = {"batch_size": 4, "split": "all", "num_workers": 2}
FIELDS = ("mel", "mel_lengths", "tokens", "token_lengths", "speakers", "utterances", "replaced")


def copied(batch):
    """Everything of a batch, as values."""
    arrays = {name: getattr(batch, name).copy() for name in FIELDS}
    extras = {name: array.copy() for name, array in batch.extras.items()}
    return {**arrays, "extras": extras, "ids": batch.ids, "at": (batch.epoch, batch.step), "shape": batch.shape}


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


# ---- what is in a batch


def test_a_batch_has_its_utterances(tones):
    feed = penstock.Feed(tones, seed=7, **SMALL)
    texts = {line.split("|")[0]: line.split("|")[-1] for line in (tones / "metadata.csv").read_text().splitlines()}
    seen = 0
    for step, batch in enumerate(feed):
        rows, tokens, frames = batch.shape
        assert batch.shape in feed.shapes and (batch.epoch, batch.step) == (0, step)
        assert batch.mel.shape == (rows, frames, 80) and batch.tokens.shape == (rows, tokens)
        assert [getattr(batch, name).dtype for name in FIELDS] == \
            [np.float32, np.int32, np.int32, np.int32, np.int32, np.int64, np.bool_]
        assert not batch.replaced.any() and batch.extras == {}
        for row, name in enumerate(batch.ids):
            audio = soundfile.read(tones / "wavs" / f"{name}.wav", dtype="float32")[0]
            length, characters = batch.mel_lengths[row], batch.token_lengths[row]
            assert same(batch.mel[row, :length], penstock.mel(audio))
            assert (batch.mel[row, length:] == 0).all()
            assert same(batch.tokens[row, :characters], penstock.tokens(texts[name], feed))
            assert (batch.tokens[row, characters:] == 0).all()
            assert feed.speakers[batch.speakers[row]] == name[:3]
            seen += 1
    assert len(feed) == step + 1 and seen == len(feed) * 4


def test_padding_fills_the_last_batches(tones):
    batches = list(map(copied, penstock.Feed(tones, remainder="pad", prefetch_buffer_size=2, **SMALL)))
    names = [name for batch in batches for name in batch["ids"] if name]
    assert sorted(names) == sorted(p.stem for p in (tones / "wavs").iterdir())
    for batch in batches:
        for row, name in enumerate(batch["ids"]):
            if not name:
                assert batch["speakers"][row] == batch["utterances"][row] == -1 and batch["mel_lengths"][row] == 0


def test_layout_and_extras(tones, tmp_path):
    for name, audio in ((p.stem, soundfile.read(p, dtype="float32")[0]) for p in (tones / "wavs").iterdir()):
        (tmp_path / "f0").mkdir(exist_ok=True)
        (tmp_path / "who").mkdir(exist_ok=True)
        np.save(tmp_path / "f0" / name, np.arange(len(audio) // 256, dtype=np.float32))
        np.save(tmp_path / "who" / name, np.array([int(name[1:3]), 5, 6], np.int32))
    feed = penstock.Feed(tones, mel_layout="bins_first", extra={"f0": tmp_path / "f0", "who": tmp_path / "who"}, **SMALL)
    batch = feed.next()
    rows, _, frames = batch.shape
    assert batch.mel.shape == (rows, 80, frames)
    assert batch.extras.keys() == {"f0", "who"}
    assert batch.extras["f0"].shape == (rows, frames) and batch.extras["f0"].dtype == np.float32
    assert batch.extras["who"].tolist() == [[int(name[1:3]), 5, 6] for name in batch.ids]
    for row, length in enumerate(batch.mel_lengths):
        assert (batch.extras["f0"][row, :length] == np.arange(length)).all() and (batch.extras["f0"][row, length:] == 0).all()


# ---- order and state


def test_the_order_is_the_seeds(tones):
    first = [copied(b) for b in penstock.Feed(tones, seed=3, **SMALL)]
    again = [copied(b) for b in penstock.Feed(tones, seed=3, **{**SMALL, "num_workers": 1})]
    other = [copied(b) for b in penstock.Feed(tones, seed=4, **SMALL)]
    assert same(dict(enumerate(first)), dict(enumerate(again)))
    assert [b["ids"] for b in first] != [b["ids"] for b in other]


def test_loops_go_on_where_the_feed_stands(tones):
    feed = penstock.Feed(tones, **SMALL)
    everything = [(b.epoch, b.step) for b in itertools.chain(feed, feed)]
    assert everything == [(e, s) for e in (0, 1) for s in range(len(feed))]
    feed.reset()
    assert [(b.epoch, b.step) for b in itertools.islice(feed, 3)] == [(0, 0), (0, 1), (0, 2)]
    assert [(b.epoch, b.step) for b in feed] == [(0, s) for s in range(3, len(feed))]
    assert [(b.epoch, b.step) for b in feed.epoch(3)] == [(3, s) for s in range(len(feed))]
    assert feed.next().epoch == 4
    with pytest.raises(penstock.Error, match="negative"):
        feed.epoch(-1)


def test_a_state_is_small_plain_and_enough(tones):
    feed = penstock.Feed(tones, seed=2**63 + 5, **SMALL)
    for _ in range(3):
        feed.next()
    state = json.loads(json.dumps(feed.state()))
    assert len(json.dumps(state)) < 1024 and (state["epoch"], state["step"]) == (0, 3)
    expected = [copied(feed.next()) for _ in range(len(feed))]
    other = penstock.Feed(tones, seed=1, **SMALL)
    other.restore(state)
    assert all(same(copied(other.next()), e) for e in expected)


def test_a_state_goes_on_in_another_process(tones, script):
    feed = penstock.Feed(tones, seed=11, **SMALL)
    for _ in range(4):
        feed.next()
    source = """
        import json, sys, zlib
        import penstock
        feed = penstock.Feed(sys.argv[1], batch_size=4, split="all", seed=int(sys.argv[3]))
        feed.restore(json.loads(sys.argv[2]))
        for _ in range(len(feed)):
            batch = feed.next()
            print(batch.epoch, batch.step, zlib.crc32(batch.mel.tobytes()), zlib.crc32(batch.tokens.tobytes()), *batch.ids)
    """
    there = script(source, tones, json.dumps(feed.state()), 0).splitlines()
    for line in there:
        b = feed.next()
        assert line.split() == [str(b.epoch), str(b.step), str(zlib.crc32(b.mel.tobytes())),
                                str(zlib.crc32(b.tokens.tobytes())), *b.ids]


@pytest.mark.parametrize("state", [{}, {"seed": 1}, {"seed": -1, "epoch": 0, "step": 0, "shapes": []},
                                   {"seed": 1, "epoch": "x", "step": 0, "shapes": []},
                                   {"seed": 1, "epoch": 0, "step": 0, "shapes": [1]}])
def test_what_is_no_state_is_refused(tones, state):
    feed = penstock.Feed(tones, **SMALL)
    first = feed.state()
    with pytest.raises(penstock.Error, match="not the state of a feed"):
        feed.restore(state)
    assert feed.state() == first and feed.next().step == 0


def test_shapes_and_lengths_follow_a_restored_state(tones):
    few, many = penstock.Feed(tones, shapes=1, **SMALL), penstock.Feed(tones, shapes=4, **SMALL)
    assert len(few.shapes) == 1 < len(many.shapes)
    few.restore(many.state())
    assert few.shapes == many.shapes and len(few) == len(many)
    assert same(copied(few.next()), copied(many.next()))


def test_a_pickled_feed_carries_configuration_and_state(tones):
    feed = penstock.Feed(tones, seed=5, hop_length=512, mel_preset="myxtts", add_blank=True, **SMALL)
    feed.next()
    other = pickle.loads(pickle.dumps(feed))
    assert other.settings == feed.settings and other.state() == feed.state()
    for _ in range(3):
        assert same(copied(other.next()), copied(feed.next()))


def first_ids(feed):
    return feed.next().ids


def test_a_feed_travels_to_a_spawned_process(tones):
    feed = penstock.Feed(tones, **SMALL)
    feed.next()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(first_ids, (feed,)) == feed.next().ids


# ---- settings and errors


def test_arguments_win_over_the_file(tones, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("data:\n  batch_size: 3\n  hop_length: 512\n  use_tf_native_loading: true\n")
    with pytest.warns(UserWarning, match="is called native_loading here"):
        feed = penstock.Feed(tones, config=file, batch_size=5, split="all")
    assert feed.settings["batch_size"] == "5" and feed.settings["hop_length"] == "512"
    assert feed.next().mel.shape[0] == 5
    assert f"batch_size={feed.settings['batch_size']!r}" in repr(feed)


@pytest.mark.parametrize("keys, error, reason", [
    ({"batch_sise": 3}, penstock.Error, "did you mean batch_size?"),
    ({"batch_size": 0}, penstock.Error, "must be from 1 to 32768"),
    ({"batch_size": 2.5}, penstock.Error, "must be from 1 to 32768 or auto, but is '2.5'|whole number"),
    ({"batch_size": True}, penstock.Error, "batch_size"),
    ({"batch_size": [1, 2]}, TypeError, "batch_size: must be text, a number"),
    ({"batch_size": object()}, TypeError, "batch_size"),
    ({"batch_size": b"4"}, TypeError, "batch_size"),
    ({"pad_to_fixed_length": "perhaps"}, penstock.Error, "true or false"),
    ({"split": "test"}, penstock.Error, "train, val, all"),
    ({"rank": 2, "world": 2}, penstock.Error, "rank must be below world"),
    ({"device": "tpu"}, penstock.Error, "cpu, cuda, cuda:N or simulated"),
    ({"config": "/nowhere.yaml"}, penstock.Error, "/nowhere.yaml"),
    ({"batch_size": 1000}, penstock.Error, "1000"),
])
def test_misuse_is_named(tones, keys, error, reason):
    with pytest.raises(error, match=reason):
        penstock.Feed(tones, **keys)


def test_numbers_of_numpy_will_do(tones):
    feed = penstock.Feed(tones, batch_size=np.int32(4), val_fraction=np.float64(0.25), add_blank=np.True_, seed=np.array(3))
    assert feed.settings["val_fraction"] == "0.25" and feed.settings["add_blank"] == "true"


@pytest.fixture
def damaged(tones, tmp_path):
    """A dataset of which one file was replaced by noise after the index was built, unnoticed."""
    folder = tmp_path / "damaged"
    shutil.copytree(tones, folder, ignore=shutil.ignore_patterns(".penstock"))  # no cache of other tests
    penstock.info(folder)
    victim = sorted((folder / "wavs").iterdir())[7]
    before = victim.stat()
    victim.write_bytes(b"noise" * (before.st_size // 5) + b"!" * (before.st_size % 5))
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    return folder, victim


def test_a_bad_sample_is_an_exception_with_attributes(damaged):
    folder, victim = damaged
    feed = penstock.Feed(folder, **SMALL)
    with pytest.raises(penstock.SampleError) as caught:
        for _ in feed:
            pass
    error = caught.value
    assert (error.stage, error.utterance, error.path) == ("decode", victim.stem, f"wavs/{victim.name}")
    assert error.cause and str(error) == f"decode: wavs/{victim.name}: {error.cause}"
    assert isinstance(error, penstock.Error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.utterance, copy.cause) == (str(error), error.utterance, error.cause)
    at = feed.state()
    with pytest.raises(penstock.SampleError):  # the same again, and nothing is lost
        feed.next()
    assert feed.state() == at


def test_bad_samples_can_be_skipped(damaged):
    folder, victim = damaged
    feed = penstock.Feed(folder, on_bad_sample="skip", **SMALL)
    replaced = sum(int(batch.replaced.sum()) for batch in feed)
    assert replaced == 1
    [skipped] = feed.skipped
    assert (skipped["id"], skipped["path"]) == (victim.stem, f"wavs/{victim.name}") and skipped["times"] >= 1
    assert skipped["reason"].startswith("decode: ")
    assert feed.recomputed == []


def test_what_the_index_knows_to_be_bad(tones, tmp_path):
    folder = tmp_path / "bad"
    shutil.copytree(tones, folder, ignore=shutil.ignore_patterns(".penstock"))
    victim = sorted((folder / "wavs").iterdir())[3]
    victim.write_bytes(b"")
    with pytest.raises(penstock.SampleError) as caught:
        penstock.Feed(folder, **SMALL)
    assert caught.value.utterance == victim.stem and caught.value.stage == "index"
    assert [s["id"] for s in penstock.Feed(folder, on_bad_sample="skip", **SMALL).skipped] == [victim.stem]


def test_names_that_are_no_utf8_come_through(tones, tmp_path):
    folder = tmp_path / os.fsdecode(b"donn\xe9es")
    shutil.copytree(tones, folder, ignore=shutil.ignore_patterns(".penstock"))
    feed = penstock.Feed(folder, **SMALL)
    assert feed.settings["dataset_path"] == str(folder)
    assert same(copied(feed.next()), copied(penstock.Feed(tones, **SMALL).next()))
    with pytest.raises(penstock.Error) as caught:
        penstock.Feed(folder / "nowhere")
    assert "nowhere" in ascii(str(caught.value))


def test_what_a_feed_knows(tones):
    with penstock.Feed(tones, preprocessing_mode="runtime", **SMALL) as feed:  # no cache of other tests
        for _ in feed:
            pass
        stats = feed.stats()
        assert stats["samples"] == len(feed) * 4 and stats["batches"] == len(feed) and stats["workers"] == 2
        assert stats["stage_seconds"]["mel"] > 0 and stats["cache"]["hits"] == 0
        assert sorted(feed.speakers) == ["s01", "s02", "s03"] and feed.notes == []
    for use in (feed.next, feed.state, feed.stats, lambda: feed.shapes, lambda: len(feed), lambda: next(iter(feed))):
        with pytest.raises(penstock.Error, match="has been closed"):
            use()


def test_opening_reports_progress(tones, tmp_path):
    seen = []
    penstock.Feed(tones, preprocessing_mode="precompute", cache_dir=tmp_path, progress=lambda *r: seen.append(r), **SMALL)
    assert seen[-1][0] == "caching" and seen[-1][2] == 40


def test_arrays_are_read_only_unless_one_asks(tones):
    feed, untouched = penstock.Feed(tones, **SMALL), penstock.Feed(tones, **SMALL)
    for _ in range(2 * len(feed)):  # the ring goes round
        batch = feed.next()
        assert same(copied(batch), copied(untouched.next()))
        for name in FIELDS:
            with pytest.raises(ValueError, match="read-only"):
                getattr(batch, name)[...] = 1
        assert batch.writable() is batch
        for name in FIELDS:
            getattr(batch, name)[...] = 1
        assert (batch.mel == 1).all()


# ---- DLPack


def test_batches_leave_by_dlpack(tones):
    torch = pytest.importorskip("torch")
    batch = penstock.Feed(tones, **SMALL).next()
    expected = copied(batch)
    for name in FIELDS:
        array = getattr(batch, name)
        ours, tensor = np.from_dlpack(array), torch.from_dlpack(array)
        assert same(ours, expected[name]) and same(tensor.numpy(), expected[name])
        assert tensor.data_ptr() == array.ctypes.data == ours.ctypes.data
    tensor = torch.from_dlpack(batch.mel)
    del batch, array, ours
    assert same(tensor.numpy(), expected["mel"])
