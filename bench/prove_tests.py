"""What `./run test` leaves out of the tests, as it is long or there under sanitizers alone (docs/decisions/0020)."""
import re
import sys

from evidence import judged
from proving import PYTHON, proof


@proof("every C++ test, optimised")
def optimised(shell):
    said = shell.attempt("ctest", "--test-dir", "build", "--verbose").stdout
    passed = sum(int(count) for count in re.findall(r"\[  PASSED  \] (\d+) test", said))
    failed = len(re.findall(r"\[  FAILED  \] \S+ \(\d+ ms\)", said))
    yield judged("tests that passed, and that failed", "> 800, 0", f"{passed}, {failed}", passed > 800 and failed == 0)


@proof("the Python tests that take long")
def long(shell):
    said = shell.attempt(sys.executable, "-m", "pytest", "-q", "-m", "long", "tests/python", env=PYTHON).stdout
    passed, others = re.search(r"(\d+) passed", said), re.search(r"\d+ (?:failed|error)", said)
    yield judged("tests that passed, and that failed", "> 5, 0", said.strip().splitlines()[-1], bool(passed) and int(passed[1]) > 5 and not others)
