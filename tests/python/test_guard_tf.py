"""The guard in the real TensorFlow: its counts are tf.function's own, and the argument it names is the one that changed."""
import os
import random

import numpy as np
import pytest

import penstock as package


@pytest.fixture(scope="module")
def tf():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return pytest.importorskip("tensorflow")


def pairs(tf):
    """Two calls, the second of which is traced anew, and what has to be said of it."""
    x = tf.ones((4, 3))
    return {
        "shape": (({"mel": x}, 1), ({"mel": tf.ones((5, 3))}, 1), "batch['mel']: shape (4, 3) -> (5, 3)"),
        "rank": (({"mel": x}, 1), ({"mel": tf.ones(4)}, 1), "batch['mel']: shape (4, 3) -> (4,)"),
        "dtype": (({"mel": x}, 1), ({"mel": tf.ones((4, 3), tf.float64)}, 1), "batch['mel']: dtype float32 -> float64"),
        "numpy dtype": (({"mel": x}, 1), ({"mel": np.ones((4, 3))}, 1), "batch['mel']: dtype float32 -> float64"),
        "value": (({"mel": x}, 1), ({"mel": x}, 2), "n: value 1 -> 2"),
        "default": (({"mel": x},), ({"mel": x}, 3), "n: value 1 -> 3"),
        "text": (({"mel": x, "lang": "fa"}, 1), ({"mel": x, "lang": "en"}, 1), "batch['lang']: value 'fa' -> 'en'"),
        "number for tensor": (({"mel": x}, 1), ({"mel": 2.0}, 1), "batch['mel']: type float32 (4, 3) -> float 2.0"),
        "key": (({"mel": x}, 1), ({"mel": x, "y": 2}, 1), "batch['y']: absent -> int 2"),
        "list for tuple": (({"mel": [x, x]}, 1), ({"mel": (x, x)}, 1), "batch['mel']: type list -> tuple"),
    }


NAMES = ["shape", "rank", "dtype", "numpy dtype", "value", "default", "text", "number for tensor", "key", "list for tuple"]


@pytest.mark.parametrize("name", NAMES)
def test_it_names_what_has_changed(tf, name):
    first, second, expected = pairs(tf)[name]
    told = []

    @package.guard(on_retrace=told.append)
    @tf.function
    def step(batch, n=1):
        return tf.add_n(tf.nest.flatten(batch["mel"])) * tf.cast(n, tf.nest.flatten(batch["mel"])[0].dtype) if name != "number for tensor" else n

    for arguments in (first, first, second, second, first):
        step(*arguments)
    assert [(one.step, [str(change) for change in one.changes]) for one in told] == [(3, [expected])]
    assert step.report()["compilations"] == step.experimental_get_tracing_count() == 2


def test_what_tensorflow_takes_as_the_same_is_no_retrace(tf):
    @package.guard(on_retrace="raise")
    @tf.function
    def step(x, n):
        return x * n

    for x, n in ((tf.ones(3), 2), (np.ones(3, np.float32), 2), (tf.zeros(3), 2.0)):
        step(x, n)
    with tf.device("/cpu:0"):
        step(tf.ones(3), n=2)
    assert step.report()["compilations"] == 1


def test_counts_and_results_are_those_without_it(tf):
    def body(x, n, flag=False):
        return tf.reduce_sum(x) * n + (1.0 if flag else 0.0)

    chance = random.Random(5)
    calls = [((np.full(chance.choice([2, 3, 4]), chance.random(), np.float32), chance.choice([1.0, 2.0])), {"flag": chance.random() < 0.2}) for _ in range(60)]
    plain, step = tf.function(body), package.guard(tf.function(body), on_retrace=lambda _: None)
    traced, results = [], []
    for arguments, keywords in calls:
        before = plain.experimental_get_tracing_count()
        results.append(float(plain(*arguments, **keywords)))
        traced.append(plain.experimental_get_tracing_count() - before)
    assert [float(step(*arguments, **keywords)) for arguments, keywords in calls] == results
    report = step.report()
    assert report["compilations"] == report["entries"] == sum(traced) > 6
    assert [one["step"] for one in report["details"]] == [i + 1 for i, n in enumerate(traced) if n][1:]
    assert all(one["changes"] for one in report["details"])


def test_reduce_retracing_and_variables_made_in_the_first_step(tf):
    told = []
    step = package.guard(tf.function(lambda x: x + 1, reduce_retracing=True), on_retrace=told.append)
    for n in (2, 3, 4, 5, 6):
        step(tf.ones(n))
    assert [one.step for one in told] == [2] and step.report()["compilations"] == step.experimental_get_tracing_count() == 2

    class Layer:
        def __init__(self):
            self.weight = None

        @package.guard(on_retrace="raise")
        @tf.function
        def step(self, x):
            if self.weight is None:
                self.weight = tf.Variable(x)
            return self.weight.assign_add(x)

    for layer in (Layer(), Layer()):  # each has a function of its own, as without the guard
        assert layer.step(tf.ones(2)).numpy().tolist() == [2, 2] and layer.step(tf.ones(2)).numpy().tolist() == [3, 3]
        assert (layer.step.report()["compilations"], layer.step.report()["warm_ups"]) == (2, 1)  # TensorFlow traces twice for this


def test_inside_another_function_it_is_a_part_of_that(tf):
    inner = package.guard(tf.function(lambda x: x + 1), on_retrace="raise")

    @package.guard(on_retrace="raise")
    @tf.function
    def outer(x):
        for _ in tf.range(3):
            x = inner(x)
        return x

    assert outer(tf.ones(2)).numpy().tolist() == [4, 4]
    assert inner.report()["steps"] == 0 and outer.report()["steps"] == 1


def test_a_batch_of_the_feed_is_named_with_its_utterances(tf, tones):
    with package.Feed(tones, batch_size=4, shapes=3, seed=7) as feed:
        told = []
        step = package.guard(tf.function(lambda batch: tf.reduce_sum(batch["mel"])), on_retrace=told.append)
        seen = []
        for batch in feed.tf():
            shape = (4, batch["tokens"].shape[1], batch["mel"].shape[1])
            if shape not in seen and seen:
                step(batch)
                assert (told[-1].batch.shape, told[-1].batch.step) == (shape, int(batch["step"]))
                assert told[-1].batch.ids == [feed_id(feed, int(n)) for n in batch["utterances"]]
                assert "batch['mel']" in {change.leaf for change in told[-1].changes}
            else:
                step(batch)
            seen.append(shape)
        assert len(told) == len(set(seen)) - 1 == 2


def feed_id(feed, number):
    """By another way: from the batches themselves."""
    with package.Feed(**{**feed.settings, "device": "cpu"}) as other:
        for batch in other:
            for one, name in zip(batch.utterances, batch.ids):
                if one == number:
                    return name
    return None


def test_warm_up_compiles_every_shape_largest_first_and_leaves_no_trace(tf, tones):
    with package.Feed(tones, batch_size=4, shapes=3, seed=7) as feed:
        weight = tf.Variable(1.0)
        momentum = tf.Variable([1.0, 2.0])
        step = package.guard(tf.function(lambda batch: weight.assign_add(tf.reduce_mean(batch["mel"]) + momentum.assign_add([1, 1])[0])), on_retrace="raise")
        feed.next()
        state = feed.state()
        times = package.warm_up(step, feed.tf(), keep=[weight, momentum])
        assert feed.state() == state and float(weight) == 1.0 and momentum.numpy().tolist() == [1, 2]
        assert [one["shape"] for one in times] == sorted(feed.shapes, key=lambda s: s[1] + s[2], reverse=True)
        assert all(one["seconds"] > 0 for one in times) and str(times).startswith("3 shapes in ")
        for batch in feed.tf():
            step(batch)  # raises on a retrace
        assert step.report()["compilations"] == 3 and step.report()["steps"] == len(feed) - 1
