"""Decoding against soundfile (libsndfile), sample for sample, and resampling against the soxr package."""
import os
import pathlib
import struct
import subprocess

import numpy as np
import pytest
import soundfile
import soxr

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
TOOL = next((p for p in (TOOL / "decode_dump", TOOL / "tests" / "decode_dump") if p.exists()), TOOL / "decode_dump")

EXACT = [("WAV", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")]
EXACT += [("WAVEX", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")]
EXACT += [("FLAC", s) for s in ("PCM_S8", "PCM_16", "PCM_24")]
EXACT += [("RF64", "PCM_16"), ("W64", "PCM_16"), ("AIFF", "PCM_16"), ("WAV", "IMA_ADPCM"), ("WAV", "MS_ADPCM")]
# The wheel's libsndfile carries other builds of these codecs than the system's: equal to the rounding of float32.
LOSSY = [("OGG", "VORBIS", 22050), ("OGG", "OPUS", 24000), ("OGG", "OPUS", 48000), ("MP3", "MPEG_LAYER_III", 22050),
         ("MP3", "MPEG_LAYER_III", 44100)]


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, check=False)


def decode(path, rate, *flags):
    done = run(path, "--rate", rate, *flags)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.float32)


def probe(path):
    done = run(path, "--probe")
    assert done.returncode == 0, done.stderr.decode()
    return tuple(map(int, done.stdout.split()))


def signal(samples, channels, rate):
    """Noise and tones, different in every channel, up to full scale."""
    t = np.arange(samples)[:, None] / rate
    x = 0.6 * np.sin(2 * np.pi * (200 + 170 * np.arange(channels)) * t)
    x += 0.4 * np.random.default_rng(channels).uniform(-1, 1, x.shape)
    return x


def mean_of(path):
    """soundfile's float32 samples and their mean over the channels, in double, rounded once."""
    x, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return x.mean(axis=1, dtype=np.float64).astype(np.float32), rate


@pytest.mark.parametrize("format,subtype,channels", [(f, s, c) for f, s in EXACT for c in (1, 2, 3, 6)
                                                     if c <= 2 or "ADPCM" not in s])
def test_lossless_formats_equal_soundfile_bit_for_bit(tmp_path, format, subtype, channels):
    path = tmp_path / "clip"
    soundfile.write(path, signal(20011, channels, 22050), 22050, format=format, subtype=subtype)
    expected, rate = mean_of(path)
    got = decode(path, rate)
    assert probe(path) == (len(expected), 22050, channels)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("format,subtype,rate", LOSSY)
def test_lossy_formats_equal_soundfile(tmp_path, format, subtype, rate, channels):
    path = tmp_path / "clip"
    soundfile.write(path, signal(60013, channels, rate), rate, format=format, subtype=subtype)
    expected, _ = mean_of(path)
    got = decode(path, rate)
    assert probe(path) == (60013, rate, channels)
    assert len(got) == len(expected) == 60013
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("samples", [1, 2, 15, 16, 17, 4095])
def test_short_clips_are_whole(tmp_path, samples):
    path = tmp_path / "clip"
    soundfile.write(path, signal(samples, 1, 22050), 22050, format="WAV", subtype="PCM_16")
    np.testing.assert_array_equal(decode(path, 22050), mean_of(path)[0])


def wav(data, declared=None, before=b"", between=b"", behind=b""):
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 22050, 44100, 2, 16)
    size = len(data) if declared is None else declared
    body = b"WAVE" + before + fmt + between + b"data" + struct.pack("<I", size) + data + behind
    return b"RIFF" + struct.pack("<I", len(body)) + body


def chunk(name, size):
    return name + struct.pack("<I", size) + bytes(size + size % 2)


@pytest.mark.parametrize("size", [1, 2, 33, 5000])
def test_odd_chunks_are_skipped_as_soundfile_does(tmp_path, size):
    path = tmp_path / "clip.wav"
    data = (signal(1000, 1, 22050) * 32767).astype("<i2").tobytes()
    path.write_bytes(wav(data, before=chunk(b"JUNK", size), between=chunk(b"LIST", size), behind=chunk(b"id3 ", size)))
    np.testing.assert_array_equal(decode(path, 22050), mean_of(path)[0])


@pytest.mark.parametrize("declared", [0, 0x7FFFF000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_streaming_sizes_mean_all_that_is_there(tmp_path, declared):
    path = tmp_path / "clip.wav"
    values = (signal(1000, 1, 22050) * 32767).astype("<i2")
    path.write_bytes(wav(values.tobytes(), declared=declared))
    assert probe(path) == (1000, 22050, 1)
    np.testing.assert_array_equal(decode(path, 22050), values[:, 0].astype(np.float32) / 32768)


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 32000, 44100, 48000, 96000])
@pytest.mark.parametrize("samples", [1000, 44101])
def test_resampling_equals_the_soxr_package(tmp_path, rate, samples):
    path = tmp_path / "clip.wav"
    soundfile.write(path, signal(samples, 1, rate), rate, subtype="FLOAT")
    x, _ = soundfile.read(path, dtype="float32")
    expected = soxr.resample(x, rate, 22050, quality="HQ")
    got = decode(path, 22050)
    assert len(got) == (2 * samples * 22050 + rate) // (2 * rate)
    assert abs(len(got) - len(expected)) <= 1
    n = min(len(got), len(expected))
    # The same filters in float32, built by another compiler: the differences are the rounding of sums of some hundred
    # products below 1, far under HQ's own 20 bits (1e-6 of full scale).
    np.testing.assert_allclose(got[:n], expected[:n], rtol=0, atol=2e-6)


def test_another_rate_is_refused_when_asked(tmp_path):
    path = tmp_path / "clip.wav"
    soundfile.write(path, signal(1000, 1, 16000), 16000)
    done = run(path, "--rate", 22050, "--no-resample")
    assert done.returncode == 1
    assert done.stderr.decode() == (f"decode: {path}: sample rate must be 22050, but is 16000; "
                                    "set resample: true to convert\n")


def test_a_truncated_file_is_refused_by_name(tmp_path):
    path = tmp_path / "clip.wav"
    path.write_bytes(wav(bytes(1234), declared=88200))
    for flags in ([], ["--probe"]):
        done = run(path, *flags)
        assert done.returncode == 1
        assert done.stderr.decode() == (f"decode: {path}: truncated: the header promises 88200 bytes of audio, "
                                        "but 1234 are there\n")
