"""The kernels alone: what a feed does with one sample's audio and text."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from . import keys as _keys
from . import settings as _settings
from ._penstock import Mel, Symbols
from .errors import Error

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from .feed import Feed
    from .keys import MelKeys, Path


@functools.lru_cache(maxsize=64)
def _planned(preset: str, keys: tuple[tuple[str, str], ...]) -> Mel:
    """A kernel's tables are made once for each set of options."""
    settings = _settings.of(None, {"mel_preset": preset, **dict(keys)})
    for name, _ in keys:
        if name not in _keys.MelKeys.__annotations__:
            raise Error(f"{name}: is no part of a mel")
    return Mel(settings)


def mel(audio: Any, preset: str = "hifigan", **keys: Unpack[MelKeys]) -> NDArray[numpy.float32]:
    given = sorted((name, _settings.text(name, value)) for name, value in keys.items() if value is not None)
    return _planned(preset, tuple(given))(audio)


mel.__doc__ = f"""The log-mel spectrogram of a waveform: [frames, bins] of float32, the numbers that a feed delivers.

    audio: float32 samples at `sample_rate`, in any array with DLPack or a buffer (NumPy, torch, JAX):
        [samples], or [clips, samples] for [clips, frames, bins]
    preset: hifigan, myxtts or librosa; the other keys vary it:
{_keys.MEL_HELP}
    """


def tokens(text: str, symbols: Symbols | Feed | Path, add_blank: bool = False) -> NDArray[numpy.int32]:
    """The token ids of a text, as a feed delivers them: beginning, its cleaned characters, end.

    text: is cleaned first (NFC, lower case, white space folded)
    symbols: which id each character has: `feed.symbols`, a Feed, a dataset's folder, or a file of Symbols.save()
    add_blank: a blank token between all others and at both ends
    """
    if isinstance(symbols, Symbols):
        table = symbols
    elif isinstance(symbols, (str, os.PathLike)):
        path = os.fspath(symbols)
        table = Symbols.of(_settings.load(path, None, {})) if os.path.isdir(path) else Symbols.load(path)
    else:
        table = symbols.symbols
    return table.encode(text, add_blank)
