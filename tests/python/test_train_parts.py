"""The trainer's parts against PyTorch's own: AdamW, clipping, averages, schedules; and safetensors against the package."""
import os
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")
from safetensors import safe_open  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "tests" / "train_parts"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="the trainer is not built")

SIZES = {"encoder.weight": (32, 17), "encoder.bias": (32,), "scale": (), "table": (301, 16)}
UPDATES = 20


def run(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("clip", [0, 0.5, 1000])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("fused", [False, True])
def test_updates_are_those_of_pytorch(tmp_path, clip, decay, fused):
    random = torch.Generator().manual_seed(3)
    tensors = {f"w.{name}": torch.randn(size, generator=random) for name, size in SIZES.items()}
    tensors["rates"] = torch.linspace(1e-3, 2e-2, UPDATES)
    for update in range(UPDATES):  # gradients of every size: some are clipped, some are not
        for name, size in SIZES.items():
            tensors[f"{update}.{name}"] = torch.randn(size, generator=random) * 10 ** (update % 5 - 3)
    safetensors_torch.save_file(tensors, tmp_path / "in")
    run("adamw", tmp_path / "in", tmp_path / "out", clip, 0.9, 0.9, 0.98, 1e-9, decay)
    got = safetensors_torch.load_file(tmp_path / "out")

    weights = {name: torch.nn.Parameter(tensors[f"w.{name}"].clone()) for name in SIZES}
    averages = {name: weight.detach().clone() for name, weight in weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), betas=(0.9, 0.98), eps=1e-9, weight_decay=decay, fused=fused)
    norms = []
    for update in range(UPDATES):
        for name, weight in weights.items():
            weight.grad = tensors[f"{update}.{name}"].clone()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), clip or float("inf")))
        optimizer.param_groups[0]["lr"] = tensors["rates"][update].item()
        optimizer.step()
        for name, weight in weights.items():
            averages[name] = 0.9 * averages[name] + 0.1 * weight.detach()

    torch.testing.assert_close(got["norms"], torch.stack(norms), rtol=1e-6, atol=0)
    assert got["step"].item() == UPDATES
    assert got["norms"].max() > 1 > 0.5 > got["norms"].min()
    for name, weight in weights.items():
        state = optimizer.state[weight]
        for key, expected in [("w.", weight.detach()), ("ema.", averages[name]), ("exp_avg.", state["exp_avg"]),
                              ("exp_avg_sq.", state["exp_avg_sq"])]:
            scale = max(1.0, expected.abs().max().item())
            torch.testing.assert_close(got[key + name], expected, rtol=0, atol=1e-6 * scale, msg=lambda m: key + name + m)


@pytest.mark.parametrize("warm_up, total", [(10, 100), (1, 7), (30, 31)])
def test_cosine_is_that_of_pytorch(warm_up, total):
    peak, floor = 2e-3, 0.05
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=peak)
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: (update + 1) / warm_up)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warm_up, eta_min=floor * peak)
    both = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], milestones=[warm_up])
    expected = []
    for _ in range(total + 1):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        both.step()
    got = [float(line) for line in run("schedule", "cosine", peak, warm_up, total, floor, total + 1).split()]
    assert got == pytest.approx(expected, rel=1e-9)


def test_noam_is_its_formula():
    got = [float(line) for line in run("schedule", "noam", 1e-3, 40, 0, 0, 500).split()]
    noam = [min((n + 1) ** -0.5, (n + 1) * 40 ** -1.5) * 1e-3 * 40 ** 0.5 for n in range(500)]
    assert got == pytest.approx(noam, rel=1e-9)


def every_type():
    random = torch.Generator().manual_seed(1)
    values = torch.randn((3, 5), generator=random) * 50
    types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
             torch.bool]
    tensors = {str(t): values.abs().to(t) for t in types}
    return tensors | {"scalar": torch.tensor(2.5), "none": torch.zeros(0, 3), "odd": torch.ones(3, dtype=torch.uint8),
                      "سلام": torch.ones(1)}


def test_files_of_the_package_are_read_and_ours_are_read_by_it(tmp_path):
    tensors, metadata = every_type(), {"format": "pt", "words": "\"quoted\"\nسلام"}
    safetensors_torch.save_file(tensors, tmp_path / "theirs", metadata=metadata)
    run("copy", tmp_path / "theirs", tmp_path / "ours")
    got = safetensors_torch.load_file(tmp_path / "ours")
    assert got.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert got[name].dtype == tensor.dtype
        assert torch.equal(got[name], tensor), name
    with safe_open(tmp_path / "ours", "np") as file:
        assert file.metadata() == metadata
        assert file.get_slice("torch.float32")[1:2].shape == (1, 5)
