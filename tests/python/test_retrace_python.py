"""penstock retrace --python: some steps of a loop as it is, in each framework, by the program and as a module."""
import json
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import pytest

from conftest import BUILD
from penstock.retrace import main

TORCH = """
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(80, 4)

    def forward(self, mel):
        return self.layer(mel).mean()

step = torch.compile(Net(), backend="eager", dynamic=False)

def main():
    for frames in (344, 351, 344, 360, 351, 344):
        print("the loop's own words", step(torch.ones(2, frames, 80)).item() > 9, sys.argv[1:])

def steady():
    while True:
        step(torch.ones(2, 344, 80))

def failing():
    step(torch.ones(2, 344, 80))
    raise ValueError("the loop's own error")

if __name__ == "__main__":
    main()
"""
JAX = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import functools
import jax, jax.numpy as jnp
import penstock

def anew():
    for i in range(4):
        @functools.partial(jax.jit, static_argnames="how")
        def step(params, x, how="mean"):
            return jax.tree.map(lambda p: p + 1, params), {"loss": x.mean()}
        step({"w": jnp.ones(9), "b": jnp.ones(300)}, jnp.full((4, 8), 2.5))

def devices():
    step = jax.jit(lambda x: x.sum())
    try:
        for i in range(8):
            step(jax.device_put(jnp.ones(5), jax.devices()[i // 3]))
    except Exception:
        pass  # does not stop the end of the steps

def guarded():
    step = penstock.guard(jax.jit(lambda x: x.sum()), on_retrace="raise")
    with step.warm_up():
        step(jnp.ones(3))
        step(jnp.ones(4))
    for i in range(6):
        step(jnp.ones(3 + i // 2))
"""
TF = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
import penstock

class Trainer:
    @tf.function
    def train_step(self, batch, rate):
        return tf.reduce_mean(batch["mel"]) * rate

    @tf.function
    def look(self, batch):
        return batch["mel"] + 1

def main():
    trainer = Trainer()
    with penstock.Feed(os.environ["TONES"], batch_size=4, shapes=2, seed=7) as feed:
        for batch in feed.tf():
            for _ in range(3):
                trainer.look(batch)
            trainer.train_step(batch, 0.5)

def fit():
    model = tf.keras.Sequential([tf.keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    model.fit(np.ones((40, 5), "float32"), np.ones((40, 3), "float32"), batch_size=4, epochs=3, verbose=0)
"""


PLAIN = """
def needs(folder):
    pass

def nothing():
    pass
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """Writes a loop into the present folder: loop(source) -> its file's name."""
    monkeypatch.chdir(tmp_path)

    def write(source):
        name = {TORCH: "loop_torch.py", JAX: "loop_jax.py", TF: "loop_tf.py", PLAIN: "loop_plain.py"}[source]
        pathlib.Path(name).write_text(source)
        return name
    return write


@pytest.fixture
def retrace(loop, monkeypatch, capfd):
    """retrace(source, function, arguments...) in this process, which has the frameworks already."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(source, function="", *arguments):
        file = loop(source)
        monkeypatch.delitem(sys.modules, file[:-3], raising=False)
        capfd.readouterr()
        try:
            code = main(["--python", file + function, *map(str, arguments)])
        except SystemExit as end:  # argparse
            code = end.code
        return Done(code, *capfd.readouterr())
    return run


def as_program(file, *arguments):
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [str(BUILD / "penstock"), "retrace", "--python", file, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": path})


def test_a_torch_loop_with_new_shapes_by_the_program(loop):
    done = as_program(loop(TORCH), "--steps", 5, "--", "--mine", "3")
    assert done.returncode == 1, done.stderr
    assert "the loop's own words False ['--mine', '3']" in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("step    1  (2, 344, 80)       loss ") and lines[0].endswith(" ms  compiled")
    assert sum(line.endswith("RETRACE") for line in lines) == 2
    assert "Shapes of 5 batches:\n  (2, 344, 80)       2x\n" in done.stdout and "Net (torch.compile): compiled 3x, 1 in the warm-up" in done.stdout
    assert "  step 2: mel: shape (2, 344, 80) -> (2, 351, 80)" in lines
    assert lines[-1].startswith("PROBLEM: 2 retraces in 5 steps; use a few fixed shapes")


def test_a_steady_loop_is_well_and_json_is_all_of_stdout(retrace):
    done = retrace(TORCH, ":steady", "--steps", 4, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["retraces"] == 0 and [step["step"] for step in found["steps"]] == [1, 2, 3, 4] and found["functions"][0]["compilations"] == 1
    warm = retrace(TORCH, ":main", "--warm", 3, "--json")
    assert warm.returncode == 0 and len(json.loads(warm.stdout)["steps"]) == 6 and "own words" in warm.stderr


def test_misuse_and_a_loop_that_fails(retrace):
    for function, message in ((":needs", "needs must be callable without arguments, but needs folder"), (":none", "has no function none"),
                              (":nothing", "has called nothing that tf.function, jax.jit or torch.compile has compiled")):
        done = retrace(PLAIN, function)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    assert retrace(PLAIN, ":nothing", "--steps", 0).returncode == 2
    assert "Examples:" in retrace(PLAIN, "", "--help").stdout
    failed = retrace(TORCH, ":failing")
    assert failed.returncode == 1 and "ValueError: the loop's own error" in failed.stderr and "no retraces in 1 step" in failed.stdout


def test_a_jax_loop_that_compiles_anew(retrace):
    done = retrace(JAX, ":anew", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["retraces"] == 3 and found["functions"][0]["compilations"] == 4
    assert [step["loss"] for step in found["steps"]] == [2.5] * 4 and {step["shape"] for step in found["steps"]} == {"(4, 8)"}
    assert all("jax.jit was called again, at" in step["retrace"]["cause"] and "loop_jax.py:10" in step["retrace"]["cause"] for step in found["steps"][1:])


def test_jax_devices_and_a_loop_with_its_own_guard(loop, retrace):
    done = as_program(loop(JAX) + ":devices", "--steps", 5)
    assert done.returncode == 1 and "step 4: x: device cpu:0 -> cpu:1" in done.stdout.lower().replace("tfrt_cpu_", "cpu:"), done.stdout
    assert "in 5 steps; put everything on its device" in done.stdout
    own = retrace(JAX, ":guarded", "--json")
    steps = json.loads(own.stdout)["steps"]
    assert own.returncode == 1 and ["retrace" in step for step in steps] == [False, False, False, False, True, False]


def test_a_tensorflow_loop_over_a_feed_with_a_method_as_its_step(retrace, tones, monkeypatch):
    monkeypatch.setenv("TONES", str(tones))
    done = retrace(TF, ":main", "--step", "train_step", "--steps", 8)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("RETRACE") == 2 and "2 retraces in 32 steps" in done.stdout
    assert "; utterances s" in done.stdout and "shape (4, " in done.stdout
    two = retrace(TF, ":main", "--step", "train_step", "--steps", 8, "--warm", 2)
    assert two.returncode == 0 and "OK: no retraces in 32 steps" in two.stdout


def test_keras_fit(retrace):
    pytest.importorskip("tensorflow")
    done = retrace(TF, ":fit", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["steps"]) == 10
