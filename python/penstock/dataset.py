"""Datasets: what is in one, and one to try things on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from . import keys as _keys
from . import settings as _settings
from ._penstock import info as _info
from ._penstock import synth as _synth

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .keys import Keys, Path

#: Called now and then with what is being done, how much of it is, and of how much.
Progress = Callable[[str, int, int], object]


def info(
    dataset_path: Path | None = None,
    *,
    rescan: bool = False,
    progress: Progress | None = None,
    config: Path | None = None,
    **keys: Unpack[Keys],
) -> dict[str, Any]:
    return _info(_settings.load(dataset_path, config, keys), rescan, progress)


info.__doc__ = f"""What a dataset holds: hours, lengths, problems by name, the shapes it would get and their padding.
    What `penstock info --json` prints.

    dataset_path: the dataset's folder (metadata.csv, wavs/)
    rescan: read every audio file's header again
    progress: called as progress("indexing", done, total) while the index is built
    config: a YAML file with keys, over which arguments win
{_keys.HELP}
    """


def synth(
    folder: Path,
    clips: int = 100,
    *,
    voice: str = "en",
    speakers: int = 1,
    seed: int = 0,
    format: str = "wav",
    sample_rate: int = 22050,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Makes a spoken test dataset in LJSpeech's layout, and says how many clips, hours and seconds it has.

    folder: to be made
    clips: how many
    voice: one of espeak-ng's (en, fa, ...), or tone, which needs no espeak-ng
    speakers: how many voices, 1 to 99
    seed: the same seed gives the same bytes
    format: wav, flac, ogg or mp3
    sample_rate: Hz
    progress: called as progress("speaking", done, total)
    """
    return _synth(os.fspath(folder), clips, voice, speakers, seed, format, sample_rate, progress)
