"""feed.tf() in the real TensorFlow: the same elements as NumPy's, one trace per shape, fit, states, kept batches."""
import gc
import json
import os
import pathlib
import shutil
import subprocess
import sys
import weakref

import numpy as np
import pytest

import penstock

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "tf_train.py"
ARRAYS = ["mel", "mel_lengths", "tokens", "token_lengths", "speakers", "utterances", "replaced"]


@pytest.fixture(scope="module")
def tf():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return pytest.importorskip("tensorflow")


@pytest.fixture
def feed(tf, tones):
    """Opens feeds of the tones; they are closed in the end."""
    feeds = []

    def opened(folder=tones, **keys):
        feeds.append(penstock.Feed(folder, **{"batch_size": 2, "seed": 7, **keys}))
        return feeds[-1]
    yield opened
    for each in feeds:
        each.close()


def assert_same(got, expected):
    """A dict of tensors against one of the feed's own batches."""
    arrays = {**{name: getattr(expected, name) for name in ARRAYS}, **expected.extras}
    assert got.keys() == {*arrays, "epoch", "step"}
    for name, array in arrays.items():
        value = got[name].numpy()
        assert (value.dtype, value.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(value, array)
    assert (int(got["epoch"]), int(got["step"])) == (expected.epoch, expected.step)


def assert_follow(batches, expected):
    """All of the `expected` feed's next batches, one after the other."""
    count = 0
    for batch in batches:
        assert_same(batch, expected.next())
        count += 1
    return count


def steps(batches):
    return [(int(b["epoch"]), int(b["step"])) for b in batches]


# ---- elements

def test_an_epoch_equals_numpys_and_the_next_loop_takes_the_next_epoch(feed):
    ours, numpys = feed(shapes=4), feed(shapes=4)
    dataset = ours.tf()
    for _ in range(2):
        assert assert_follow(dataset, numpys) == len(ours)
    assert ours.state() == numpys.state()


def test_extras_go_by_their_names(feed, tones, tmp_path):
    kinds = {"f0": lambda frames: np.arange(frames, dtype=np.float32),
             "voice": lambda frames: np.full(3, frames, np.float32),
             "chroma": lambda frames: np.ones((frames, 12), np.float32) * frames}
    whole = feed(batch_size=1, remainder="pad")
    lengths = {batch.ids[0]: int(batch.mel_lengths[0]) for batch in whole}
    for kind, array in kinds.items():
        (tmp_path / kind).mkdir()
        for name, frames in lengths.items():
            np.save(tmp_path / kind / f"{name}.npy", array(frames))
    extra = {kind: tmp_path / kind for kind in kinds}
    ours, numpys = feed(shapes=3, extra=extra), feed(shapes=3, extra=extra)
    dataset = ours.tf()
    spec = dataset.element_spec
    assert [tuple(spec[kind].shape) for kind in kinds] == [(2, None), (2, 3), (2, None, 12)]
    assert assert_follow(dataset, numpys) == len(ours)
    static = feed(shapes=1, extra=extra).tf().element_spec
    assert all(spec.shape.is_fully_defined() for spec in static.values())


def test_with_one_shape_every_dimension_is_known(feed):
    for keys in ({"shapes": 1}, {"pad_to_fixed_length": True, "max_text_length": 200, "max_mel_frames": 1000},
                 {"shapes": 1, "mel_layout": "bins_first"}):
        ours = feed(**keys)
        dataset = ours.tf()
        rows, tokens, frames = ours.shapes[0]
        mel = (rows, 80, frames) if "mel_layout" in keys else (rows, frames, 80)
        assert tuple(dataset.element_spec["mel"].shape) == mel
        assert tuple(dataset.element_spec["tokens"].shape) == (rows, tokens)
        for batch in dataset.take(2):
            assert {k: v.shape for k, v in batch.items()} == {k: v.shape for k, v in dataset.element_spec.items()}


def test_with_more_shapes_lengths_are_open_and_each_tensor_knows_its_own(feed):
    for keys in ({"shapes": 4}, {"shapes": "dynamic"}):
        ours = feed(**keys)
        dataset = ours.tf()
        assert tuple(dataset.element_spec["mel"].shape) == (2, None, 80)
        assert tuple(dataset.element_spec["tokens"].shape) == (2, None)
        seen = {(2, batch["tokens"].shape[1], batch["mel"].shape[1]) for batch in dataset}
        assert len(seen) > 1
        if keys["shapes"] == 4:
            assert seen == set(ours.shapes)


def test_tensors_are_the_feeds_own_memory(feed, monkeypatch):
    ours = feed(shapes=4)
    take, taken = ours.next, []

    def spy():
        batch = take()
        taken.append({name: getattr(batch, name).ctypes.data for name in ARRAYS})
        return batch
    monkeypatch.setattr(ours, "next", spy)
    for batch in ours.tf():
        assert {name: np.asarray(memoryview(batch[name])).ctypes.data for name in ARRAYS} == taken[-1]
    assert len(taken) == len(ours)


# ---- training

def test_a_step_is_traced_once_per_shape_and_the_loss_falls(feed, tf):
    ours = feed(shapes=4)
    for compiler in ({}, {"jit_compile": True}):
        tf.random.set_seed(1)
        weight, bias = tf.Variable(tf.random.normal((80, 80)) / 9), tf.Variable(tf.zeros(80))

        @tf.function(**compiler)
        def step(batch, weight=weight, bias=bias):
            mel = batch["mel"]
            assert mel.shape.is_fully_defined()
            with tf.GradientTape() as tape:
                error = tf.reduce_mean(tf.abs(mel[:, :-1] @ weight + bias - mel[:, 1:]), axis=-1)
                valid = tf.sequence_mask(batch["mel_lengths"] - 1, mel.shape[1] - 1, tf.float32)
                loss = tf.reduce_sum(error * valid) / tf.reduce_sum(valid)
            for variable, gradient in zip((weight, bias), tape.gradient(loss, (weight, bias))):
                variable.assign_sub(0.02 * gradient)
            return loss

        losses = [float(step(batch)) for _ in range(2) for batch in ours.tf()]
        assert step.experimental_get_tracing_count() == 4 == len(ours.shapes)
        assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def model_of(tf):
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.Input((80,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(1e-3), "mae")
    return model


def pair(tf):
    return lambda batch: (tf.reduce_mean(batch["mel"], 1), tf.cast(batch["mel_lengths"], tf.float32)[:, None] / 100)


def test_fit_takes_one_shape_with_and_without_steps_per_epoch(feed, tf):
    ours = feed(shapes=1)
    model, always = model_of(tf), {"epochs": 2, "shuffle": False, "verbose": 0}
    endless = model.fit(ours.tf().map(pair(tf)).repeat(), steps_per_epoch=len(ours), **always).history["loss"]
    assert (ours.state()["epoch"], ours.state()["step"]) == (1, len(ours))
    with pytest.warns(UserWarning, match="ran out of data"):  # how Keras finds out the length of an epoch
        whole = model.fit(ours.tf().map(pair(tf)), **always).history["loss"]
    assert (ours.state()["epoch"], ours.state()["step"]) == (3, len(ours))
    assert len(endless) == len(whole) == 2
    assert max(whole) < endless[0]


@pytest.mark.parametrize("derive", [
    lambda dataset, tf: dataset,
    lambda dataset, tf: dataset.repeat(),
    lambda dataset, tf: dataset.prefetch(2),
    lambda dataset, tf: dataset.map(lambda x, y: (x, y), num_parallel_calls=2).prefetch(tf.data.AUTOTUNE).repeat(),
], ids=["plain", "repeat", "prefetch", "parallel"])
def test_fit_with_more_shapes_is_refused_with_advice(feed, tf, derive):
    ours = feed(shapes=4)
    with pytest.raises(tf.errors.UnknownError, match=r"Error: model\.fit traces its step once, .*have 4 shapes.*shapes=1"):
        model_of(tf).fit(derive(ours.tf().map(pair(tf)), tf), steps_per_epoch=3, shuffle=False, verbose=0)
    assert ours.state()["step"] == 0
    assert len(list(ours.tf())) == len(ours)


def test_a_callback_of_fit_may_loop_over_more_shapes(feed, tf):
    ours, others = feed(shapes=1), feed(shapes=4)
    counts = []

    class Count(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            counts.append(sum(1 for _ in others.tf().map(pair(tf))))

    model_of(tf).fit(ours.tf().map(pair(tf)).repeat(), steps_per_epoch=3, shuffle=False, verbose=0, callbacks=[Count()])
    assert counts == [len(others)]


# ---- where it stands

def test_the_state_is_behind_the_batch_that_the_loop_has(feed, tf):
    ours = feed(shapes=4)
    for dataset in (ours.tf(), ours.tf().map(lambda batch: {**batch, "mel": batch["mel"] * 2})):
        for batch in dataset:
            assert (ours.state()["epoch"], ours.state()["step"]) == (int(batch["epoch"]), int(batch["step"]) + 1)


def test_a_restored_state_goes_on_in_the_middle_of_an_epoch(feed):
    ours, numpys, others = feed(shapes=4), feed(shapes=4), feed(shapes=4)
    dataset = ours.tf()
    assert assert_follow(dataset.take(5), numpys) == 5
    state = json.loads(json.dumps(ours.state()))
    assert state["step"] == 5
    others.restore(state)
    assert assert_follow(others.tf(), numpys) == len(ours) - 5
    assert steps(others.tf().take(2)) == [(1, 0), (1, 1)]
    ours.restore(state)
    assert steps(dataset.repeat().take(len(ours))) == [(0, s) for s in range(5, len(ours))] + [(1, s) for s in range(5)]


def test_a_prefetch_runs_ahead_and_the_state_after_a_batch_is_exact(feed, tf):
    from penstock.tf import state_after
    ours, numpys = feed(shapes=4), feed(shapes=4)
    for number, batch in enumerate(ours.tf().prefetch(4)):
        assert_same(batch, numpys.next())
        if number == 3:
            break
    assert state_after(ours, batch) == numpys.state()


# ---- batches that are kept

def test_a_consumer_may_keep_every_batch_and_they_outlive_the_feed(feed, tf):
    ours, numpys = feed(shapes=4, prefetch_buffer_size=2), feed(shapes=4)
    kept = list(ours.tf().prefetch(5).repeat(3))
    views = [batch["mel"][0] for batch in ours.tf().cache()]
    ours.close()
    gc.collect()
    assert assert_follow(kept, numpys) == 3 * len(numpys)
    for view in views:
        np.testing.assert_array_equal(view.numpy(), numpys.next().mel[0])


def test_a_feed_lives_as_long_as_its_datasets(tf, tones):
    feed = penstock.Feed(tones, batch_size=2, shapes=4)
    alive, count = weakref.ref(feed), len(feed)
    derived = feed.tf().map(lambda batch: batch["mel"]).prefetch(1)
    del feed
    gc.collect()
    iterator = iter(derived)
    del derived
    gc.collect()
    assert sum(1 for _ in iterator) == count
    del iterator
    gc.collect()
    assert alive() is None


# ---- errors

def test_a_bad_sample_is_named_and_the_original_error_is_at_hand(feed, tf, tones, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(tones, folder, ignore=shutil.ignore_patterns(".penstock"))
    feed(folder).close()
    bad = sorted((folder / "wavs").iterdir())[3]
    bad.write_bytes(bad.read_bytes()[:-100])
    ours = feed(folder, shapes=4, remainder="wrap", split="all", on_bad_sample="fail")
    with pytest.raises(tf.errors.UnknownError, match=f"SampleError: read: .*{bad.name}"):
        list(ours.tf())
    with pytest.raises(penstock.SampleError) as original:
        ours.next()
    assert original.value.utterance == bad.stem and bad.name in original.value.path


def test_a_closed_feed_says_so(feed, tf):
    ours = feed(shapes=4)
    dataset = ours.tf()
    ours.close()
    with pytest.raises(tf.errors.UnknownError, match="this feed has been closed"):
        list(dataset)


# ---- the example

def test_the_example_trains_with_four_traces(tf, tones):
    ran = subprocess.run([sys.executable, EXAMPLE, tones, "--batch-size", "2"], capture_output=True, text=True,
                         timeout=300)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 2 and all(line.endswith("4 traces for 4 shapes") for line in lines)
    first, last = float(lines[0].split()[3]), float(lines[1].split()[5])
    assert last < 0.5 * first
