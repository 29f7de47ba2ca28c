"""The text-to-speech model written again in Python, from its description and its weights alone, in float64.

It loops over rows and cuts each to its true lengths, so there is no padding and no mask in here to agree with by chance.
"""
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
import safetensors
import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
TOOL = next((p for p in (BUILD / "train_model", BUILD / "tests" / "train_model") if p.exists()), None)

sys.path.append(str(ROOT / "bench" / "peers" / "train"))
import tts as twin  # noqa: E402  # what the trainer is measured against

pytestmark = pytest.mark.skipif(TOOL is None, reason="built without the trainer")


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """Of nano: its description, its weights, and a batch with what the C++ model made of it."""
    file = tmp_path_factory.mktemp("model") / "nano.safetensors"
    ran = subprocess.run([str(TOOL), "nano", str(file)], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    with safetensors.safe_open(file, "pt") as opened:
        description = json.loads(opened.metadata()["description"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # not a dict
    weights = {k.removeprefix("model."): v.double() for k, v in tensors.items() if k.startswith("model.")}
    return description, weights, tensors


class Tts:
    def __init__(self, description, weights):
        self.d, self.w = description, weights

    def linear(self, name, x):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def norm(self, name, x):
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def conv(self, name, x):
        """[time, in] -> [time, out]"""
        return F.conv1d(x.T[None], self.w[name + ".weight"], self.w[name + ".bias"], padding=2)[0].T

    def attention(self, name, x, memory, causal=False):
        """[time, width], and the weights of head 0."""
        width = x.shape[1]
        heads = width // self.d["head_width"]

        def split(y):
            return y.reshape(len(y), heads, -1).transpose(0, 1)

        q = split(self.linear(name + ".query", x))
        key_value = self.linear(name + ".key_value", memory)
        k, v = split(key_value[:, :width]), split(key_value[:, width:])
        scores = q @ k.transpose(1, 2) / math.sqrt(self.d["head_width"])
        if causal:
            scores = scores + torch.full_like(scores, -math.inf).triu(1)
        weights = scores.softmax(-1)
        return self.linear(name + ".out", (weights @ v).transpose(0, 1).reshape(len(x), width)), weights[0]

    def feed_forward(self, name, x):
        return x + self.linear(name + ".narrow", F.gelu(self.linear(name + ".wide", self.norm(name + ".feed_norm", x))))

    @staticmethod
    def positions(count, width):
        rate = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
        angle = torch.arange(count, dtype=torch.float64)[:, None] * rate
        return torch.cat([angle.sin(), angle.cos()], 1)

    def encode(self, tokens):
        x = self.w["symbols"][tokens.long()]
        x = x + self.w["text_scale"] * self.positions(*x.shape)
        for i in range(self.d["text_depth"]):
            y = self.norm(f"text{i}.self_norm", x)
            x = self.feed_forward(f"text{i}", x + self.attention(f"text{i}.self", y, y)[0])
        return self.norm("text_norm", x)

    def style(self, mel):
        start = max(0, len(mel) - self.d["reference_frames"]) // 2
        x = mel[start:start + self.d["reference_frames"]]
        for i in range(3):
            x = self.conv(f"reference{i}", x).relu()
        return self.linear("style_in", self.linear("reference_out", self.norm("reference_norm", x.mean(0))).tanh())

    def __call__(self, tokens, mel):
        """Of one row without padding, the mel not normalised."""
        r, bins = self.d["reduction"], self.d["bins"]
        mel = (mel.double() - self.d["mel_mean"]) / self.d["mel_std"]
        groups = -(-len(mel) // r)
        text = self.encode(tokens)
        told = torch.cat([torch.zeros(1, bins, dtype=torch.float64), mel[r - 1::r][:groups - 1]])
        x = self.linear("prenet_second", self.linear("prenet_first", told).relu()).relu()
        x = self.linear("prenet_out", x) + self.style(mel)
        x = x + self.w["decoder_scale"] * self.positions(*x.shape)
        alignments = []
        for i in range(self.d["decoder_depth"]):
            name = f"decoder{i}"
            y = self.norm(name + ".self_norm", x)
            x = x + self.attention(name + ".self", y, y, causal=True)[0]
            y, weights = self.attention(name + ".cross", self.norm(name + ".cross_norm", x), text)
            x = self.feed_forward(name, x + y)
            alignments.append(weights)
        x = self.norm("decoder_norm", x)
        before = self.linear("mel_head", x).reshape(groups * r, bins)[:len(mel)]
        y = before
        for i in range(self.d["postnet_depth"]):
            y = self.conv(f"postnet{i}", y)
            y = y.tanh() if i + 1 < self.d["postnet_depth"] else y
        return dict(target=mel, mel=before, post=before + y, stop=self.linear("stop_head", x)[:, 0],
                    alignments=alignments[-2:])


@pytest.fixture(scope="module")
def rows(dumped):
    """What this file makes of each row; None for an empty one."""
    description, weights, t = dumped
    model = Tts(description, weights)
    return [model(t["tokens"][i, :n], t["mel"][i, :m]) if n else None
            for i, (n, m) in enumerate(zip(t["token_lengths"].tolist(), t["mel_lengths"].tolist()))]


def test_the_outputs_are_those_of_the_model_written_again(dumped, rows):
    tensors = dumped[2]
    assert sum(row is None for row in rows) == 1
    for i, row in enumerate(rows):
        if row is None:
            continue
        for name in ("mel", "post", "stop"):
            expected = row[name]
            found = tensors["out." + name][i, :len(expected)]
            assert (found - expected).abs().max() < 1e-5, (i, name)
        for a, expected in enumerate(row["alignments"]):
            found = tensors[f"out.alignment{a}"][i, :expected.shape[0], :expected.shape[1]]
            assert (found - expected).abs().max() < 1e-5, (i, a)


def test_the_losses_are_those_of_the_model_written_again(dumped, rows):
    description, _, tensors = dumped
    sums = dict.fromkeys(("mel_l1", "mel_l2", "post_l1", "post_l2", "stop", "guide"), 0.0)
    for row in filter(None, rows):
        for name in ("mel", "post"):
            sums[name + "_l1"] += F.l1_loss(row[name], row["target"], reduction="none").mean(1).sum()
            sums[name + "_l2"] += F.mse_loss(row[name], row["target"], reduction="none").mean(1).sum()
        last = torch.zeros_like(row["stop"])
        last[-1] = 1
        sums["stop"] += description["reduction"] * F.binary_cross_entropy_with_logits(
            row["stop"], last, pos_weight=torch.tensor(8.0), reduction="sum")
        for weights in row["alignments"]:
            groups, tokens = weights.shape
            away = (torch.arange(tokens) + 0.5) / tokens - ((torch.arange(groups) + 0.5) / groups)[:, None]
            sums["guide"] += (weights * (1 - torch.exp(-away.double() ** 2 / 0.08))).sum(1).mean() / 2
    for name, expected in sums.items():
        assert tensors["loss." + name].item() == pytest.approx(expected.item(), rel=1e-5), name


def test_the_description_gives_the_shapes_of_the_weights(dumped):
    description, weights, _ = dumped
    assert description["kind"] == "tts"
    assert weights["symbols"].shape == (description["n_symbols"], description["text_width"])
    assert weights["mel_head.weight"].shape == (description["reduction"] * description["bins"], description["decoder_width"])
    assert (weights["mel_mean"].item(), weights["mel_std"].item()) == (description["mel_mean"], description["mel_std"])


def test_the_twin_of_the_benchmark_has_the_same_losses(dumped):
    description, weights, t = dumped
    model = twin.Tts(description["n_symbols"], description).double().eval()
    model.load_state_dict(weights)
    frames = t["mel"].shape[1] // description["reduction"] * description["reduction"]
    assert t["mel_lengths"].max() <= frames
    losses = model(t["tokens"], t["token_lengths"], t["mel"][:, :frames].double(), t["mel_lengths"])
    assert {"loss." + name for name in losses} == {name for name in t if name.startswith("loss.")}
    for name, total in losses.items():
        assert total.item() == pytest.approx(t["loss." + name].item(), rel=1e-5), name
