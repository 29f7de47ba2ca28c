"""What every file of proofs builds on: the register, the shell whose commands end up in docs/evidence.md, and the datasets."""
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/evidence.md"
DATA = pathlib.Path(os.environ.get("PENSTOCK_PROVE_DATA", ROOT / "build/prove-data")).absolute()
PEERS = pathlib.Path(os.environ.get("PENSTOCK_PEER_ENVS", ROOT / "build/peers")).absolute()
LONG = {"PENSTOCK_LONG": "1"}
PYTHON = {"PYTHONPATH": "build/python"}

PROOFS = {}  # name: (title, function), in the order of the document


def proof(title):
    def register(function):
        PROOFS[function.__name__] = (title, function)
        return function

    return register


class Shell:
    """Runs commands in the project's folder, and keeps each as a reader would type it. What they say on stderr is seen at once."""

    def __init__(self):
        self.typed = []

    def attempt(self, *words, env=None):
        words, env = [str(word) for word in words], env or {}
        shown = shlex.join(words)
        for path, name in ((DATA, "DATA"), (PEERS, "PEERS"), (sys.executable, "python")):
            shown = shown.replace(str(path), name)
        typed = " ".join([*(f"{key}={value}" for key, value in env.items()), shown])
        if typed not in self.typed:
            self.typed.append(typed)
        print(f"   $ {typed}", flush=True)
        return subprocess.run(words, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words, env=None):
        """The output of a command that must succeed."""
        done = self.attempt(*words, env=env)
        if done.returncode != 0:
            print(done.stdout[-2000:], file=sys.stderr)
            raise RuntimeError(f"{pathlib.Path(words[0]).name}: exit code {done.returncode}")
        return done.stdout


def prepare_data():
    if not (DATA / "metadata.csv").exists():
        subprocess.run(["build/penstock", "synth", DATA, "--clips", "1000", "--seed", "1"], cwd=ROOT, check=True)
