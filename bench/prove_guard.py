"""The retrace guard: what it costs a step, and that it counts and names what the frameworks compile."""
import json
import sys

from evidence import Line, below, judged
from proving import PYTHON, proof

TESTS = ["tests/python/test_guard.py", "tests/python/test_guard_tf.py", "tests/python/test_guard_jax.py", "tests/python/test_guard_torch.py",
         "tests/python/test_retrace_python.py"]


@proof("the retrace guard: its counts are the frameworks' own, and what it costs a step")
def guard(shell):
    for name in ("tf", "jax", "torch", "torch module"):
        found = json.loads(shell(sys.executable, "bench/python/guard_cost.py", name, env=PYTHON).splitlines()[-1])[name]
        yield below(f"{name}: what the guard adds to a step that compiles nothing", found["cost_us"], 20, " us")
        yield Line(f"{name}: the step alone", "", f"{found['plain_us']:.1f} us")
    done = shell.attempt(sys.executable, "-m", "pytest", "-q", *TESTS, env=PYTHON)
    yield judged("counts against tf's tracing count, jax's cache, dynamo's counters; every kind of change named; same results", "all tests pass",
                 done.stdout.strip().splitlines()[-1].strip("= "), done.returncode == 0)
