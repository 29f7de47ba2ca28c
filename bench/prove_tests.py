"""The proof that every C++ test passes as users compile it. `./run test` runs most of them under sanitizers alone (docs/decisions/0020)."""
import re

from evidence import judged
from proving import proof


@proof("every C++ test, optimised")
def optimised(shell):
    said = shell.attempt("ctest", "--test-dir", "build", "--verbose").stdout
    passed = sum(int(count) for count in re.findall(r"\[  PASSED  \] (\d+) test", said))
    failed = len(re.findall(r"\[  FAILED  \] \S+ \(\d+ ms\)", said))
    yield judged("tests that passed, and that failed", "> 800, 0", f"{passed}, {failed}", passed > 800 and failed == 0)
