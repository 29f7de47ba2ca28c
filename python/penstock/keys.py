"""Every key of the configuration, with its type. Made by python/generate.py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]


class MelKeys(TypedDict, total=False):
    """What makes a mel."""

    sample_rate: int
    n_fft: int
    win_length: int
    hop_length: int
    n_mels: int
    mel_fmin: float
    mel_fmax: float
    mel_scale: Literal["slaney", "htk"]
    mel_norm: Literal["slaney", "none"]
    mel_power: int
    mel_eps: float
    mel_framing: Literal["centered", "same", "valid"]
    mel_pad_mode: Literal["reflect", "constant"]
    mel_log: Literal["ln", "log10", "db"]
    mel_floor: float
    mel_precision: Literal["fast", "exact"]
    mel_layout: Literal["frames_first", "bins_first"]


class Keys(MelKeys, total=False):
    """What Feed, info and the functions of penstock.cache take."""

    train_data: Path
    val_data: Path
    metadata_train_file: Path
    wavs_train_dir: Path
    metadata_eval_file: Path
    wavs_eval_dir: Path
    cache_dir: Path
    split: Literal["train", "val", "all"]
    val_fraction: float
    batch_size: int | Literal["auto"]
    shapes: int | Literal["dynamic"]
    pad_to_fixed_length: bool
    max_text_length: int | Literal["auto"]
    max_mel_frames: int | Literal["auto"]
    remainder: Literal["auto", "drop", "wrap", "pad"]
    seed: int
    rank: int
    world: int
    on_bad_sample: Literal["fail", "skip"]
    mel_preset: Literal["hifigan", "myxtts", "librosa"]
    mel_pad_value: float
    resample: bool
    add_blank: bool
    symbols: Path
    cache_type: Literal["float32", "float16"]
    cache_kind: Literal["mel", "pcm", "auto"]
    npy_mels: Path
    npy_tokens: Path
    extra: str | Mapping[str, Path]
    preprocessing_mode: Literal["auto", "runtime", "precompute"]
    cache_verification: bool
    auto_rebuild_mel_cache: bool
    auto_rebuild_token_cache: bool
    enable_memory_mapping: bool
    native_loading: bool
    num_workers: int | Literal["auto"]
    prefetch_buffer_size: int
    autotune: bool
    device: str
    device_prefetch: bool
    overlap: bool
    device_buffer_size: int
    device_memory: int | str
    frame_memory: int | str


HELP = """\
    train_data: a folder of its own for training
    val_data: a folder of its own for validation
    metadata_train_file: manifest of the training data, where it has another name
    wavs_train_dir: folder of the training audio, where it has another name
    metadata_eval_file: manifest of the validation data
    wavs_eval_dir: folder of the validation audio
    cache_dir: where the index and the caches are kept (default: .penstock in the dataset's folder)
    split: train | val | all: which utterances the feed delivers (default train)
    val_fraction: share of the ids, by hash, that is held out for validation (default 0.05)
    batch_size: rows of a batch, per rank (auto: in each shape as many as device_memory has room for) (default
        16)
    shapes: how many fixed shapes the batches may have, or dynamic: each batch its own (for debugging) (default
        4)
    pad_to_fixed_length: one shape of exactly (max_text_length, max_mel_frames) (default false)
    max_text_length: tokens; longer utterances are rejected by name (auto: the dataset's longest)
    max_mel_frames: frames; longer utterances are rejected by name (auto: the dataset's longest)
    remainder: auto | drop | wrap | pad: utterances that do not fill a batch (auto: drop, in validation pad)
    seed: all that the order depends on (default 0)
    rank: this process among `world` (default 0)
    world: processes that share each global batch (default 1)
    on_bad_sample: fail | skip: stop at an unreadable sample, or fill its place, count it and name it (default
        fail)
    mel_preset: hifigan | myxtts | librosa: the mel that the other keys vary (default hifigan)
    sample_rate: Hz; audio at other rates is resampled (default 22050)
    n_fft: FFT size, a power of two (default 1024)
    win_length: window (periodic Hann), at most n_fft (default 1024)
    hop_length: samples from frame to frame (default 256)
    n_mels: mel bins (default 80)
    mel_fmin: lower edge of the filterbank, Hz (default 0)
    mel_fmax: upper edge of the filterbank, Hz (default 8000)
    mel_scale: slaney | htk: mel scale (default slaney)
    mel_norm: slaney | none: area normalisation of the filters (default slaney)
    mel_power: 1: magnitude, 2: power (default 1)
    mel_eps: added to re^2 + im^2 before the root (default 1e-09)
    mel_framing: centered | same | valid: padding: n_fft / 2, (n_fft - hop) / 2, or none at both ends (default
        same)
    mel_pad_mode: reflect | constant: what the ends are padded with (default reflect)
    mel_log: ln | log10 | db: logarithm (default ln)
    mel_floor: least value before the logarithm (default 1e-05)
    mel_precision: fast | exact: float32 in window and FFT, as torch, or float64, as librosa (default fast)
    mel_layout: frames_first | bins_first: [frames, bins] or [bins, frames] (default frames_first)
    mel_pad_value: what fills a row behind its last frame (default 0)
    resample: convert audio of another rate (else it is a bad sample) (default true)
    add_blank: a blank token between all others and at both ends (default false)
    symbols: symbol table to use (default: the characters of the dataset)
    cache_type: float32 | float16: what cached mels are stored as; float16 rounds live ones as well (default
        float32)
    cache_kind: mel | pcm | auto: what is cached: the mel, the decoded samples (16 bits; rounds live ones as
        well), or what pays when the cache is built (default mel)
    npy_mels: folder of <id>.npy mels to use as a cache (default: looked for in the dataset's folder)
    npy_tokens: folder of <id>.npy token ids to use as a cache (looked for as well)
    extra: name=folder of <id>.npy arrays that go beside the mel, such as f0=data/f0; several with commas
    preprocessing_mode: auto | runtime | precompute: use what is cached and compute the rest; compute all; or
        cache all first (default auto)
    cache_verification: compare a cached record's checksum the first time it is read (default true)
    auto_rebuild_mel_cache: compute a damaged cached mel again (else it is a bad sample) (default true)
    auto_rebuild_token_cache: compute damaged cached tokens again (else it is a bad sample) (default true)
    enable_memory_mapping: map the cache; false: read it with pread (default true)
    native_loading: the fused kernel; false: the double-precision reference (default true)
    num_workers: threads that fill batches (auto: what the consumer needs, see autotune; else one per CPU)
    prefetch_buffer_size: batches in the ring, the consumer's included (default 8)
    autotune: with num_workers auto: as few active workers and as little depth as keep the consumer from waiting
        (default true)
    device: cpu | cuda | cuda:N | simulated: where batches go (default cpu)
    device_prefetch: copy batches to the device ahead, from pinned memory; false: when they are asked for, from
        any (default true)
    overlap: copy the next batch while the device computes; false: in turn (default true)
    device_buffer_size: batches in the device's memory, the consumer's included (default 2)
    device_memory: what batch_size auto may fill, such as 24GB (auto: what the device has free)
    frame_memory: how much of it a training step needs for each frame of a row (default 1000000)"""
MEL_HELP = """\
    sample_rate: Hz; audio at other rates is resampled (default 22050)
    n_fft: FFT size, a power of two (default 1024)
    win_length: window (periodic Hann), at most n_fft (default 1024)
    hop_length: samples from frame to frame (default 256)
    n_mels: mel bins (default 80)
    mel_fmin: lower edge of the filterbank, Hz (default 0)
    mel_fmax: upper edge of the filterbank, Hz (default 8000)
    mel_scale: slaney | htk: mel scale (default slaney)
    mel_norm: slaney | none: area normalisation of the filters (default slaney)
    mel_power: 1: magnitude, 2: power (default 1)
    mel_eps: added to re^2 + im^2 before the root (default 1e-09)
    mel_framing: centered | same | valid: padding: n_fft / 2, (n_fft - hop) / 2, or none at both ends (default
        same)
    mel_pad_mode: reflect | constant: what the ends are padded with (default reflect)
    mel_log: ln | log10 | db: logarithm (default ln)
    mel_floor: least value before the logarithm (default 1e-05)
    mel_precision: fast | exact: float32 in window and FFT, as torch, or float64, as librosa (default fast)
    mel_layout: frames_first | bins_first: [frames, bins] or [bins, frames] (default frames_first)"""
