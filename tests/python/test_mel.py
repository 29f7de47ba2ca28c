"""The log-mel against the libraries that defined it: torch.stft for HiFi-GAN, librosa for the others.

- Our double-precision reference is their definition: it agrees with the same computation in float64.
- The fused kernel's largest error against that reference is at most the library's own, given float32 audio, plus 1e-6.
  torch transforms in float32, librosa in float64 whatever the audio's type; so does `precision` fast or exact.

"1e-6" is of the natural logarithm.
"""
import os
import pathlib
import shutil
import subprocess

import librosa
import numpy as np
import pytest
import soundfile
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
TOOL = next((p for p in (BUILD / "mel_dump", BUILD / "tests" / "mel_dump") if p.exists()), BUILD / "mel_dump")
RATE = 22050

HIFIGAN = dict(n_fft=1024, hop=256, n_mels=80, fmax=8000.0)
MYXTTS = dict(n_fft=1024, hop=256, n_mels=80, fmax=11025.0)
LIBROSA = dict(n_fft=2048, hop=512, n_mels=128, fmax=11025.0)


def filters(dtype, n_fft, n_mels, fmax, **_):
    return librosa.filters.mel(sr=RATE, n_fft=n_fft, n_mels=n_mels, fmax=fmax, dtype=dtype)


def padded(audio, before):
    """numpy's reflection; torch's refuses clips that are not longer than the padding."""
    return np.pad(audio, before, mode="reflect")


def hifigan(audio, dtype):
    """HiFi-GAN's mel_spectrogram: torch.stft without centring over (n_fft - hop) / 2 reflected samples."""
    p = HIFIGAN
    x = torch.from_numpy(padded(audio.astype(dtype), (p["n_fft"] - p["hop"]) // 2))
    window = torch.hann_window(p["n_fft"], dtype=x.dtype)
    if len(audio) < p["hop"]:
        return np.zeros((0, p["n_mels"]))
    spectrum = torch.stft(x, p["n_fft"], p["hop"], p["n_fft"], window, center=False, return_complex=True)
    magnitude = torch.sqrt(torch.view_as_real(spectrum).pow(2).sum(-1) + 1e-9)
    mel = torch.matmul(torch.from_numpy(filters(dtype, **p)), magnitude)
    return torch.log(torch.clamp(mel, min=1e-5)).numpy().T


def hifigan_librosa(audio, dtype):
    p = HIFIGAN
    if len(audio) < p["hop"]:
        return np.zeros((0, p["n_mels"]))
    x = padded(audio.astype(dtype), (p["n_fft"] - p["hop"]) // 2)
    spectrum = librosa.stft(x, n_fft=p["n_fft"], hop_length=p["hop"], center=False)
    magnitude = np.sqrt(spectrum.real**2 + spectrum.imag**2 + dtype(1e-9))
    return np.log(np.maximum(filters(dtype, **p) @ magnitude, dtype(1e-5))).T


def myxtts(audio, dtype):
    p = MYXTTS
    mel = librosa.feature.melspectrogram(y=audio.astype(dtype), sr=RATE, n_fft=p["n_fft"], hop_length=p["hop"],
                                         power=1.0, n_mels=p["n_mels"], fmax=p["fmax"], pad_mode="constant",
                                         dtype=dtype)
    return np.log(np.maximum(mel, dtype(1e-5))).T


def librosa_default(audio, dtype):
    mel = librosa.feature.melspectrogram(y=audio.astype(dtype), sr=RATE, dtype=dtype)
    return librosa.power_to_db(mel, ref=1.0, amin=1e-10, top_db=None).T


# The preset's own precision, except where librosa computes what torch defined.
DEFINITIONS = [("hifigan", hifigan, ()), ("hifigan", hifigan_librosa, ("precision", "exact")), ("myxtts", myxtts, ()),
               ("librosa", librosa_default, ())]


@pytest.fixture(scope="session")
def speech(tmp_path_factory):
    """espeak-ng's voice; where it is not installed, harmonics of a gliding pitch in syllables."""
    if shutil.which("espeak-ng"):
        path = tmp_path_factory.mktemp("speech") / "speech.wav"
        subprocess.run(["espeak-ng", "-w", path, "The water comes to the turbine at a steady pressure."], check=True)
        audio, rate = soundfile.read(path, dtype="float32")
        assert rate == RATE
        return audio[:4 * RATE]
    t = np.arange(3 * RATE) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(3 * t)) / RATE
    voice = sum(np.sin(k * phase) / k**2 for k in range(1, 40))
    return (0.3 * voice * np.maximum(0, np.sin(9 * t))).astype(np.float32)


def signal(name, speech):
    random = np.random.default_rng(5)
    samples = 20000
    kind, _, length = name.partition("-")
    audio = {"speech": speech,
             "noise": random.normal(0, 0.3, samples),
             "silence": np.zeros(samples),
             "dc": np.full(samples, 0.5),
             "square": np.where(np.arange(samples) // 50 % 2 == 0, 1.0, -1.0)}[kind].astype(np.float32)
    return audio[:int(length)] if length else audio


SIGNALS = ["speech", "noise", "silence", "dc", "square", "noise-1", "noise-2", "noise-255", "noise-256", "noise-400",
           "noise-513", "noise-1023", "noise-1025", "dc-1", "square-700"]


def run(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def targets():
    return run("--targets").split()


def dump(folder, audio, preset, target, bins, keys=()):
    (folder / "audio").write_bytes(audio.tobytes())
    run(folder / "audio", folder / "mel", "--preset", preset, "--target", target, *keys)
    return np.fromfile(folder / "mel", np.float32).reshape(-1, bins)


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("preset, definition, keys", DEFINITIONS, ids=[d.__name__ for _, d, _ in DEFINITIONS])
@pytest.mark.filterwarnings("ignore:n_fft=.* is too large")
def test_the_kernel_is_as_exact_as_the_library_given_float32(tmp_path, speech, preset, definition, keys, name):
    audio = signal(name, speech)
    exact = definition(audio, np.float64)
    bins = exact.shape[1]
    reference = dump(tmp_path, audio, preset, "reference", bins)
    assert reference.shape == exact.shape
    # float32 rounds the output; the rest is float64's own rounding where a bin is nothing but rounding.
    np.testing.assert_allclose(reference, exact, rtol=6.0e-8, atol=1e-9 + rounding_noise(exact, name))

    theirs = largest(definition(audio, np.float32) - reference)
    for target in targets():
        ours = largest(dump(tmp_path, audio, preset, target, bins, keys) - reference)
        assert ours <= theirs + 1e-6 * log_scale(preset), f"{target}: {ours:.2e}, {definition.__name__}: {theirs:.2e}"


def largest(error):
    return np.abs(error).max(initial=0)


def log_scale(preset):
    """10 log10(x) in natural logarithms."""
    return 10 / np.log(10) if preset == "librosa" else 1


def rounding_noise(exact, name):
    """Constant and periodic signals have bins that are zero but for rounding, above librosa's floor of -100 dB or not."""
    return 1e-6 if name.startswith(("dc", "square")) and exact.min(initial=0) < -90 else 0


@pytest.mark.parametrize("preset, floor", [("hifigan", np.log(1e-5)), ("myxtts", np.log(1e-5)), ("librosa", -100.0)])
def test_silence_is_exactly_the_floor(tmp_path, preset, floor):
    bins = LIBROSA["n_mels"] if preset == "librosa" else HIFIGAN["n_mels"]
    for target in [*targets(), "reference"]:
        mel = dump(tmp_path, np.zeros(5000, np.float32), preset, target, bins)
        # HiFi-GAN's eps lifts silence to 80 filters' worth of sqrt(1e-9).
        if preset == "hifigan":
            np.testing.assert_allclose(mel, np.broadcast_to(hifigan(np.zeros(5000), np.float64), mel.shape), atol=2e-6)
        else:
            assert (mel == np.float32(floor)).all()


@pytest.mark.parametrize("scale, norm, fmin, fmax, n_mels", [
    ("slaney", "slaney", 0, 8000, 80), ("slaney", "none", 55, 7600, 40), ("htk", "slaney", 0, 11025, 128),
    ("htk", "none", 20, 4000, 23), ("slaney", "slaney", 0, 11025, 200)])
@pytest.mark.parametrize("n_fft", [256, 1024, 4096])
@pytest.mark.filterwarnings("ignore:Empty filters")
def test_the_filterbank_is_librosas(tmp_path, scale, norm, fmin, fmax, n_mels, n_fft):
    run("--filterbank", tmp_path / "bank", "scale", scale, "norm", norm, "fmin", fmin, "fmax", fmax, "n_mels", n_mels,
        "n_fft", n_fft, "win_length", n_fft)
    ours = np.fromfile(tmp_path / "bank").reshape(n_mels, -1)
    theirs = librosa.filters.mel(sr=RATE, n_fft=n_fft, n_mels=n_mels, fmin=fmin, fmax=fmax, htk=scale == "htk",
                                 norm=None if norm == "none" else norm, dtype=np.float64)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-14)
