"""feed.jax() in the real JAX, on the CPU: the same elements as NumPy's, one compilation per shape, meshes, kept arrays."""
import gc
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import penstock

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "jax_train.py"
ARRAYS = ["mel", "mel_lengths", "tokens", "token_lengths", "speakers", "utterances", "replaced"]


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


@pytest.fixture
def feed(jax, tones):
    """Opens feeds of the tones; they are closed in the end."""
    feeds = []

    def opened(folder=tones, **keys):
        feeds.append(penstock.Feed(folder, **{"batch_size": 2, "seed": 7, "shapes": 4, **keys}))
        return feeds[-1]
    yield opened
    for each in feeds:
        each.close()


def assert_same(got, expected):
    """A batch of JAX arrays against one of the feed's own."""
    for name in ARRAYS:
        value, array = getattr(got, name), getattr(expected, name)
        assert value.dtype == (np.int32 if name == "utterances" else array.dtype)
        np.testing.assert_array_equal(np.asarray(value), array)
    assert got.extras.keys() == expected.extras.keys()
    for name, array in expected.extras.items():
        np.testing.assert_array_equal(np.asarray(got.extras[name]), array)
    assert (got.ids, got.epoch, got.step, got.shape) == (expected.ids, expected.epoch, expected.step, expected.shape)


def assert_follow(batches, expected):
    count = 0
    for batch in batches:
        assert_same(batch, expected.next())
        count += 1
    return count


# ---- elements

def test_an_epoch_equals_numpys_and_the_next_loop_takes_the_next_epoch(feed):
    ours, numpys = feed(), feed()
    view = ours.jax()
    assert len(view) == len(ours)
    for _ in range(2):
        assert assert_follow(view, numpys) == len(ours)
    assert ours.state() == numpys.state()
    numpys.reset()
    assert assert_follow(view.epoch(0), numpys) == len(ours)


def test_every_array_is_committed_to_the_device(feed, jax):
    for batch in (next(iter(feed().jax())), next(iter(feed().jax(device=jax.devices()[0])))):
        for array in jax.tree.leaves(batch):
            assert array.committed and array.devices() == {jax.devices()[0]}


def test_arrays_are_the_feeds_own_memory(feed, monkeypatch):
    import penstock.jax as adapter
    from penstock.lending import lender
    ours = feed()
    lend, lent = lender(ours), []

    def spy(batch):
        lent.append(batch.mel.ctypes.data)
        return lend(batch)
    monkeypatch.setattr(adapter, "lender", lambda _: spy)
    for batch in ours.jax():
        assert batch.mel.unsafe_buffer_pointer() == lent[-1]
    assert len(lent) == len(ours)


def test_extras_and_layout_go_along(feed, tmp_path):
    for batch in feed(batch_size=1, remainder="pad"):
        np.save(tmp_path / f"{batch.ids[0]}.npy", np.arange(batch.mel_lengths[0], dtype=np.float32))
    keys = {"extra": {"f0": tmp_path}, "mel_layout": "bins_first"}
    ours = feed(**keys)
    assert assert_follow(ours.jax(), feed(**keys)) == len(ours)


# ---- a batch in transformations

def test_a_step_is_compiled_once_per_shape_and_the_loss_falls(feed, jax):
    jnp = jax.numpy
    ours = feed()
    compilations = []

    def listen(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(seconds)

    def loss_of(model, batch):
        assert batch.ids == [] and batch.shape in ours.shapes
        error = jnp.abs(batch.mel[:, :-1] @ model["weight"] + model["bias"] - batch.mel[:, 1:]).mean(axis=-1)
        valid = jnp.arange(error.shape[1]) < batch.mel_lengths[:, None] - 1
        return jnp.sum(error * valid) / jnp.sum(valid)

    @jax.jit
    def step(model, batch):
        loss, gradient = jax.value_and_grad(loss_of)(model, batch)
        return jax.tree.map(lambda w, g: w - 0.02 * g, model, gradient), loss

    model = {"weight": jax.random.normal(jax.random.key(1), (80, 80)) / 9, "bias": jnp.zeros(80)}
    model = jax.device_put(model, jax.devices()[0])
    losses = []
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for _ in range(2):
            for batch in ours.jax():
                model, loss = step(model, batch)
                losses.append(loss)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert step._cache_size() == len(compilations) == 4 == len(ours.shapes)
    losses = [float(loss) for loss in losses]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def test_a_batch_is_a_pytree_of_its_arrays(feed, jax):
    view = feed().jax()
    batch = next(iter(view))
    leaves, tree = jax.tree.flatten(batch)
    assert len(leaves) == len(ARRAYS)
    again = jax.tree.unflatten(tree, leaves)
    assert again.mel is batch.mel and again.shape == batch.shape and again.ids == []
    others = [other for other in view if other.shape == batch.shape]
    assert others and all(jax.tree.structure(other) == tree for other in others)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(batch)[0]]
    assert names == [f".{name}" for name in ARRAYS]


# ---- meshes

def run(source, *arguments, devices):
    command = [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)]
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def outputs(*processes):
    for process in processes:
        try:
            out, errors = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            for each in processes:
                each.kill()
            raise
        assert process.returncode == 0, errors
        yield json.loads(out.splitlines()[-1])


def test_rows_are_sharded_over_the_first_axis_of_a_mesh(jax, tones):
    source = """
        import sys, json, jax, numpy as np, penstock
        from jax.sharding import NamedSharding, PartitionSpec
        keys = dict(batch_size=8, shapes=2, seed=7, remainder="wrap")
        ours, numpys = penstock.Feed(sys.argv[1], **keys), penstock.Feed(sys.argv[1], **keys)
        devices = np.array(jax.devices())
        total = jax.jit(lambda batch: batch.mel.sum())
        for mesh, rows in ((jax.make_mesh((4,), ("data",)), 2),
                           (jax.sharding.Mesh(devices.reshape(2, 2), ("data", "model")), 4)):
            for batch in ours.jax(mesh=mesh):
                expected = numpys.next()
                for array in jax.tree.leaves(batch):
                    assert array.sharding == NamedSharding(mesh, PartitionSpec("data")) and array.committed
                for shard in batch.mel.addressable_shards:
                    assert shard.data.shape == (rows, *batch.mel.shape[1:])
                    assert np.array_equal(np.asarray(shard.data), expected.mel[shard.index])
                assert np.array_equal(batch.utterances, expected.utterances) and batch.ids == expected.ids
                assert np.array_equal(batch.tokens, expected.tokens)
                assert np.isclose(float(total(batch)), expected.mel.astype(np.float64).sum(), rtol=1e-4)
        assert total._cache_size() == 4
        try:
            penstock.Feed(sys.argv[1], batch_size=6).jax(mesh=jax.sharding.Mesh(devices, ("data",)))
        except penstock.Error as error:
            print(json.dumps(str(error)))
    """
    [refused] = outputs(run(source, tones, devices=4))
    assert refused == ("batch_size must be a multiple of 4, the devices of this process along the mesh's axis 'data', "
                       "but is 6")


@pytest.mark.parametrize("axes", [["data"], ["data", "model"], ["model", "data"]], ids="-".join)
def test_each_of_two_processes_feeds_its_rows_of_the_global_batch(jax, tones, axes):
    """With the model spread over the processes both feed the same rows, and the first axis has them all."""
    source = """
        import sys, json, jax, numpy as np, penstock
        jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[3]))
        devices = np.array(sorted(jax.devices(), key=lambda d: (d.process_index, d.id)))
        axes = sys.argv[4].split(",")
        if len(axes) == 2:
            devices = devices.reshape(2, 2) if axes[0] == "data" else devices.reshape(2, 2).T
        mesh = jax.sharding.Mesh(devices, tuple(axes))
        feed = penstock.Feed(sys.argv[1], batch_size=4, shapes=2, seed=7)
        rows = []
        for batch in feed.jax(mesh=mesh):
            local = {}
            for shard in batch.utterances.addressable_shards:
                local[shard.index[0].start or 0] = np.asarray(shard.data).tolist()
            rows.append([sum((local[start] for start in sorted(local)), []), batch.shape[0], len(batch.ids)])
        print(json.dumps([rows, feed.settings.get("rank", "0"), feed.settings.get("world", "1")]))
    """
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    (ours, first, world), (theirs, second, _) = outputs(
        *[run(source, tones, address, process, ",".join(axes), devices=2) for process in range(2)])
    shared = axes[0] == "model"
    with penstock.Feed(tones, batch_size=4 if shared else 8, shapes=2, seed=7) as whole:
        expected = [batch.utterances.tolist() for batch in whole]
    assert (first, second, world) == (("0", "0", "1") if shared else ("0", "1", "2"))
    assert [rows for rows, _, _ in ours] == [batch[:4] for batch in expected]
    assert [rows for rows, _, _ in theirs] == [batch[:4] if shared else batch[4:] for batch in expected]
    assert all(count == (4 if shared else 8) and ids == 4 for _, count, ids in ours + theirs)


def test_a_device_and_a_mesh_are_too_much(feed, jax):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    with pytest.raises(penstock.Error, match="a device or a mesh, not both"):
        feed().jax(device=jax.devices()[0], mesh=mesh)


# ---- where it stands

def test_a_restored_state_goes_on_in_the_middle_of_an_epoch(feed):
    ours, numpys, others = feed(), feed(), feed()
    batches = iter(ours.jax())
    for _ in range(5):
        assert_same(next(batches), numpys.next())
    state = json.loads(json.dumps(ours.state()))
    assert state["step"] == 5
    others.restore(state)
    assert assert_follow(others.jax(), numpys) == len(ours) - 5
    assert next(iter(others.jax())).epoch == 1


# ---- arrays that are kept

def test_a_consumer_may_keep_every_batch_and_they_outlive_the_feed(feed):
    ours, numpys = feed(prefetch_buffer_size=2), feed()
    view = ours.jax()
    kept = [batch for _ in range(3) for batch in view]
    rows = [batch.mel[0] for batch in view]
    ours.close()
    gc.collect()
    assert assert_follow(kept, numpys) == 3 * len(numpys)
    for row in rows:
        np.testing.assert_array_equal(np.asarray(row), numpys.next().mel[0])


@pytest.mark.long
def test_nothing_changes_under_arrays_that_are_in_use(feed, jax):
    """Work in flight, arrays kept for a while and dropped in any order, sums on other threads, donated arrays."""
    jnp = jax.numpy
    ours, numpys = feed(prefetch_buffer_size=3, num_workers=2), feed()

    @jax.jit
    def work(batch):
        mel = batch.mel
        for _ in range(3):
            mel = jnp.sort(mel, axis=1)[:, ::-1]  # slow enough to be overtaken
        return batch.mel.max(), mel.max(), batch.tokens.sum(), batch.mel_lengths

    take = jax.jit(lambda mel: mel + 1, donate_argnums=0)
    choose, in_flight, kept, wrong = random.Random(1), [], [], []

    def check(batch, expected):
        if not all(np.array_equal(np.asarray(getattr(batch, name)), expected[name]) for name in ARRAYS):
            wrong.append(batch.step)

    for _ in range(8):
        for batch in ours.jax():
            truth = numpys.next()
            expected = {name: getattr(truth, name).copy() for name in ARRAYS}
            in_flight.append((work(batch), expected))
            kind = choose.randrange(4)
            if kind == 0:
                kept.append((batch, expected))
            elif kind == 1:
                thread = threading.Thread(target=check, args=(batch, expected))
                thread.start()
                kept.append((thread, None))
            elif kind == 2:
                in_flight.append((take(batch.mel), expected["mel"] + 1))
            while len(kept) > 6:
                old, expected = kept.pop(choose.randrange(len(kept)))
                old.join() if expected is None else check(old, expected)
            del batch
    for old, expected in kept:
        old.join() if expected is None else check(old, expected)
    assert wrong == []
    for result, expected in in_flight:
        if isinstance(expected, dict):
            largest, again, tokens, lengths = result
            assert float(largest) == float(again) == expected["mel"].max() and int(tokens) == expected["tokens"].sum()
            np.testing.assert_array_equal(np.asarray(lengths), expected["mel_lengths"])
        else:
            np.testing.assert_array_equal(np.asarray(result), expected)


# ---- errors

def test_a_bad_sample_is_the_feeds_own_error(feed, tones, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(tones, folder, ignore=shutil.ignore_patterns(".penstock"))
    feed(folder).close()
    bad = sorted((folder / "wavs").iterdir())[3]
    bad.write_bytes(bad.read_bytes()[:-100])
    ours = feed(folder, remainder="wrap", split="all", on_bad_sample="fail")
    with pytest.raises(penstock.SampleError, match=bad.name) as raised:
        list(ours.jax())
    assert raised.value.utterance == bad.stem


# ---- the example

def test_the_example_trains_with_four_compilations(jax, tones):
    ran = subprocess.run([sys.executable, EXAMPLE, tones, "--batch-size", "2"], capture_output=True, text=True,
                         timeout=300)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 2 and all(line.endswith("4 compilations for 4 shapes") for line in lines)
    first, last = float(lines[0].split()[3]), float(lines[1].split()[5])
    assert last < 0.5 * first
