"""A Monitor in the loops of Keras and Lightning. Imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import Error

if TYPE_CHECKING:
    from .monitor import Monitor


def keras_callback(mon: Monitor) -> Any:
    keras = importlib.import_module("keras")
    divided = keras.backend.backend() == "torch"  # the others fetch within the training function
    mon._divided = divided

    class Watch(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        training = False

        def on_train_begin(self, logs: Any = None) -> None:
            self.training = mon._is_here()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            mon._go("data" if divided else "outside")

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            mon._go("compute" if divided else "whole")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            mon._go("data" if divided else "outside")

        def on_test_begin(self, logs: Any = None) -> None:
            if self.training and mon._apart is None:
                mon._begin_apart("validation")

        def on_test_end(self, logs: Any = None) -> None:
            if self.training and mon._apart is not None:
                mon._end_apart()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            mon.end_epoch()

        def on_train_end(self, logs: Any = None) -> None:
            self.training = False

    return Watch()


def lightning_callback(mon: Monitor) -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            lightning = importlib.import_module(name)
            break
        except ModuleNotFoundError:
            continue
    else:
        raise Error("Lightning is not installed: neither lightning nor pytorch_lightning can be imported")

    class Watch(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            mon._is_here()
            mon._go("data")

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            mon._go("compute")

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            mon._go("data")

        def on_validation_start(self, trainer: Any, module: Any) -> None:
            if trainer.state.fn == "fit" and not trainer.sanity_checking and mon._apart is None:
                mon._begin_apart("validation")

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            if mon._apart is not None:
                mon._end_apart()

        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            """Nobody says when it has been written: until the next batch, or the end of the epoch."""
            if mon._apart is None:
                mon._begin_apart("checkpoint")

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            mon.end_epoch()

        def on_train_end(self, trainer: Any, module: Any) -> None:
            mon._go("outside")

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            mon.close(exception)

    return Watch()
