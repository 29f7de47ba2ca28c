"""The guard in the real JAX: its counts are the cache's own, and the leaf it names is the one that changed."""
import random
from functools import partial

import numpy as np
import pytest

import penstock as package


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


def pairs(jax):
    """Two calls, the second of which is compiled anew, and what has to be said of it."""
    jnp = jax.numpy
    x, w = jnp.ones((4, 3)), {"w": jnp.ones(3)}
    return {
        "shape": ((w, x), (w, jnp.ones((5, 3))), "x: shape (4, 3) -> (5, 3)"),
        "dtype": ((w, x), (w, jnp.ones((4, 3), jnp.int32)), "x: dtype float32 -> int32"),
        "leaf": ((w, x), ({"w": jnp.ones(3, jnp.bfloat16)}, x), "params['w']: dtype float32 -> bfloat16"),
        "weak type": ((w, x, jnp.float32(2)), (w, x, 2.0), "rate: weak type False -> True"),
        "python type": ((w, x, 2.0), (w, x, 2), "rate: dtype float32 -> int32"),
        "device": ((w, x), (w, jax.device_put(x, jax.devices()[0])), f"x: device uncommitted -> {jax.devices()[0]}"),
        "static value": ((w, x, 2.0, "mean"), (w, x, 2.0, "sum"), "how: value 'mean' -> 'sum'"),
        "left out": ((w, x), (w, x, 1.0), "rate: absent -> float32 ()"),
        "structure": ((w, x), ({"w": w["w"], "b": w["w"]}, x), "params['b']: absent -> float32 (3,)"),
    }


NAMES = ["shape", "dtype", "leaf", "weak type", "python type", "device", "static value", "left out", "structure"]


def body(jax):
    def step(params, x, rate=1.0, how="mean"):
        return jax.tree.map(lambda p: p - rate * x.mean().astype(p.dtype), params), getattr(x, how)()

    return step


@pytest.mark.parametrize("name", NAMES)
def test_it_names_what_has_changed(jax, name):
    first, second, expected = pairs(jax)[name]
    told = []
    step = package.guard(jax.jit(body(jax), static_argnames="how"), on_retrace=told.append)
    for arguments in (first, first, second, second, first):
        step(*arguments)
    assert [(one.step, [str(change) for change in one.changes]) for one in told] == [(3, [expected])]
    assert step.report()["compilations"] == step._cache_size() == 2


def test_keywords_settings_and_static_structure_are_named(jax):
    told = []
    step = package.guard(jax.jit(body(jax), static_argnames="how"), on_retrace=told.append)
    w, x = {"w": jax.numpy.ones(3)}, jax.numpy.ones((4, 3))
    step(w, x, 2.0)
    step(w, x, rate=2.0)
    assert {"rate", "rate="} == {change.leaf for change in told[0].changes}
    with jax.default_matmul_precision("float32"):
        step(w, x, 2.0)
    assert [str(change) for change in told[1].changes] == ["jax.config.jax_default_matmul_precision: value 'None' -> 'float32'"]
    step((w["w"],), x, 2.0)
    assert "params[0]: absent -> float32 (3,)" in told[2].cause
    step([w["w"]], x, 2.0)
    assert [change.what for change in told[3].changes] == ["structure"] and step._cache_size() == 5


def test_what_jax_does_not_compile_is_no_retrace(jax):
    step = package.guard(jax.jit(lambda x, n: x * n), on_retrace="raise")
    jnp = jax.numpy
    for x, n in ((jnp.ones(3), 2.0), (jnp.ones(3), 3.5), (np.ones(3, np.float32), 2.0), (np.ones(3), 2.0)):
        step(x, n)  # NumPy's array finds the program that there is, by another entry of the cache
    assert step.report()["compilations"] == 1 and step.report()["entries"] == step._cache_size() == 2


def test_counts_and_results_are_those_without_it(jax):
    chance = random.Random(5)
    calls = [((np.full(chance.choice([2, 3, 4]), chance.random(), np.float32), chance.choice([1, 2.0])), {"flag": chance.random() < 0.2}) for _ in range(80)]

    def make():  # another function, so that no cache is shared
        return jax.jit(lambda x, n, flag: x.sum() * n + (1.0 if flag else 0.0), static_argnames="flag")

    plain, step = make(), package.guard(make(), on_retrace=lambda _: None)
    compiled, results = [], []
    for arguments, keywords in calls:
        before = plain._cache_size()
        results.append(float(plain(*arguments, **keywords)))
        compiled.append(plain._cache_size() - before)
    assert [float(step(*arguments, **keywords)) for arguments, keywords in calls] == results
    report = step.report()
    assert report["compilations"] == report["entries"] == plain._cache_size() == sum(compiled) > 6
    assert [one["step"] for one in report["details"]] == [i + 1 for i, n in enumerate(compiled) if n][1:]
    assert all(one["changes"] for one in report["details"])


def test_methods_donation_and_cleared_caches(jax):
    class Model:
        @package.guard(on_retrace="raise", warm=2)
        @partial(jax.jit, static_argnums=0)
        def step(self, x):
            return x + 1

    one, other = Model(), Model()
    assert float(one.step(1.0)) == float(other.step(1.0)) == 2.0 and one.step.report()["steps"] == 2

    told = []
    donating = package.guard(jax.jit(lambda x: x + 1, donate_argnums=0), on_retrace=told.append)
    for n in (3, 4):
        donating(jax.numpy.ones(n))
    assert [str(change) for change in told[0].changes] == ["x: shape (3,) -> (4,)"]
    jax.clear_caches()
    donating(jax.numpy.ones(4))
    assert told[1].changes == [] and "its cache has" in told[1].cause


def test_inside_another_function_it_is_a_part_of_that(jax):
    inner = package.guard(jax.jit(lambda x: x + 1), on_retrace="raise")
    outer = jax.jit(lambda x: inner(x) * 2)
    assert float(outer(1.0)) == 4.0 and inner.report()["steps"] == 0


def test_a_batch_of_the_feed_is_named_with_its_utterances(jax, tones):
    with package.Feed(tones, batch_size=4, shapes=3, seed=7) as feed:
        whole, parts = [], []
        of_batch = package.guard(jax.jit(lambda batch: batch.mel.sum()), on_retrace=whole.append)
        of_arrays = package.guard(jax.jit(lambda mel: mel.sum()), on_retrace=parts.append)
        seen = []
        for batch in feed.jax():
            of_batch(batch)
            of_arrays(batch.mel)
            if seen and batch.shape not in seen:
                for told in (whole, parts):
                    assert (told[-1].batch.shape, told[-1].batch.ids, told[-1].batch.step) == (batch.shape, batch.ids, batch.step)
                    assert batch.ids[0] in str(told[-1])
                assert {"batch.mel", "batch.tokens"} == {change.leaf for change in whole[-1].changes}
                assert {"mel"} == {change.leaf for change in parts[-1].changes}
            seen.append(batch.shape)
        assert len(whole) == len(parts) == len(set(seen)) - 1 == 2


def test_warm_up_compiles_every_shape_largest_first(jax, tones):
    with package.Feed(tones, batch_size=4, shapes=3, seed=7) as feed:
        step = package.guard(jax.jit(lambda w, batch: w * batch.mel.mean() + batch.tokens.sum()), on_retrace="raise")
        times = package.warm_up(lambda batch: step(1.0, batch), feed.jax())
        assert [one["shape"] for one in times] == sorted(feed.shapes, key=lambda s: s[1] + s[2], reverse=True)
        for batch in feed.jax():
            step(2.0, batch)
        assert step.report()["compilations"] == step._cache_size() == 3
        numpy = package.guard(jax.jit(lambda mel: mel.sum()), on_retrace="raise")
        package.warm_up(lambda batch: numpy(batch.mel), feed)
        for batch in feed:
            numpy(batch.mel)
        assert numpy.report()["compilations"] == 3
