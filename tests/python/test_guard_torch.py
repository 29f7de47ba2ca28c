"""The guard on torch.compile: its counts are dynamo's own, and the argument it names is the one that changed."""
import copy
import random

import pytest

import penstock as package

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    dynamo.utils.counters.clear()


def compiled(function, **options):
    return torch.compile(function, backend="eager", **options)


def step_of(x, scale=1.5, how="mean"):
    return x["mel"].mean() * scale if how == "mean" else x["mel"].sum()


X = torch.ones(4, 3)
PAIRS = {  # two calls, the second of which is compiled anew, and what has to be said of it
    "shape": (({"mel": X},), ({"mel": torch.ones(5, 3)},), "x['mel']: shape (4, 3) -> (5, 3)"),
    "dtype": (({"mel": X},), ({"mel": X.double()},), "x['mel']: dtype torch.float32 -> torch.float64"),
    "device": (({"mel": X},), ({"mel": X.to("meta")},), "x['mel']: device cpu -> meta"),
    "stride": (({"mel": X},), ({"mel": torch.ones(3, 4).t()},), "x['mel']: stride contiguous -> (1, 4)"),
    "requires_grad": (({"mel": X},), ({"mel": torch.ones(4, 3, requires_grad=True)},), "x['mel']: requires_grad False -> True"),
    "number": (({"mel": X}, 1.5), ({"mel": X}, 2.5), "scale: value 1.5 -> 2.5"),
    "default": (({"mel": X},), ({"mel": X}, 3.5), "scale: value 1.5 -> 3.5"),
    "text": (({"mel": X},), ({"mel": X}, 1.5, "sum"), "how: value 'mean' -> 'sum'"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_it_names_what_has_changed(name):
    first, second, expected = PAIRS[name]
    told = []
    step = package.guard(compiled(step_of, dynamic=False), on_retrace=told.append)
    for arguments in (first, first, second, second, first):
        step(*arguments)
    assert [(one.step, [str(change) for change in one.changes]) for one in told] == [(3, [expected])]
    assert step.report()["compilations"] == dynamo.utils.counters["frames"]["ok"] == 2


def test_modes_around_the_step_are_named():
    told = []
    step = package.guard(compiled(lambda x: x * 2), on_retrace=told.append)
    x = torch.ones(3, requires_grad=True)
    step(x)
    with torch.no_grad():
        step(x)
    with torch.autocast("cpu", torch.bfloat16):
        step(x)
    assert [str(one.changes[0]) for one in told] == ["torch.is_grad_enabled(): value True -> False", "torch.autocast: value 'off' -> 'cpu torch.bfloat16'"]


def test_counts_and_results_are_those_without_it():
    def body(x, n, flag=False):
        return x.sum() * n + (1.0 if flag else 0.0)

    chance = random.Random(5)
    calls = [((torch.full((chance.choice([2, 3, 4]),), chance.random()), chance.choice([2, 3])), {"flag": chance.random() < 0.2}) for _ in range(40)]
    frames = dynamo.utils.counters["frames"]
    with dynamo.config.patch(recompile_limit=64):
        plain, counts, results = compiled(body, dynamic=False), [], []
        for arguments, keywords in calls:
            before = frames["ok"]
            results.append(plain(*arguments, **keywords))
            counts.append(frames["ok"] - before)
        dynamo.reset()
        step = package.guard(compiled(body, dynamic=False), on_retrace=lambda _: None)
        assert [step(*arguments, **keywords) for arguments, keywords in calls] == results
    report = step.report()
    assert report["compilations"] == sum(counts) > 6
    assert [one["step"] for one in report["details"]] == [i + 1 for i, n in enumerate(counts) if n][1:]
    assert all(one["changes"] for one in report["details"])


def test_a_number_that_dynamo_takes_as_a_symbol_is_not_the_cause():
    told = []
    step = package.guard(compiled(lambda x, n: x * n), on_retrace=told.append)
    for n, frames in ((3, 4), (5, 4), (7, 4), (9, 4), (11, 6)):
        step(torch.ones(2, frames), n)
    assert [(one.step, [change.leaf for change in one.changes]) for one in told] == [(2, ["n"]), (5, ["x"])]


def test_falling_back_to_eager_at_the_limit_is_a_retrace():
    told = []
    with dynamo.config.patch(recompile_limit=3):
        step = package.guard(compiled(step_of, dynamic=False), warm=9, on_retrace=told.append)
        for frames in range(2, 9):
            assert step({"mel": torch.ones(frames)}) == 1.5
    assert [(one.step, one.fallback) for one in told] == [(4, "the limit of 3 recompilations is reached")]
    assert "NOT COMPILED from here on" in str(told[0]) and "x['mel']: shape (4,) -> (5,)" in str(told[0])
    report = step.report()
    assert (report["compilations"], report["fallbacks"], report["retraces"]) == (3, 1, 1)
    assert dynamo.utils.counters["frames"]["ok"] == 3


def test_graph_breaks_are_listed_with_their_lines():
    def broken(x):
        x = x + 1
        dynamo.graph_break()
        return x * 2

    step = package.guard(compiled(broken), on_retrace="raise")
    step(torch.ones(2))
    step(torch.ones(2))
    report = step.report()
    assert len(report["graph_breaks"]) == 1 and f"{__file__}:{broken.__code__.co_firstlineno + 2}: " in report["graph_breaks"][0]
    assert "User-inserted graph break" in report["graph_breaks"][0] and "graph break: " in str(report)
    assert report["compilations"] == dynamo.utils.counters["frames"]["ok"] == 2 and report["warm_ups"] == 1


def test_sizes_that_were_silently_made_dynamic_are_said():
    told = []
    step = package.guard(compiled(lambda x, n: x * n), on_retrace=told.append)
    for frames in (4, 5, 6, 7):
        step(torch.ones(2, frames), 2)
    assert [one.step for one in told] == [2] and step.report()["dynamic"] == ["x: size of dimension 1"]
    assert "made dynamic by itself: x: size of dimension 1" in str(step.report())
    step(torch.ones(2, 9), 3)
    assert step.report()["dynamic"] == ["x: size of dimension 1", "n: its value"]
    layer = package.guard(compiled(torch.nn.Linear(3, 2)), on_retrace=told.append)  # dynamo calls it by a function with *args
    for rows in (4, 5):
        layer(torch.ones(rows, 3))
    assert layer.report()["dynamic"] == ["input: size of dimension 0"] and [change.leaf for change in told[-1].changes] == ["input"]
    fixed = package.guard(compiled(step_of, dynamic=False), on_retrace=told.append)
    for frames in (4, 5, 6):
        fixed({"mel": torch.ones(frames)})
    assert fixed.report()["dynamic"] == []


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = torch.nn.Linear(3, 2), torch.nn.Dropout(0.5)

    def forward(self, mel):
        return self.drop(self.layer(mel))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_module_stays_one(in_place):
    net = Net()
    if in_place:
        net.compile(backend="eager")
    told = []
    guarded = package.guard(net if in_place else compiled(net), on_retrace=told.append)
    assert isinstance(guarded, torch.nn.Module) and len(list(guarded.parameters())) == 2
    around = torch.nn.Sequential(guarded)
    around(X)
    around.eval()
    assert torch.equal(around(X), net.layer(X))
    assert [str(change) for change in told[0].changes] == ["self.training: value True -> False"]
    around(torch.ones(7, 3))
    assert [str(change) for change in told[1].changes] == ["mel: shape (4, 3) -> (7, 3)"]
    assert guarded.report()["steps"] == 3 and guarded.report()["function"] == "Net"
    assert guarded.state_dict().keys() == (net if in_place else compiled(net)).state_dict().keys()
    assert torch.equal(copy.deepcopy(guarded)(X), guarded(X))
    with guarded.warm_up():
        guarded(torch.ones(9, 3, dtype=torch.float32))
    whole = torch.compile(lambda x: guarded(x) + 1, backend="eager", fullgraph=True)  # no graph break by the guard
    steps = guarded.report()["steps"]
    assert torch.equal(whole(X), net.layer(X) + 1) and guarded.report()["steps"] == steps


def test_a_guarded_function_is_compiled_into_another_one():
    inner = package.guard(compiled(lambda x: x + 1), on_retrace="raise")
    outer = package.guard(torch.compile(lambda x: inner(x) * 2, backend="eager", fullgraph=True), on_retrace="raise")
    assert float(outer(torch.ones(()))) == 4.0 and (inner.report()["steps"], outer.report()["steps"]) == (0, 1)


def test_training_is_the_same_with_and_without():
    def losses(wrap):
        torch.manual_seed(1)
        dynamo.reset()
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = wrap(torch.compile(lambda x: (model(x) ** 2).mean(), dynamic=False, backend="aot_eager"))
        found = []
        for rows in (4, 4, 6, 4, 6):
            loss = step(torch.randn(rows, 3))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found, step

    plain, _ = losses(lambda step: step)
    dynamo.utils.counters.clear()
    watched, step = losses(lambda step: package.guard(step, warm=2, on_retrace="raise"))
    assert watched == plain
    assert step.report()["compilations"] == dynamo.utils.counters["frames"]["ok"] == 2


@pytest.mark.long
def test_inductor_is_watched_too():
    step = package.guard(torch.compile(lambda x: x * 2 + 1), on_retrace="raise")
    assert step(torch.ones(3)).tolist() == step(torch.ones(3)).tolist() == [3, 3, 3]
    assert step.report()["compilations"] == dynamo.utils.counters["frames"]["ok"] == 1


def test_a_batch_of_the_feed_is_named_with_its_utterances(tones):
    with package.Feed(tones, batch_size=4, shapes=3, seed=7) as feed:
        told, seen = [], []
        step = package.guard(compiled(lambda mel: mel.sum(), dynamic=False), on_retrace=told.append)
        for batch in feed.torch():
            step(batch.mel)
            if seen and batch.shape not in seen:
                assert (told[-1].batch.shape, told[-1].batch.ids, told[-1].batch.step) == (batch.shape, batch.ids, batch.step)
                assert [change.leaf for change in told[-1].changes] == ["mel"]
            seen.append(batch.shape)
        assert len(told) == len(set(seen)) - 1 == 2


def test_warm_up_compiles_every_shape_and_puts_everything_back(tones):
    with package.Feed(tones, batch_size=4, shapes=3, seed=7) as feed:
        net = torch.nn.Linear(80, 1)
        optimizer = torch.optim.Adam(net.parameters())
        forward = package.guard(compiled(lambda mel: net(mel).mean() + torch.rand(()), dynamic=False), on_retrace="raise")

        def step(batch):
            optimizer.zero_grad()
            forward(batch.mel).backward()
            optimizer.step()

        before, numbers = copy.deepcopy(net.state_dict()), torch.get_rng_state()
        times = package.warm_up(step, feed.torch(), keep=[net, optimizer])
        assert [one["shape"] for one in times] == sorted(feed.shapes, key=lambda s: s[1] + s[2], reverse=True)
        assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
        assert optimizer.state_dict()["state"] == {} and net.weight.grad is None and torch.equal(torch.get_rng_state(), numbers)
        for batch in feed.torch():
            step(batch)  # raises on a retrace
        assert forward.report()["compilations"] == 3 and forward.report()["steps"] == len(feed)
        with pytest.raises(package.Error, match="keep: needs a state_dict"):
            package.warm_up(step, feed.torch(), keep=3)
