"""Proof of what `penstock monitor` costs."""
import json

from evidence import below
from proving import Shell, proof


@proof("what watching costs, at ten samples a second")
def monitor(shell: Shell):
    found = json.loads(shell("python3", "bench/monitor_cost.py", "build/penstock", 30))
    for way, share in found.items():
        yield below(f"penstock monitor {way}: of a core", share * 100, 1, " %", 2)
