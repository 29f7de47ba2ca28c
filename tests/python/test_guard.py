"""The guard without a framework: what it refuses, how it reports, and that the package stays quick to import."""
import random
import subprocess
import sys

import pytest

import penstock as package
from penstock import _signature
from penstock._guard import Compilation, Guard, Record, RetraceError


class Counted:
    """A compiler that compiles for every new tuple of arguments."""

    kind = "a test's"

    def __init__(self):
        self.seen, self.compiled = set(), 0

    def __call__(self, *args, fail=False):
        if args not in self.seen:
            self.seen.add(args)
            self.compiled += 1
        if fail:
            raise RuntimeError("the step failed")
        return sum(args)

    def mark(self):
        return self.compiled

    def entries(self):
        return self.compiled

    def tracing(self):
        return False

    def signature(self, args, kwargs):
        return _signature.of({f"args[{i}]": value for i, value in enumerate(args)}, lambda _: None)

    def examine(self, before):
        return Compilation(self.compiled - before)

    def causes(self, changes, _):
        return changes


def guarded(on_retrace="warn", warm=None):
    compiler = Counted()
    record = Record("step", compiler)
    record.set(on_retrace, warm)
    return Guard(compiler, record)


def test_the_first_compilation_is_the_warm_up_and_the_next_one_is_told():
    step = guarded()
    assert step(1, 2) == 3 and step(1, 2) == 3
    with pytest.warns(RuntimeWarning, match=r"step was compiled again at step 3 .*args\[1\]: value 2 -> 5") as told:
        assert step(1, 5) == 6
    assert told[0].filename == __file__
    report = step.report()
    assert (report["steps"], report["compilations"], report["warm_ups"], report["retraces"]) == (3, 2, 1, 1)
    assert report["details"][0]["changes"] == [{"leaf": "args[1]", "what": "value", "old": "2", "new": "5"}]
    assert "3 steps, 2 compilations, 1 in the warm-up" in str(report) and "retrace at step 3" in str(report)


def test_warm_is_a_number_of_calls_that_compile():
    step = guarded("raise", warm=3)
    for value in (1, 1, 2, 2, 3, 1):
        step(value)
    with pytest.raises(RetraceError, match=r"args\[0\]: value 3 -> 4") as raised:
        step(4)
    assert raised.value.retrace.step == 7
    assert step(4) == 4  # compiled by now


def test_behind_an_explicit_warm_up_every_compilation_is_a_retrace():
    step = guarded("raise")
    with step.warm_up():
        for value in range(5):
            step(value)
    assert step(3) == 3
    with pytest.raises(RetraceError):
        step(9)
    assert step.report()["steps"] == 2 and step.report()["warm_ups"] == 5
    unused = guarded("raise")
    with unused.warm_up():
        pass
    with pytest.raises(RetraceError, match="no argument has changed"):
        unused(1)


def test_a_function_is_called_with_each_retrace():
    told = []
    step = guarded(told.append)
    for value in (1, 2, 2, 3):
        step(value)
    assert [(one.step, str(one.changes[0])) for one in told] == [(2, "args[0]: value 1 -> 2"), (4, "args[0]: value 2 -> 3")]


def test_the_nearest_compiled_call_is_what_a_new_one_is_compared_with():
    told = []
    step = guarded(told.append)
    for args in ((1, 10, 5), (2, 20, 6), (1, 10, 7)):
        step(*args)
    assert told[1].nearest == 1 and [change.leaf for change in told[1].changes] == ["args[2]"]


def test_a_step_that_fails_is_counted_and_fails_as_before():
    step = guarded("raise", warm=0)
    with pytest.raises(RuntimeError, match="the step failed"):
        step(1, fail=True)
    assert step.report()["compilations"] == step.report()["retraces"] == 1


def test_warnings_end_and_counting_goes_on(recwarn):
    step = guarded()
    for value in range(40):
        step(value)
    assert len(recwarn) == 10 and "further ones are only counted" in str(recwarn[-1].message)
    assert step.report()["retraces"] == len(step.report()["details"]) == 39


def test_counts_are_those_of_the_compiler_for_any_calls():
    chance = random.Random(3)
    for _ in range(20):
        warm = chance.choice([None, 0, 1, 5])
        step, plain = guarded(lambda _: None, warm), Counted()
        calls = [tuple(chance.randrange(3) for _ in range(2)) for _ in range(30)]
        assert [step(*args) for args in calls] == [plain(*args) for args in calls]
        report = step.report()
        assert report["compilations"] == plain.compiled == len(set(calls))
        assert report["warm_ups"] == min(plain.compiled, 1 if warm is None else warm)
        assert report["retraces"] == plain.compiled - report["warm_ups"]


def test_what_it_refuses():
    with pytest.raises(package.Error, match=r"needs what tf.function, jax.jit or torch.compile returns.*compile first"):
        package.guard(lambda x: x)
    with pytest.raises(package.Error, match="on_retrace must be"):
        package.guard(on_retrace="shout")
    with pytest.raises(package.Error, match="warm must be"):
        package.guard(warm=-1)
    with pytest.raises(package.Error, match="warm_up needs a Feed"):
        package.warm_up(print, [1, 2])


def test_guarding_again_changes_how_and_keeps_what_was_seen():
    step = guarded()
    step(1)
    again = package.guard(step, on_retrace="raise", warm=0)
    assert again is step
    with pytest.raises(RetraceError):
        step(2)
    assert step.report()["steps"] == 2


def test_signatures_find_every_place():
    old = {"a": [1, {"b": (2.0, None)}], "c": "x", "gone": 1}
    new = {"a": [1, {"b": (2.0, 3)}], "c": "y", "new": True}
    found = [str(change) for change in _signature.changes(*(_signature.of(one, lambda _: None) for one in (old, new)))]
    assert found == ["a[1]['b'][1]: value None -> 3", "c: value 'x' -> 'y'", "new: absent -> bool True", "gone: int 1 -> absent"]
    around = []
    around.append(around)
    assert _signature.of({"around": around}, lambda _: None)  # comes to an end


def test_importing_the_package_imports_no_framework():
    source = "import sys, penstock; assert not {'torch', 'jax', 'tensorflow', 'numpy'} & set(sys.modules), 'imported'"
    subprocess.run([sys.executable, "-c", source], check=True)
