"""The proof of penstock.Monitor: times that were injected into loops come out of it, and it costs a step next to nothing."""
import json
import sys

from evidence import Line, below, judged
from proving import PYTHON, proof


@proof("a Monitor in other people's loops: injected times come out, and it costs next to nothing")
def loop(shell):
    found = json.loads(shell(sys.executable, "bench/python/monitor_loop.py", env=PYTHON))
    for case in found["recovered"]:
        worst = max(abs(case[what]) for what in ("data", "compute", "au"))
        yield below(f"{case['data_ms']} ms of data, {case['compute_ms']} ms of computing, {case['loop']}: error of data, computing or AU",
                    100 * worst, 5, " %")
    bare = found["cost"]["bare"]
    yield Line("beside 10 ms of work without it: mean, median", "", f"{bare['mean_us']:.1f} us, {bare['median_us']:.1f} us")
    for name, what in (("wrapped", "a wrapped loop"), ("blocks", "data(), time() and compute()")):
        extra = found["cost"][name]
        yield below(f"{what}: more of a step of {found['step_ms']} ms, mean", 100 * (extra["mean_us"] - bare["mean_us"]) / 1e3 / found["step_ms"], 1, " %")
        yield Line("the same, median", "", f"{extra['median_us'] - bare['median_us']:.1f} us")
    tests = shell.attempt(sys.executable, "-m", "pytest", "-q", "tests/python/test_monitor_loop.py", "tests/python/test_monitor_frameworks.py", env=PYTHON)
    yield judged("what it writes is what the programs show; Lightning, Keras, a stand-in of CUDA's events", "all tests pass",
                 tests.stdout.strip().splitlines()[-1].strip("= "), tests.returncode == 0)
