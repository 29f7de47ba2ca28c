"""penstock.Monitor in the loops of Lightning and Keras, as they really are."""
import json

import pytest

import penstock

pytestmark = pytest.mark.alone


def lines(run, kind):
    return [line for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if line["kind"] == kind]


def events(run):
    return [event["event"] for event in lines(run, "event")]


@pytest.fixture
def lightning_loop():
    """Two epochs of four batches, with a validation and a checkpoint after each."""
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch")

    class Model(lightning.LightningModule):
        broken = False

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            if self.broken and index == 2:
                raise ValueError("broken")
            return self.layer(batch).square().mean()

        def validation_step(self, batch, index):
            self.layer(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def run(folder, mon, model=None):
        data = torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4)
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False,
                                    enable_model_summary=False, default_root_dir=folder, callbacks=[mon.lightning()])
        trainer.fit(model or Model(), data, data)

    run.Model = Model
    return run


@pytest.mark.filterwarnings("ignore")
def test_lightnings_steps_are_logged_with_validations_and_checkpoints_apart(tmp_path, lightning_loop):
    run = tmp_path / "run"
    with penstock.Monitor(run) as mon:
        lightning_loop(tmp_path, mon)
    steps = lines(run, "step")
    assert [(step["step"], step["epoch"]) for step in steps] == [(n + 1, n // 4) for n in range(8)]
    assert all(step["step_ms"] > 0 and step["data_ms"] > 0 for step in steps)
    assert sorted(events(run)) == sorted(["start", *["validation", "checkpoint", "epoch"] * 2, "end"])
    assert [event["step"] for event in lines(run, "event") if event["event"] == "validation"] == [4, 8]


@pytest.mark.filterwarnings("ignore")
def test_an_exception_in_lightning_ends_the_run(tmp_path, lightning_loop):
    run, model = tmp_path / "run", lightning_loop.Model()
    model.broken = True
    with penstock.Monitor(run) as mon, pytest.raises(ValueError):
        lightning_loop(tmp_path, mon, model)
    assert lines(run, "event")[-1]["error"] == "ValueError: broken"
    assert len(lines(run, "step")) == 3


KERAS = """
    import os, sys
    os.environ.update(KERAS_BACKEND=sys.argv[2], TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    import numpy, keras, penstock
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    x, y = numpy.zeros((16, 4), "float32"), numpy.zeros((16, 1), "float32")
    with penstock.Monitor(sys.argv[1]) as mon:
        model.fit(x, y, batch_size=4, epochs=2, validation_data=(x, y), verbose=0, callbacks=[mon.keras()])
        model.evaluate(x, y, verbose=0, callbacks=[mon.keras()])
        print(mon.report())
"""


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_keras_steps_are_logged_and_what_cannot_be_divided_is_said(tmp_path, script, backend):
    pytest.importorskip("keras")
    said = script(KERAS, tmp_path / "run", backend)
    steps = lines(tmp_path / "run", "step")
    assert [(step["step"], step["epoch"]) for step in steps] == [(n + 1, n // 4) for n in range(8)]
    assert events(tmp_path / "run") == ["start", *["validation", "epoch"] * 2, "end"]
    if backend == "torch":
        assert all(step["step_ms"] > 0 and step["data_ms"] > 0 for step in steps)
    else:
        assert all("step_ms" not in step and step["data_ms"] > 0 for step in steps)
        assert "cannot be said" in " ".join(said.split())


def test_what_jax_dispatches_is_said_to_be_the_hosts_time(tmp_path, script):
    pytest.importorskip("jax")
    said = script("""
        import sys, jax, penstock
        step = jax.jit(lambda x: (x @ x).sum())
        with penstock.Monitor(sys.argv[1]) as mon:
            for batch in mon.wrap([jax.numpy.ones((8, 8))] * 5):
                step(batch)
            print(mon.report())
    """, tmp_path / "run", environment={"JAX_PLATFORMS": "cpu"})
    assert "JAX may return before the device is done" in " ".join(said.split())
    assert len(lines(tmp_path / "run", "step")) == 5
