"""The native part of the package. Use it through penstock."""

from collections.abc import Callable
from typing import Any

import numpy
import numpy.typing

version: str = ...

class Settings:
    """A validated configuration."""

    @staticmethod
    def load(file: str, values: dict[str, str]) -> Settings:
        """Keys of a YAML file (an empty name: none) and of arguments, which win."""

    def values(self) -> dict[str, str]:
        """
        Every key that is not at its default: loaded again they give the same configuration.
        """

    def get(self, name: str) -> str:
        """The value of a key."""

    @property
    def notes(self) -> list[str]:
        """Other spellings and retired keys, as lines for a person."""

class ConfigKey:
    """A key of the configuration."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...

    @property
    def kind(self) -> str:
        """text, path, boolean, whole, real, bytes, choice or folders"""

    @property
    def words(self) -> list[str]:
        """the choices, or what may stand for a number (auto)"""

    @property
    def default(self) -> str:
        """as text"""

def config_keys() -> list[ConfigKey]:
    """All keys of a feed, in the order in which they are shown."""

class Mel:
    """A planned mel transform."""

    def __init__(self, settings: Settings) -> None: ...

    def __call__(self, audio: Any) -> numpy.typing.NDArray[numpy.float32]: ...

class Symbols:
    """
    Which id each character has. Ids 0 to 3 are padding, beginning, end and blank; characters follow in the order of their code points.
    """

    def __init__(self, characters: str) -> None:
        """Characters in any order, after cleaning: NFC, lower case."""

    @staticmethod
    def load(path: str) -> Symbols:
        """A file that save() has written."""

    @staticmethod
    def of(settings: Settings, progress: Callable[[str, int, int], object] | None = None) -> Symbols:
        """The dataset's table."""

    def save(self, path: str) -> None:
        """As a small text file, for the key `symbols`."""

    def encode(self, text: str, add_blank: bool = False) -> numpy.typing.NDArray[numpy.int32]:
        """The ids of a text: beginning, its characters, end."""

    @property
    def characters(self) -> str:
        """In the order of their ids, from 4 on."""

    def __len__(self) -> int: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __reduce__(self) -> tuple[type[Symbols], tuple[str]]: ...

def info(settings: Settings, rescan: bool, progress: Callable[[str, int, int], object] | None) -> dict[str, Any]: ...

def cache_build(settings: Settings, only: str, overwrite: bool, shard_mib: int, progress: Callable[[str, int, int], object] | None) -> dict[str, Any]: ...

def cache_verify(settings: Settings, fix: bool, progress: Callable[[str, int, int], object] | None) -> dict[str, Any]: ...

def cache_export(settings: Settings, out: str, progress: Callable[[str, int, int], object] | None) -> dict[str, Any]: ...

def cache_list(settings: Settings, progress: Callable[[str, int, int], object] | None) -> dict[str, Any]: ...

def cache_prune(settings: Settings, remove: bool, unused_days: float, progress: Callable[[str, int, int], object] | None) -> dict[str, Any]: ...

def synth(folder: str, clips: int, voice: str, speakers: int, seed: int, format: str, sample_rate: int, progress: Callable[[str, int, int], object] | None) -> dict[str, Any]: ...

class DeviceArray:
    """
    An array in an accelerator's memory. It leaves by DLPack: torch.from_dlpack(array).
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """float32, int32, int64 or bool"""

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        Work on `stream` from here on sees the array, and has it until that work is done. Never waits, unless the stream is -1.
        """

class Batch:
    """
    A full batch. Its arrays are views of the feed's memory, good for as long as they live, and read-only unless writable() was called; with a device they are DeviceArrays. Rows of length 0 are padding.
    """

    @property
    def tokens(self) -> numpy.typing.NDArray[numpy.int32] | Any:
        """[rows, tokens], 0 behind each text"""

    def lend_tokens(self) -> Any:
        """
        A DLPack capsule of tokens. Whoever writes through it calls writable(), or watch().
        """

    @property
    def token_lengths(self) -> numpy.typing.NDArray[numpy.int32] | Any:
        """[rows]"""

    def lend_token_lengths(self) -> Any:
        """
        A DLPack capsule of token_lengths. Whoever writes through it calls writable(), or watch().
        """

    @property
    def mel(self) -> numpy.typing.NDArray[numpy.float32] | Any:
        """[rows, frames, bins], or [rows, bins, frames] (mel_layout)"""

    def lend_mel(self) -> Any:
        """
        A DLPack capsule of mel. Whoever writes through it calls writable(), or watch().
        """

    @property
    def mel_lengths(self) -> numpy.typing.NDArray[numpy.int32] | Any:
        """[rows]"""

    def lend_mel_lengths(self) -> Any:
        """
        A DLPack capsule of mel_lengths. Whoever writes through it calls writable(), or watch().
        """

    @property
    def speakers(self) -> numpy.typing.NDArray[numpy.int32] | Any:
        """[rows] numbers of Feed.speakers; -1 in a row of length 0"""

    def lend_speakers(self) -> Any:
        """
        A DLPack capsule of speakers. Whoever writes through it calls writable(), or watch().
        """

    @property
    def utterances(self) -> numpy.typing.NDArray[numpy.int64] | Any:
        """[rows] numbers in the dataset; -1 in a row of length 0"""

    def lend_utterances(self) -> Any:
        """
        A DLPack capsule of utterances. Whoever writes through it calls writable(), or watch().
        """

    @property
    def replaced(self) -> numpy.typing.NDArray[numpy.bool_] | Any:
        """[rows] where a bad sample's place was filled by rule"""

    def lend_replaced(self) -> Any:
        """
        A DLPack capsule of replaced. Whoever writes through it calls writable(), or watch().
        """

    @property
    def extras(self) -> dict[str, numpy.typing.NDArray[Any] | Any]:
        """
        Arrays beside the mel by name: [rows, frames or tokens, width], without what is 1.
        """

    @property
    def ids(self) -> list[str]:
        """[rows]; empty in a row of length 0"""

    @property
    def epoch(self) -> int:
        """from 0 on"""

    @property
    def step(self) -> int:
        """in its epoch, from 0 on"""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, tokens, frames): one of Feed.shapes"""

    def writable(self) -> Batch:
        """
        This batch: arrays that are taken from it from here on may be written to.
        """

    def watch(self, counter: Any) -> None:
        """
        An object whose `_version` changes when a lent array is written to, as torch's tensors count.
        """

    def lend_extras(self) -> dict[str, Any]:
        """The extras as DLPack capsules."""

    def wait(self) -> None:
        """
        Until it has arrived on its device; for hosts that want to know the time.
        """

class Core:
    """What Feed runs on. Any thread may call it."""

    def __init__(self, settings: Settings, first: int = 0, every: int = 1, progress: Callable[[str, int, int], object] | None = None) -> None:
        """Of each epoch only the batches first, first + every, ..."""

    def next(self) -> Batch:
        """The next batch in order."""

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def shapes(self) -> list[tuple[int, int, int]]: ...

    @property
    def skipped(self) -> list[dict[str, Any]]: ...

    @property
    def recomputed(self) -> list[dict[str, Any]]: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def speakers(self) -> list[str]: ...

    @property
    def symbols(self) -> Symbols: ...

    def stats(self) -> dict[str, Any]: ...

class SystemSamples:
    """While it is open, samples of the machine go into a run's log."""

    def __init__(self, run: str) -> None: ...

    def close(self) -> None: ...

def last_step(run: str) -> tuple[int, int]:
    """The last step and epoch of a run's log; (0, -1): none."""

def diagnose_run(run: str) -> str:
    """What `penstock diagnose --run RUN --json` says."""
