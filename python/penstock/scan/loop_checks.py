"""What a training loop should not do in each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .file import File, Found
from .module import Module, constant, keyword, method
from .steps import TO_HOST, OnDevice

_CLEANUPS = {
    "torch.cuda.empty_cache": "frees the allocator's memory, which the next step has to ask for again",
    "keras.backend.clear_session": "forgets the graphs that the next step needs",
    "keras.utils.clear_session": "forgets the graphs that the next step needs",
    "jax.clear_caches": "forgets what was compiled: the next step compiles again",
    "torch.compiler.reset": "forgets what was compiled: the next step compiles again",
    "torch._dynamo.reset": "forgets what was compiled: the next step compiles again",
    "gc.collect": "walks over all Python objects",
}
_PLOTS = {
    "matplotlib.pyplot." + name
    for name in "figure subplots savefig show imshow plot draw pause specgram hist scatter".split()
} | {"librosa.display.specshow", "librosa.display.waveshow"}
_AUDIO = {
    "librosa.griffinlim",
    "librosa.feature.inverse.mel_to_audio",
    "soundfile.write",
    "scipy.io.wavfile.write",
    "torchaudio.save",
    "tensorflow.audio.encode_wav",
}
_SAVES = {
    "torch.save",
    "safetensors.torch.save_file",
    "flax.training.checkpoints.save_checkpoint",
    "pickle.dump",
    "joblib.dump",
    "torch.distributed.checkpoint.save",
}
_SAVE_METHODS = ("save_weights", "save_pretrained", "save_checkpoint", "save_state")


def check(file: File) -> Iterator[Found]:
    yield from _syncs(file)
    yield from _interruptions(file)
    yield from _frequent_checkpoints(file.module)


def _syncs(file: File) -> Iterator[Found]:
    module = file.module
    if not (module.uses("tensorflow", "jax") or file.has_device()):
        return
    for step in file.steps:
        if not step.trains or step.node in file.compiled.bodies:
            continue
        device = OnDevice(module, file.compiled, step)
        seen: set[int] = set()
        for node in module.inside(step.body):
            if not isinstance(node, ast.Call) or node.lineno in seen:
                continue
            what = _sync(module, device, node)
            if what and file.step_of(node) is step and not module.is_guarded(node, step.node):
                seen.add(node.lineno)
                yield Found(node, "host-sync-every-step", f"{what} waits for the device in each step")


def _sync(module: Module, device: OnDevice, call: ast.Call) -> str:
    name = module.dotted(call.func)
    if isinstance(call.func, ast.Attribute) and not name and device.holds(call.func.value):
        return f"{_short(call.func.value)}.{call.func.attr}()" if call.func.attr in TO_HOST else ""
    first = call.args[0] if len(call.args) == 1 else None
    if (
        isinstance(call.func, ast.Name)
        and call.func.id in ("float", "int")
        and first is not None
        and device.holds(first)
    ):
        return f"{call.func.id}({_short(first)})"
    if name in ("numpy.asarray", "numpy.array", "jax.device_get") and call.args and device.holds(call.args[0]):
        return f"{name}({_short(call.args[0])})"
    return ""


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else "..." + text[-30:]


def _interruptions(file: File) -> Iterator[Found]:
    """Plots, audio, checkpoints and clean-ups in each step."""
    module = file.module
    plotted: set[ast.AST] = set()
    for call in module.calls:
        name = module.dotted(call.func)
        found = _interruption(module, call, name)
        if found is None:
            continue
        step = file.step_of(call)
        if step is None or module.is_guarded(call, step.node):
            continue
        if found.rule == "plot-in-loop":
            if step.node in plotted:  # one figure takes many calls
                continue
            plotted.add(step.node)
        yield found


def _interruption(module: Module, call: ast.Call, name: str) -> Found | None:
    if name in _CLEANUPS:
        level = "warning" if name == "gc.collect" else None
        return Found(call, "cleanup-in-loop", f"{_familiar(name)} in each step {_CLEANUPS[name]}", level=level)
    if name in _PLOTS or method(call) in ("add_figure",):
        return Found(
            call, "plot-in-loop", f"{_familiar(name) or 'add_figure'} draws on the training thread in each step"
        )
    if name in _AUDIO or method(call) == "add_audio":
        return Found(
            call, "plot-in-loop", f"{_familiar(name) or 'add_audio'} makes audio on the training thread in each step"
        )
    if name in _SAVES or (not name and method(call) in _SAVE_METHODS) or _is_checkpoint(module, call):
        return Found(call, "checkpoint-every-step", f"{_familiar(name) or '.' + method(call)} saves in each step")
    return None


def _familiar(name: str) -> str:
    return name.replace("tensorflow.", "tf.").replace("matplotlib.pyplot.", "plt.").replace("keras.", "tf.keras.")


def _is_checkpoint(module: Module, call: ast.Call) -> bool:
    """checkpoint.save(...) of tf.train, model.save(...) of Keras."""
    if method(call) != "save" or not isinstance(call.func, ast.Attribute):
        return False
    made = module.follow(call.func.value)
    name = module.dotted(made.func) if isinstance(made, ast.Call) else ""
    if name == "tensorflow.train.CheckpointManager" and isinstance(made, ast.Call):
        return keyword(made, "checkpoint_interval") is None
    return name in ("tensorflow.train.Checkpoint", "keras.Sequential", "keras.Model", "keras.models.Sequential")


def _frequent_checkpoints(module: Module) -> Iterator[Found]:
    for call in module.calls:
        name = module.dotted(call.func)
        if not name.endswith("ModelCheckpoint"):
            continue
        option = "save_freq" if name.startswith("keras") else "every_n_train_steps"
        every = constant(keyword(call, option))
        if type(every) is int and every == 1:
            yield Found(call, "checkpoint-every-step", f"ModelCheckpoint saves in each step: {option}=1")
