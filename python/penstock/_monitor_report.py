"""What a Monitor has found, for a person and for a program."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from typing import Any, Dict, List


@dataclass
class Section:
    """What Monitor.time() measured under one name."""

    name: str
    where: str  #: data, computing, or nothing: elsewhere, or in another thread
    count: int
    seconds: float


def meaning(cuda: bool, divided: bool) -> str:
    """What the times of this process are times of."""
    if not divided:
        return (
            "Keras fetches a batch within its training function here, so the times are of whole batches: how much of "
            "them is waiting for data cannot be said. A loop of your own over mon.wrap(dataset) can say it."
        )
    if cuda:
        return (
            "Computing is timed by CUDA events on the current stream; waiting for data is what the stream stood idle "
            "while the loop waited. Nothing was synchronised."
        )
    torch = sys.modules.get("torch")
    accelerator = getattr(torch, "accelerator", None)
    names = {"jax": "JAX", "tensorflow": "TensorFlow"}
    behind = [name for module, name in names.items() if module in sys.modules]
    if accelerator is not None and accelerator.is_available():
        behind.append("PyTorch")
    if behind:
        return (
            f"The times are the host's. {' and '.join(behind)} may return before the device is done: unless the "
            "loop reads a result in every step, computing is at least, and the device's wait for data at most, what is "
            "shown."
        )
    return "The times are the host's."


class Report(Dict[str, Any]):
    """A run, judged: a dict, and as str() a text. It has what `penstock diagnose --run RUN --json` says (au, batch_ms,
    step_ms, data_ms, oscillation, findings, ...), run, times and meaning."""

    @staticmethod
    def of(run: str, judgement: Dict[str, Any], sections: List[Section], steps: int, said: str) -> Report:
        """`steps`: in which the sections were measured."""
        times = [
            {**vars(s), "ms_a_step": s.seconds / max(1, steps) * 1e3}
            for s in sorted(sections, key=lambda s: -s.seconds)
        ]
        report = Report(judgement, run=run, times=times, meaning=said)
        for finding in report["findings"]:
            if finding["cause"] == "data" and not report["stages"]:
                finding["advice"] = report._about_data()
        return report

    def _about_data(self) -> str:
        """The cure for waiting, where the loader is not ours: what time() named within it, or where to look."""
        waited = self["data_ms"]["mean"]
        inside = [one for one in self["times"] if one["where"] == "data" and one["ms_a_step"] > 0.3 * waited]
        if inside:
            share = min(1.0, inside[0]["ms_a_step"] / waited)
            return (
                f"{inside[0]['name']} is {share:.0%} of the wait: do it once and keep the result, or in workers beside "
                "the loop."
            )
        return (
            "Let the loader work ahead in more workers (num_workers, prefetch); mon.time(name) within it shows what "
            "takes the time, penstock scan FILE what it does wrong, and penstock.Feed can take its place."
        )

    def __str__(self) -> str:
        if not self["steps"]:
            return f"{self['run']}: too few steps to judge: the first one is apart. Come back when it has done some."
        lines = [self._headline(), f"{'ms a step':<18}{'mean':>9}{'p50':>9}{'p95':>9}{'p99':>9}{'CV':>8}"]
        rows = [("batch", "batch_ms")]
        if self["step_ms"]["mean"] > 0:
            rows += [("  computing", "step_ms"), ("  waiting for data", "data_ms")]
        for name, key in rows:
            s = self[key]
            figures = "".join(f"{s[column]:>9.1f}" for column in ("mean", "p50", "p95", "p99"))
            lines.append(f"{name:<18}{figures}{s['cv']:>8.0%}")
        if self["between_steps"] > 0.01:
            lines.append(f"between steps: {self['between_steps']:.0%} of the time")
        for one in self["times"]:
            where = f" of {one['where']}" * bool(one["where"])
            lines.append(f"{one['name']}: {one['ms_a_step']:.1f} ms a step{where}, {one['count']} times")
        lines += self._swing()
        known = [what for what in ("gpu", "cpu") if self[f"{what}_busy"] is not None]
        busy = [f"{what.upper()} {self[f'{what}_busy']:.0%} busy" for what in known]
        if busy:
            lines.append(", ".join(busy))
        for number, finding in enumerate(self["findings"], 1):
            lines.append(f"{number}. {finding['what']} {finding['advice'].rstrip('.:')}.")
            if self["stages"]:  # keys of a Feed
                lines += textwrap.indent(finding.get("lines", ""), "       ").splitlines()
        lines.append(self["meaning"])
        return "\n".join(textwrap.fill(line, 80, subsequent_indent="   ", replace_whitespace=False) for line in lines)

    def _headline(self) -> str:
        steps = f"{self['steps']} step" + "s" * (self["steps"] != 1)
        if self["step_ms"]["mean"] <= 0:
            return f"{self['run']}: {steps}, one takes {self['batch_ms']['mean']:.0f} ms ({self['band']})."
        verdict = "healthy" if self["healthy"] else self["band"]
        return f"{self['run']}: {steps}, AU {self['au']:.2f} ({verdict})."

    def _swing(self) -> List[str]:
        swing, slow = self["oscillation"], self["slow_steps"]
        if not swing["swings"]:
            return []
        period = f", with a period of {swing['period_steps']:.1f} steps" * bool(swing["period_steps"])
        cause = f"; {slow['count']} slow ones, cause: {slow['cause']}" * bool(slow["count"])
        return [f"The batch time swings: CV {self['batch_ms']['cv']:.0%}{period}{cause}."]
