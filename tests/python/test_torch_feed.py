"""The feed in PyTorch: tensors, a compiled training loop, DataLoader with and without workers, ranks, resuming."""
import copy
import gc
import hashlib
import json
import os
import pathlib
import pickle
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend
from torch.utils.data import DataLoader

import penstock as package  # the fixture `penstock` is the program
import penstock.torch as adapter

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARRAYS = ("mel", "mel_lengths", "tokens", "token_lengths", "speakers", "utterances", "replaced")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than CPUs
KEYS = {"batch_size": 4, "shapes": 4, "seed": 7, "split": "all"}


def content(batch):
    """All of a batch, comparable, and short enough to be shown; also of a NumPy batch."""
    arrays = {name: np.asarray(getattr(batch, name)) for name in ARRAYS}
    arrays.update({f"extra {name}": np.asarray(array) for name, array in batch.extras.items()})
    described = [(name, a.dtype.str, a.shape, hashlib.sha256(a.tobytes()).hexdigest()) for name, a in arrays.items()]
    return batch.epoch, batch.step, batch.shape, batch.ids, described


def order(batches):
    return [(batch.epoch, batch.step) for batch in batches]


@pytest.fixture
def feed(tones):
    with package.Feed(tones, **KEYS) as feed:
        yield feed


@pytest.fixture(scope="module")
def plan(tones):
    """What every loader must deliver: the contents of four epochs."""
    with package.Feed(tones, **KEYS) as feed:
        return [[content(batch) for batch in feed.epoch(epoch)] for epoch in range(4)]


@pytest.fixture
def dataset(tones):
    return adapter.FeedDataset(tones, **KEYS)


def loader(dataset, workers=0, context="fork", **options):
    if workers:
        options["multiprocessing_context"] = context
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


# ---- tensors


def test_batches_equal_numpys_element_by_element(feed, plan):
    assert [content(batch) for batch in feed.torch()] == plan[0]
    batch = next(iter(feed.torch()))
    assert all(isinstance(getattr(batch, name), torch.Tensor) for name in ARRAYS)
    assert (batch.mel.dtype, batch.tokens.dtype, batch.replaced.dtype) == (torch.float32, torch.int32, torch.bool)


def test_extras_are_tensors_too(tones, tmp_path):
    for number, line in enumerate((tones / "metadata.csv").read_text(encoding="utf-8").splitlines()):
        np.save(tmp_path / f"{line.split('|')[0]}.npy", np.full(3, number, np.float32))
    keys = {**KEYS, "extra": {"style": tmp_path}}
    with package.Feed(tones, **keys) as feed, package.Feed(tones, **keys) as same:
        batch = next(iter(feed.torch()))
        assert batch.extras["style"].shape == (4, 3)
        assert content(batch) == content(same.next())
        assert batch.to("meta").extras["style"].is_meta


def test_a_view_is_iterated_like_its_feed(feed, plan):
    view = feed.torch()
    assert len(view) == len(feed) == len(plan[0])
    assert [content(b) for b in view] + [content(b) for b in view] == plan[0] + plan[1]
    assert [content(b) for b in view.epoch(2)] == plan[2]
    assert feed.state()["step"] == len(feed)


def test_tensors_share_the_slot(feed):
    arrays = feed.next()
    batch = adapter._on_host(arrays)
    assert batch.mel.data_ptr() == arrays.mel.ctypes.data and batch.tokens.data_ptr() == arrays.tokens.ctypes.data
    batch.mel[0, 0, 0] = 123
    assert arrays.mel[0, 0, 0] == 123


def test_tensors_outlive_their_batch_and_the_feed(tones, plan):
    feed = package.Feed(tones, **KEYS)
    kept = [batch.mel[:, ::2] for batch, _ in zip(feed.torch(), range(3))]
    for _ in range(30):  # the ring goes round
        feed.next()
    feed.close()
    del feed
    gc.collect()
    with package.Feed(tones, **KEYS) as again:
        for mel in kept:
            assert np.array_equal(mel, again.next().mel[:, ::2])


def test_what_is_written_into_tensors_is_in_no_later_batch(feed, plan):
    view = feed.torch()
    for batch in view:
        batch.mel.fill_(float("nan"))
        for name in ARRAYS[1:]:
            getattr(batch, name).fill_(77)
    assert [content(batch) for batch in view] == plan[1]
    with torch.inference_mode():  # tensors that count no writes
        for batch in view:
            batch.mel[:, -8:] = 5
            batch.tokens[:, -8:] = 5
    assert [content(batch) for batch in view] == plan[3]


def test_a_batch_moves_as_a_whole(feed):
    batch = next(iter(feed.torch()))
    moved = batch.to(torch.device("meta"))
    assert all(getattr(moved, name).is_meta for name in ARRAYS) and not batch.mel.is_meta
    assert (moved.ids, moved.epoch, moved.step, moved.shape) == (batch.ids, batch.epoch, batch.step, batch.shape)
    assert content(pickle.loads(pickle.dumps(batch))) == content(batch)


# ---- devices


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 0)])
def test_a_missing_gpu_is_named(feed, device):
    with pytest.raises(package.Error, match=r"device must be cpu here, but is cuda.*finds no CUDA device"):
        feed.torch(device=device)
    assert feed.next().step == 0  # and the feed goes on


def test_other_devices_get_advice(feed):
    with pytest.raises(package.Error, match=r"must be cpu or cuda, but is mps.*batch.to\('mps'\)"):
        feed.torch(device="mps")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the stand-in's memory is no GPU's")
def test_device_arrays_take_part_in_torchs_stream_protocol(tones, monkeypatch):
    """As far as it goes without a GPU: up to the point where torch would wrap a device's memory."""
    class LegacyStream:
        cuda_stream = 0

    asked, capsules = [], []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: asked.append(device) or LegacyStream)
    monkeypatch.setattr(torch._C, "_from_dlpack", lambda capsule: capsules.append(capsule) or torch.zeros(1))
    with package.Feed(tones, **KEYS, device="simulated") as feed:
        batch = adapter._on_device(feed.next())
    assert set(asked) == {"cuda:0"} and len(asked) == len(capsules) == len(ARRAYS)
    assert all("dltensor" in repr(capsule) for capsule in capsules)
    assert batch.shape[0] == KEYS["batch_size"] and len(batch.ids) == KEYS["batch_size"]


# ---- training


def test_an_epoch_of_four_shapes_compiles_four_times_and_the_loss_falls(tones):
    model_of = runpy.run_path(str(ROOT / "examples/python/torch_train.py"))["NextFrame"]
    compiled = []

    def counting(graph, inputs):
        compiled.append(max((tuple(i.shape) for i in inputs if i.dim() == 3), key=len))
        return lookup_backend("aot_eager")(graph, inputs)

    torch._dynamo.reset()
    torch.manual_seed(0)
    model = model_of(bins=80)
    step = torch.compile(model, dynamic=False, backend=counting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with package.Feed(tones, **KEYS) as feed:
        assert len(feed.shapes) == 4
        losses, shapes = [], set()
        for epoch in range(3):
            for batch in feed.torch():
                shapes.add(batch.shape)
                loss = step(batch.mel, batch.mel_lengths, batch.tokens, batch.token_lengths)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            assert len(shapes) == 4 and len(compiled) == 4, (epoch, compiled)
    assert sorted(set(compiled)) == sorted(compiled)
    each = len(losses) // 3
    assert sum(losses[-each:]) < 0.7 * sum(losses[:each])


@pytest.mark.long
def test_the_example_trains_and_goes_on_where_it_was_stopped(tones, tmp_path):
    def train(checkpoint, *flags):
        command = [sys.executable, ROOT / "examples/python/torch_train.py", tones, "--batch-size", 4, "--epochs", 2,
                   "--backend", "aot_eager", "--checkpoint", tmp_path / checkpoint, *flags]
        done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    whole = train("whole.pt")
    parts = train("parts.pt", "--steps", 3) + train("parts.pt")
    assert parts == whole
    assert [line.split()[1] for line in whole].count("0") == len(whole) // 2
    loss = [float(re.search(r"loss (\S+)", line)[1]) for line in whole]
    assert loss[-1] < loss[0]


def test_the_documentation_shows_what_happens(tones, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/tones").symlink_to(tones)
    page = (ROOT / "docs/python/torch.md").read_text(encoding="utf-8")
    names = {}
    for kind, block in re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL):
        if kind == "python":
            exec(block, names)
        else:
            assert capsys.readouterr().out == block


# ---- DataLoader


@pytest.mark.parametrize("workers, context, persistent", [
    (0, None, False), (2, "fork", False), (3, "fork", False), (3, "fork", True), (2, "spawn", False),
    (3, "spawn", True)])
def test_a_data_loader_gives_the_plans_order_bit_for_bit(dataset, plan, workers, context, persistent):
    batches = loader(dataset, workers, context, persistent_workers=persistent)
    for epoch in range(3 if context != "spawn" else 2):
        assert [content(batch) for batch in batches] == plan[epoch]
    assert len(batches) == len(dataset) == len(plan[0])


def test_an_open_feed_in_the_main_process_does_not_disturb_forked_workers(dataset, plan):
    assert content(next(iter(dataset))) == plan[0][0]
    assert [content(batch) for batch in loader(dataset, 2)] == plan[1]
    assert [content(batch) for batch in dataset] == plan[2]


def test_more_workers_than_batches(tones):
    dataset = adapter.FeedDataset(tones, **{**KEYS, "batch_size": 16, "shapes": 1})
    assert len(dataset) == 2
    assert order(loader(dataset, 4)) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("workers, persistent", [(0, False), (2, False), (2, True)])
def test_set_epoch_says_which_epoch_is_next(dataset, workers, persistent):
    batches = loader(dataset, workers, persistent_workers=persistent)
    steps = range(len(dataset))
    for epoch in (5, 2):
        dataset.set_epoch(epoch)
        assert order(batches) == [(epoch, step) for step in steps]
    assert order(batches) == [(3, step) for step in steps]
    dataset.set_epoch(4)
    assert order(batches) == [(4, step) for step in steps]


@pytest.mark.parametrize("workers, persistent", [(0, False), (2, False), (2, True)])
def test_an_epoch_that_was_left_early_is_over(dataset, workers, persistent):
    batches = loader(dataset, workers, persistent_workers=persistent)
    for epoch in range(3):
        for batch, _ in zip(batches, range(2)):
            assert batch.epoch == epoch
    dataset.set_epoch(0)
    assert next(iter(batches)).epoch == 0


def test_an_iteration_of_which_nothing_was_taken_does_not_count(dataset):
    iter(dataset)
    assert next(iter(dataset)).epoch == 0


def test_workers_agree_on_an_epoch_in_whatever_order_they_start():
    place = adapter._Place()

    def join(worker, mark):
        epoch, step = place.join(worker, mark)
        place.begun(worker, mark, epoch)
        return epoch, step

    place.set(3, 5)
    assert [join(w, 11) for w in (1, 0, 2)] == [(3, 5)] * 3
    assert [join(w, 12) for w in (2, 0)] == [(4, 0)] * 2  # worker 1 was killed before it began
    assert [join(w, 13) for w in (1, 0, 2)] == [(5, 0)] * 3
    assert [join(w, 13) for w in (0, 1, 2)] == [(6, 0)] * 3  # somebody sets the same seed every time
    assert [join(w, 14) for w in (3, 1, 4, 0, 2)] == [(7, 0)] * 5  # another number of workers
    assert place.in_workers() and place.next() == (8, 0)
    place.set(1, 0)
    assert not place.in_workers() and place.next() == (1, 0)


def test_misuse_is_found_where_it_happens(tones):
    with pytest.raises(package.Error, match="did you mean batch_size"):
        adapter.FeedDataset(tones, batch_sise=4)
    with pytest.raises(package.Error, match="device must be cpu in a FeedDataset"):
        adapter.FeedDataset(tones, device="simulated")
    with pytest.raises(package.Error, match="not the state of a feed"):
        adapter.FeedDataset(tones, **KEYS).load_state_dict({"step": 3})


# ---- resuming


@pytest.mark.parametrize("before, after", [(0, 0), (0, 2), (2, 0), (2, 3), (3, 2)])
def test_resuming_in_mid_epoch_with_any_number_of_workers(tones, dataset, plan, before, after):
    dataset.set_epoch(1)
    for batch in loader(dataset, before):
        if batch.step == 4:
            break
    state = json.loads(json.dumps(dataset.state_dict(batch)))
    resumed = adapter.FeedDataset(tones, **KEYS)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)  # as loops do that know the epoch: it goes on in its midst all the same
    batches = loader(resumed, after, persistent_workers=after > 0)
    for _ in range(2):  # also a loader that has run already
        assert [content(b) for b in batches] == plan[1][5:]
        assert [content(b) for b in batches] == plan[2]
        resumed.load_state_dict(state)


def test_a_worker_that_starts_meanwhile_changes_nothing():
    place = adapter._Place()
    place.set(5, 0)

    class OtherStartsNow:
        """The shared memory; behind every look at it another worker begins the epoch that it found."""

        def tolist(self):
            seen = place_memory.tolist()
            other.begun(1, 77, other.join(1, 77)[0])
            return seen

    place_memory = place._cells
    other = adapter._Place()
    other._cells = place_memory
    place._cells = OtherStartsNow()
    assert place.join(0, 77) == other.join(0, 77) == (5, 0)


def test_without_workers_the_dataset_itself_knows_where_it_stands(tones, dataset, plan):
    assert dataset.state_dict() == {**package.Feed(tones, **KEYS).state(), "epoch": 0, "step": 0}
    batches = iter(loader(dataset))
    for _ in range(3):
        batch = next(batches)
    assert dataset.state_dict() == dataset.state_dict(batch)
    with package.Feed(tones, **KEYS) as feed:  # states are a Feed's
        feed.restore(dataset.state_dict())
        assert content(feed.next()) == plan[0][3]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_behind_the_last_batch_is_the_next_epoch(tones, dataset, plan, workers):
    for last in loader(dataset, workers):  # noqa: B007
        pass
    resumed = adapter.FeedDataset(tones, **KEYS)
    resumed.load_state_dict(dataset.state_dict(last))
    assert [content(b) for b in loader(resumed, workers)] == plan[1]


def test_with_workers_the_dataset_asks_for_the_batch(dataset):
    batch = next(iter(loader(dataset, 2)))
    with pytest.raises(package.Error, match=r"state_dict\(batch\)"):
        dataset.state_dict()
    assert dataset.state_dict(batch)["step"] == 1
    dataset.set_epoch(7)
    assert (dataset.state_dict()["epoch"], dataset.state_dict()["step"]) == (7, 0)


def test_a_loaded_state_brings_its_seed_and_shapes(tones):
    other = adapter.FeedDataset(tones, **{**KEYS, "seed": 8, "shapes": 2})
    *_, last = zip(other, range(2))
    rest = [content(b) for b in adapter.FeedDataset(tones, **{**KEYS, "seed": 8, "shapes": 2})][2:]
    resumed = adapter.FeedDataset(tones, **KEYS)
    assert len(resumed) > 0  # has looked at its own already
    resumed.load_state_dict(other.state_dict(last[0]))
    assert [content(b) for b in loader(resumed, 2)] == rest
    assert len(resumed) == len(other)


@pytest.mark.parametrize("workers, persistent", [(0, False), (2, False), (2, True)])
def test_torchdatas_stateful_data_loader_resumes(tones, dataset, plan, workers, persistent):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader_of(dataset):
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent)

    first = loader_of(dataset)
    for _ in first:
        pass
    for batch in first:
        if batch.step == 4:
            break
    in_the_midst = first.state_dict()
    for _ in range(2):  # the state of a resumed loader is as good as the first one's
        second = loader_of(adapter.FeedDataset(tones, **KEYS))
        second.load_state_dict(in_the_midst)
        in_the_midst = second.state_dict()
    assert [content(b) for b in second] == plan[1][5:]
    at_the_end = second.state_dict()
    assert [content(b) for b in second] == plan[2]

    third = loader_of(adapter.FeedDataset(tones, **KEYS))
    third.load_state_dict(at_the_end)
    assert [content(b) for b in third] == plan[2]


def test_datasets_are_pickled_and_copied_where_they_stand(dataset, plan):
    for _, _ in zip(dataset, range(2)):
        pass
    for same in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert same.state_dict() == dataset.state_dict()
        same.set_epoch(2)
        assert [content(b) for b in loader(same, 2)] == plan[2]
    assert [content(b) for b in dataset] == plan[1]  # its copies are apart


# ---- several processes

RANK = """
import json, sys
import torch, torch.distributed
import penstock, penstock.torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    data, keys, rank, meeting, out = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    dataset = penstock.torch.FeedDataset(data, **keys)
    next(iter(dataset))  # as one of one: must not stick
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
    feed = penstock.Feed(data, **keys, **penstock.torch.ranks())
    seen = {"feed": [b.ids for b in feed.torch()]}
    for workers, context in ((0, None), (2, "fork"), (2, "spawn")):
        dataset.set_epoch(0)
        batches = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context)
        seen[f"{workers} {context}"] = [b.ids for b in batches]
    seen["mel"] = [float(b.mel.double().sum()) for b in feed.torch().epoch(0)]
    everybody = [None, None]
    torch.distributed.all_gather_object(everybody, seen)
    if rank == 0:
        json.dump(everybody, open(out, "w"))
    torch.distributed.destroy_process_group()
"""


def test_ranks_see_disjoint_halves_of_the_same_global_batches(tones, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    arguments = [tones, json.dumps(KEYS)]
    processes = [
        subprocess.Popen([sys.executable, script, *arguments, str(rank), tmp_path / "meeting", tmp_path / "seen.json"],
                         env=environment, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    ranks = json.loads((tmp_path / "seen.json").read_text())
    with package.Feed(tones, **{**KEYS, "batch_size": 2 * KEYS["batch_size"]}) as feed:
        whole = [(batch.ids, float(batch.mel.astype(np.float64).sum())) for batch in feed]
    for way in ("feed", "0 None", "2 fork", "2 spawn"):
        assert [a + b for a, b in zip(ranks[0][way], ranks[1][way])] == [ids for ids, _ in whole]
        assert len(ranks[0][way]) == len(ranks[1][way]) == len(whole)
        assert all(not set(a) & set(b) for a, b in zip(ranks[0][way], ranks[1][way]))
    assert [a + b for a, b in zip(ranks[0]["mel"], ranks[1]["mel"])] == pytest.approx([mel for _, mel in whole])


def test_ranks_without_torch_distributed(monkeypatch, tones):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert adapter.ranks() == {"rank": 0, "world": 1}
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert adapter.ranks() == {"rank": 1, "world": 2}
    with package.Feed(tones, **KEYS, rank=1, world=2) as feed:
        assert next(iter(adapter.FeedDataset(tones, **KEYS))).ids == feed.next().ids
    with package.Feed(tones, **KEYS) as feed:
        assert next(iter(adapter.FeedDataset(tones, **KEYS, rank=0, world=1))).ids == feed.next().ids
