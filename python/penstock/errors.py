"""What goes wrong, as exceptions: the message names the file, line or key and says what to do."""

from __future__ import annotations


class Error(Exception):
    """Misuse: a key, a path, a value, or a combination of them."""


class SampleError(Error):
    """A sample that cannot be used."""

    def __init__(self, message: str, stage: str = "", utterance: str = "", path: str = "", cause: str = "") -> None:
        super().__init__(message, stage, utterance, path, cause)
        self.stage = stage  #: read, decode, mel, tokens
        self.utterance = utterance  #: its id
        self.path = path  #: the audio file, or `metadata.csv:12` for a text
        self.cause = cause

    def __str__(self) -> str:
        return str(self.args[0])
