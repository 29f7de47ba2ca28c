"""A virtual machine's measurements, made again while the hypervisor takes its CPUs away: they would show that instead."""
import pathlib

CALM = 0.01  # of all CPU time, taken by the hypervisor


class Stolen:
    """with Stolen() as stolen: ...; stolen.share of all CPU time went to other machines meanwhile."""

    share = 0.0

    @staticmethod
    def ticks():
        return [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]

    def __enter__(self):
        self.before = self.ticks()
        return self

    def __exit__(self, *_):
        passed = [now - then for now, then in zip(self.ticks(), self.before)]
        self.share = passed[7] / max(1, sum(passed))


def calm(measure, repeat, disturbed=lambda run: run["stolen"] / CALM):
    """`repeat` results of measure() with what was `stolen` during each, of a machine that was left alone: `disturbed` is below 1. Or the
    least disturbed of three times as many."""
    runs = []
    while sum(disturbed(run) < 1 for run in runs) < repeat and len(runs) < 3 * repeat:
        with Stolen() as stolen:
            run = measure()
        runs.append({**run, "stolen": stolen.share})
    return sorted(runs, key=disturbed)[:repeat]
