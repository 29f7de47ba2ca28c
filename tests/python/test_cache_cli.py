"""`penstock cache` as a person meets it: every command, every way in which a cache can break, every message."""
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import numpy as np
import pytest
import soundfile

from conftest import BUILD, wait_for


def tool(name):
    return next((p for p in (BUILD / name, BUILD / "tests" / name) if p.exists()), BUILD / name)


@pytest.fixture
def data(tones, tmp_path):
    """A copy of the tones that a test may change."""
    folder = tmp_path / "data"
    shutil.copytree(tones, folder, ignore=shutil.ignore_patterns(".penstock"))
    return folder


@pytest.fixture
def cache(penstock):
    """cache("build", folder, ...) -> the result for programs; the exit code must be `code`."""
    def run(*arguments, code=0, **options):
        done = penstock("cache", *arguments, "--json", **options)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout)
    return run


def ids(folder):
    return [line.split("|")[0] for line in (folder / "metadata.csv").read_text(encoding="utf-8").splitlines()]


def packs(folder, array="*"):
    return sorted(p for p in (folder / ".penstock").glob(f"{array}-*") if p.is_dir())


def shards(folder, array="*"):
    return [s for p in packs(folder, array) for s in sorted(p.glob("*.pack"))]


def arrays(folder):
    """Everything below a folder of .npy files, read by NumPy."""
    return {str(p.relative_to(folder)): np.load(p) for p in sorted(folder.rglob("*.npy"))}


def same(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a)


def exported(cache, folder, out, *flags):
    shutil.rmtree(out, ignore_errors=True)
    cache("export", folder, "--npy", out, *flags)
    return arrays(out)


def flip(path, at, bit=4):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def counts(check):
    return {k: v for k, v in check.items() if k not in ("checked", "findings") and v}


def found(check):
    return [(f["kind"], f["array"], f["id"]) for f in check["findings"]]


# ---- build ----

def test_every_command_has_help_with_examples(penstock):
    assert "Example" in penstock("cache", "--help").stdout
    for command in ("build", "verify", "export", "list", "prune"):
        shown = penstock("cache", command, "--help")
        assert shown.returncode == 0
        for part in ("Example", "--json", "--config", "--print-config", "--cache-dir"):
            assert part in shown.stdout, (command, part)


def test_a_build_builds_once(cache, penstock, data):
    first = cache("build", data)
    assert first["built"] == 80 and first["kept"] == 0 and first["bad"] == 0 and first["bad_samples"] == []
    assert first["bytes"] == pytest.approx(sum(s.stat().st_size for s in shards(data)), rel=0.05)
    assert 0 <= first["sync_seconds"] <= first["seconds"] and first["samples_per_second"] > 0
    assert [pathlib.Path(p).name.split("-")[0] for p in first["packs"]] == ["mel", "tokens"]
    second = cache("build", data)
    assert (second["built"], second["kept"], second["bytes"]) == (0, 80, 0)
    third = cache("build", data, "--overwrite")
    assert (third["built"], third["kept"]) == (80, 0)
    assert cache("verify", data)["checked"] == 80
    text = penstock("cache", "build", data)
    assert text.returncode == 0 and "nothing to do: 80 records" in text.stdout and str(data / ".penstock") in text.stdout
    text = penstock("cache", "build", data, "--overwrite").stdout
    assert "built 80 records of 40 utterances" in text and "utterances/s" in text and "MB" in text
    assert len(text.splitlines()) == 2


def test_a_build_covers_all_splits_unless_one_is_named(cache, data):
    assert cache("build", data, "--val-fraction", 0.5)["built"] == 80
    shutil.rmtree(data / ".penstock")
    half = cache("build", data, "--val-fraction", 0.5, "--split", "val")["built"]
    assert 0 < half < 80
    rest = cache("build", data, "--val-fraction", 0.5)
    assert (rest["built"], rest["kept"]) == (80 - half, half)


def test_only_builds_one_array(cache, penstock, data):
    (data / "f0").mkdir()
    mels = exported(cache, data, data.parent / "out")
    for name in ids(data):
        np.save(data / "f0" / f"{name}.npy", np.arange(len(mels[f"mels/{name}.npy"]), dtype=np.float32))
    extra = ("--extra", f"f0={data / 'f0'}")
    for array in ("mel", "tokens", "f0"):
        assert cache("build", data, "--only", array, *extra)["built"] == 40
        assert len(packs(data, array)) == 1
    assert cache("build", data, *extra)["kept"] == 120
    wrong = penstock("cache", "build", data, "--only", "energy", *extra)
    assert wrong.returncode == 2 and "mel, tokens, f0, but is 'energy'" in wrong.stderr
    wrong = penstock("cache", "build", data, "--only", "f0")
    assert wrong.returncode == 2 and "extra NAME=FOLDER" in wrong.stderr


def test_small_shards_hold_the_same(cache, data, tmp_path):
    cache("build", data)
    whole = exported(cache, data, tmp_path / "a")
    assert len(shards(data, "mel")) == 1
    cache("build", data, "--overwrite", "--shard-mib", 1)
    assert len(shards(data, "mel")) >= 7
    assert same(exported(cache, data, tmp_path / "b"), whole)
    assert cache("verify", data)["checked"] == 80


def test_bad_samples_end_the_build_or_are_named(cache, penstock, data):
    victims = sorted((data / "wavs").iterdir())[:2]
    victims[0].write_bytes(victims[0].read_bytes()[:1000])
    victims[1].unlink()
    stopped = penstock("cache", "build", data)
    assert stopped.returncode == 1 and "--on-bad-sample skip" in stopped.stderr
    assert any(v.stem in stopped.stderr for v in victims)
    report = cache("build", data, "--on-bad-sample", "skip")
    assert report["bad"] == 2 and {b["id"] for b in report["bad_samples"]} == {v.stem for v in victims}
    text = penstock("cache", "build", data, "--on-bad-sample", "skip", "--overwrite")
    assert text.returncode == 0 and all(f"left out {v.stem}: " in text.stdout for v in victims)


def test_only_what_has_changed_is_built_again(cache, data, tmp_path):
    cache("build", data)
    victim, rewritten = ids(data)[3], ids(data)[5]
    audio, rate = soundfile.read(data / "wavs" / f"{victim}.wav", dtype="int16")
    soundfile.write(data / "wavs" / f"{victim}.wav", audio[: len(audio) // 2], rate)
    manifest = data / "metadata.csv"
    lines = manifest.read_text(encoding="utf-8").splitlines()
    lines[5] = f"{rewritten}|{lines[6].split('|')[1]}"
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    check = cache("verify", data, code=1)
    assert sorted(found(check)) == [("stale", "mel", victim), ("stale", "tokens", rewritten)]
    report = cache("build", data)
    assert (report["built"], report["kept"]) == (2, 78)
    assert cache("verify", data)["findings"] == []
    assert same(exported(cache, data, tmp_path / "a"),
                exported(cache, data, tmp_path / "b", "--preprocessing-mode", "runtime"))


@pytest.mark.long
def test_a_killed_build_goes_on_from_there(cache, data, tmp_path):
    """kill -9 at 20 (PENSTOCK_LONG: 200) random moments; the reference kernel is slow, so that most of them hit the work."""
    manifest = data / "metadata.csv"
    manifest.write_text("".join(manifest.read_text(encoding="utf-8").splitlines(True)[:10]), encoding="utf-8")
    flags = ("--disable-native-loading", "--shard-mib", 1)
    command = [BUILD / "penstock", "cache", "build", data, *flags]
    start = time.monotonic()
    cache("build", data, *flags)
    seconds = time.monotonic() - start
    whole = exported(cache, data, tmp_path / "whole", flags[0])
    moments, kept = random.Random(5), []
    for _ in range(200 if os.environ.get("PENSTOCK_LONG") else 20):
        shutil.rmtree(packs(data, "mel")[0], ignore_errors=True)
        build = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        time.sleep(moments.uniform(0, seconds))
        build.kill()
        build.wait()
        report = cache("build", data, *flags)
        assert report["built"] + report["kept"] == 20
        kept.append(report["kept"])
        assert cache("verify", data, flags[0])["checked"] == 20
        assert not list((data / ".penstock").rglob("*.part"))
        assert same(exported(cache, data, tmp_path / "again", flags[0]), whole)
    assert len(set(kept)) > 3, kept  # records of killed builds were kept, different numbers of them


def test_ctrl_c_keeps_what_was_built(cache, data):
    command = [BUILD / "penstock", "cache", "build", data, "--disable-native-loading", "--num-workers", "1"]
    build = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: any(p.stat().st_size > 500_000 for p in (data / ".penstock").rglob("*.part")))
    build.send_signal(signal.SIGINT)
    assert build.wait(timeout=60) == 130
    message = build.stderr.read()
    assert "interrupted" in message and "stays" in message
    assert not list((data / ".penstock").rglob("*.part"))
    report = cache("build", data, "--disable-native-loading")
    assert report["kept"] > 0 and report["built"] > 0 and report["built"] + report["kept"] == 80


def test_the_second_of_two_builds_says_so(cache, penstock, data):
    command = [BUILD / "penstock", "cache", "build", data, "--disable-native-loading", "--num-workers", "1"]
    first = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    wait_for(lambda: any((data / ".penstock").rglob("*.part")))
    first.send_signal(signal.SIGSTOP)
    try:
        second = penstock("cache", "build", data, "--disable-native-loading")
        assert second.returncode == 2 and str(first.pid) in second.stderr and "mel-" in second.stderr
        fixing = penstock("cache", "verify", data, "--fix", "--disable-native-loading")
        assert fixing.returncode == 2 and str(first.pid) in fixing.stderr
    finally:
        first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=120) == 0
    assert cache("verify", data, "--disable-native-loading")["checked"] == 80


# ---- disks ----

@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no permission to mount a small tmpfs")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_is_too_small_is_refused_before_the_work(cache, penstock, data, small_disk):
    tokens = cache("build", data, "--cache-dir", small_disk, "--only", "tokens")
    assert tokens["built"] == 40
    before = {p: p.read_bytes() for p in small_disk.rglob("*.pack")}
    full = penstock("cache", "build", data, "--cache-dir", small_disk)
    assert full.returncode == 2 and str(small_disk) in full.stderr
    assert "MB more" in full.stderr and "cache_dir" in full.stderr
    assert {p: p.read_bytes() for p in small_disk.rglob("*.pack")} == before
    assert not list(small_disk.rglob("*.part"))
    assert cache("build", data, "--cache-dir", small_disk, "--only", "tokens")["kept"] == 40


def limited(size):
    def set_limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return set_limit


def test_a_disk_that_fills_up_leaves_the_cache_as_it_was(cache, penstock, data, tmp_path):
    """A limit on the size of files stands for the full disk: it cannot be seen before it is hit."""
    cache("build", data, "--only", "tokens")
    before = {p: p.read_bytes() for p in shards(data)}
    full = penstock("cache", "build", data, preexec_fn=limited(1 << 20))
    assert full.returncode == 2 and "mel-" in full.stderr and "File too large" in full.stderr
    assert {p: p.read_bytes() for p in shards(data)} == before
    assert not list((data / ".penstock").rglob("*.part"))
    report = cache("build", data)
    assert (report["built"], report["kept"]) == (40, 40)
    assert cache("verify", data)["findings"] == []


@pytest.fixture
def read_only(tones):
    """A dataset whose folder cannot be written, and what makes a process obey that: root does not."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="penstock-read-only-"))
    top.chmod(0o755)
    shutil.copytree(tones, top / "data", ignore=shutil.ignore_patterns(".penstock"))
    (top / "data").chmod(0o555)
    nobody = (lambda: os.setuid(65534)) if os.geteuid() == 0 else None
    yield top / "data", nobody
    (top / "data").chmod(0o755)
    shutil.rmtree(top)


def test_a_folder_that_cannot_be_written_is_named(penstock, read_only, tmp_path):
    folder, nobody = read_only
    built = penstock("cache", "build", folder, preexec_fn=nobody)
    assert built.returncode == 2 and str(folder / ".penstock") in built.stderr and "ermission denied" in built.stderr
    cached = penstock("bench", folder, "--mode", "cached", "--batch-size", 4, "--batches", 4, preexec_fn=nobody)
    assert cached.returncode == 2 and str(folder / ".penstock") in cached.stderr
    live = penstock("bench", folder, "--mode", "auto", "--batch-size", 4, "--batches", 4, preexec_fn=nobody)
    assert live.returncode == 0, live.stderr
    assert list(folder.glob(".penstock*")) == []


def test_a_read_only_cache_serves(cache, penstock, read_only):
    folder, nobody = read_only
    folder.chmod(0o755)
    cache("build", folder)
    for path in (folder / ".penstock").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (folder / ".penstock").chmod(0o555)
    folder.chmod(0o555)
    try:
        r = penstock("bench", folder, "--mode", "cached", "--batch-size", 4, "--batches", 10, "--json", preexec_fn=nobody)
        assert r.returncode == 0, r.stderr
        assert json.loads(r.stdout)["cache"]["misses"] == 0
        assert penstock("cache", "verify", folder, preexec_fn=nobody).returncode == 0
        assert penstock("cache", "build", folder, preexec_fn=nobody).returncode == 0
    finally:
        for path in (folder / ".penstock").rglob("*"):
            path.chmod(0o755)
        (folder / ".penstock").chmod(0o755)


# ---- verify ----

def test_without_a_cache_verify_says_what_makes_one(penstock, data):
    r = penstock("cache", "verify", data)
    assert r.returncode == 2 and "penstock cache build" in r.stderr and str(data / ".penstock") in r.stderr


def test_a_flipped_byte_is_named_and_fixed(cache, penstock, data, tmp_path):
    cache("build", data)
    whole = exported(cache, data, tmp_path / "whole")
    assert counts(cache("verify", data)) == {}
    flip(shards(data, "mel")[0], 100_000)
    check = cache("verify", data, code=1)
    assert counts(check) == {"bad": 1} and check["checked"] == 80
    (kind, array, victim), = found(check)
    assert (kind, array) == ("bad", "mel") and victim in ids(data)
    text = penstock("cache", "verify", data)
    assert text.returncode == 1 and f"{victim}: mel-" in text.stdout and "00000.pack" in text.stdout
    assert "1 bad" in text.stdout and "--fix" in text.stdout
    fixed = penstock("cache", "verify", data, "--fix")
    assert fixed.returncode == 0 and "(fixed)" in fixed.stdout and "1 fixed, 0 left" in fixed.stdout
    text = penstock("cache", "verify", data)
    assert text.returncode == 0 and text.stdout == "80 arrays checked: all good\n"
    assert same(exported(cache, data, tmp_path / "again"), whole)


def test_any_flipped_bit_is_found_and_never_served(cache, data, tmp_path):
    """Anywhere in a shard: header, record, id, payload, padding, index, footer."""
    cache("build", data)
    whole = exported(cache, data, tmp_path / "whole")
    places = random.Random(3)
    for array in ("mel", "tokens"):
        size = shards(data, array)[0].stat().st_size
        for at in [0, 9, 17, 30, size - 1, size - 20, size - 60, size - 200, *(places.randrange(size) for _ in range(8))]:
            flip(shards(data, array)[0], at, places.randrange(8))
            assert same(exported(cache, data, tmp_path / "again"), whole), (array, at)
            check = cache("verify", data, "--fix")
            assert check["fixed"] == len(check["findings"]) > 0, (array, at)
            assert cache("verify", data)["findings"] == []
            shutil.rmtree(packs(data, array)[0])
            cache("build", data)


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.999])
def test_a_truncated_shard_is_found_and_fixed(cache, data, tmp_path, share):
    cache("build", data)
    whole = exported(cache, data, tmp_path / "whole")
    shard = shards(data, "mel")[0]
    os.truncate(shard, int(shard.stat().st_size * share))
    check = cache("verify", data, code=1)
    assert check["bad"] >= 1 and any("00000.pack" in f["reason"] for f in check["findings"])
    assert same(exported(cache, data, tmp_path / "again"), whole)  # computed where it has to be
    assert cache("verify", data, "--fix")["fixed"] > 0
    assert cache("verify", data)["findings"] == []
    assert same(exported(cache, data, tmp_path / "again"), whole)


def test_what_is_missing_or_orphaned_is_named_and_fixed(cache, data):
    cache("build", data)
    manifest = data / "metadata.csv"
    lines = manifest.read_text(encoding="utf-8").splitlines()
    gone = lines[0].split("|")[0]
    lines[0] = "new-one|" + lines[0].split("|", 1)[1]
    shutil.copy(data / "wavs" / f"{gone}.wav", data / "wavs/new-one.wav")
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    check = cache("verify", data, code=1)
    assert sorted(found(check)) == [(kind, array, name) for kind, name in (("missing", "new-one"), ("orphaned", gone))
                                    for array in ("mel", "tokens")]
    assert cache("verify", data, "--fix")["fixed"] == 4
    assert counts(cache("verify", data)) == {}


def test_a_tree_of_npy_files_is_checked_and_repaired_in_its_own_way(cache, penstock, data):
    cache("export", data, "--npy", data, "--cache-type", "float16", "--mel-layout", "bins_first")
    names = ids(data)
    bad, stale, missing = (data / "mels" / f"{n}.npy" for n in names[:3])
    whole = arrays(data / "mels")
    note = penstock("cache", "verify", data)
    assert note.returncode == 0 and f"note: mels of 40 utterances come from {data / 'mels'}" in note.stderr
    bad.write_bytes(bad.read_bytes()[:300])
    os.utime(stale, (1, 1))
    missing.unlink()
    np.save(data / "mels/stranger.npy", np.zeros((80, 3), np.float16))
    check = cache("verify", data, code=1)
    assert found(check) == [("bad", "mel", names[0]), ("stale", "mel", names[1]), ("missing", "mel", names[2]),
                            ("orphaned", "mel", "stranger")]
    assert all(str(data / "mels") in f["reason"] for f in check["findings"])
    check = cache("verify", data, "--fix", code=1)  # strangers are the user's
    assert check["fixed"] == 3 and [f["id"] for f in check["findings"] if not f["fixed"]] == ["stranger"]
    (data / "mels/stranger.npy").unlink()
    assert counts(cache("verify", data)) == {}
    assert same(arrays(data / "mels"), whole)


# ---- export ----

@pytest.mark.parametrize("flags", [(), ("--cache-type", "float16"), ("--mel-layout", "bins_first"),
                                   ("--mel-preset", "myxtts", "--add-blank")])
def test_export_is_the_same_live_and_cached(cache, data, tmp_path, flags):
    live = exported(cache, data, tmp_path / "live", *flags)
    built = cache("build", data, *flags)
    assert built["built"] == 80
    again = exported(cache, data, tmp_path / "cached", *flags)
    assert len(live) == 80 and same(live, again)
    mel = live[f"mels/{ids(data)[0]}.npy"]
    assert mel.dtype == (np.float16 if "float16" in flags else np.float32)
    assert mel.shape["bins_first" not in flags] == 80
    assert all(a.dtype == np.int32 and a.ndim == 1 for k, a in live.items() if k.startswith("tokens/"))


def test_export_is_what_the_kernels_compute(cache, data, tmp_path):
    cache("build", data)
    files = exported(cache, data, tmp_path / "out")
    lines = (data / "metadata.csv").read_text(encoding="utf-8")
    tokens = subprocess.run([tool("text_dump"), "ids"], input="".join(line.split("|")[-1] + "\n" for line in lines.splitlines()),
                            capture_output=True, text=True, check=True).stdout.splitlines()
    for name, numbers in zip(ids(data), tokens):
        assert files[f"tokens/{name}.npy"].tolist() == [int(n) for n in numbers.split()]
    for name in ids(data)[:10]:
        audio, _ = soundfile.read(data / "wavs" / f"{name}.wav", dtype="float32")
        audio.tofile(tmp_path / "audio")
        subprocess.run([tool("mel_dump"), tmp_path / "audio", tmp_path / "mel", "--preset", "hifigan"], check=True)
        expected = np.fromfile(tmp_path / "mel", np.float32).reshape(-1, 80)
        assert files[f"mels/{name}.npy"].tobytes() == expected.tobytes()


def test_what_was_exported_is_a_cache_of_its_own(cache, penstock, data, tmp_path):
    cache("export", data, "--npy", tmp_path / "out")
    trees = ("--npy-mels", tmp_path / "out/mels", "--npy-tokens", tmp_path / "out/tokens")
    r = penstock("bench", data, "--mode", "auto", "--split", "all", "--batch-size", 4, "--batches", 20, "--json", *trees)
    b = json.loads(r.stdout)
    assert b["cache"]["misses"] == 0 and b["cache"]["hits"] > 0
    assert same(exported(cache, data, tmp_path / "again", *trees), arrays(tmp_path / "out"))
    assert cache("verify", data, *trees)["checked"] == 80


def test_export_needs_a_place(penstock, data, tmp_path):
    for flags in ((), ("--npy",), ("--output", tmp_path / "out")):
        r = penstock("cache", "export", data, *flags)
        assert r.returncode == 2 and "penstock cache export DIR --npy OUT" in r.stderr
    assert not (tmp_path / "out").exists()
    r = penstock("cache", "export", data, "--npy", "--output", tmp_path / "out")
    assert r.returncode == 0 and "80 arrays" in r.stdout and str(tmp_path / "out") in r.stdout
    (tmp_path / "file").write_text("")
    r = penstock("cache", "export", data, "--npy", tmp_path / "file")
    assert r.returncode == 2 and str(tmp_path / "file/") in r.stderr


# ---- samples instead of mels ----

PCM = ("--cache-kind", "pcm")


@pytest.fixture(scope="session")
def compressed_tones(penstock, tmp_path_factory):
    """40 clips of MP3 at another rate than the feed's: slow to decode. Tests must not change it."""
    folder = tmp_path_factory.mktemp("data") / "compressed"
    made = penstock("synth", folder, "--voice", "tone", "--clips", 40, "--format", "mp3", "--sample-rate", 44100)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def compressed(compressed_tones, tmp_path):
    folder = tmp_path / "compressed"
    shutil.copytree(compressed_tones, folder, ignore=shutil.ignore_patterns(".penstock"))
    return folder


def test_a_cache_of_samples_serves_any_mel(cache, penstock, compressed, tmp_path):
    live = exported(cache, compressed, tmp_path / "live", *PCM)
    built = cache("build", compressed, *PCM)
    assert (built["built"], built["cache_kind"], built["reason"]) == (80, "pcm", "")
    assert [pathlib.Path(p).name.split("-")[0] for p in built["packs"]] == ["pcm", "tokens"]
    assert same(exported(cache, compressed, tmp_path / "cached", *PCM), live)
    flags = (*PCM, "--n-mels", 40, "--mel-fmax", 7000)
    assert cache("build", compressed, *flags)["kept"] == 80
    assert same(exported(cache, compressed, tmp_path / "cached", *flags),
                exported(cache, compressed, tmp_path / "live", *flags, "--preprocessing-mode", "runtime"))
    assert cache("build", compressed)["built"] == 40  # mels beside it
    shown = cache("list", compressed, *PCM)
    assert shown["cache_kind"] == "pcm"
    assert {p["array"]: p["current"] for p in shown["packs"]} == {"mel": False, "pcm": True, "tokens": True}
    b = json.loads(penstock("bench", compressed, *flags, "--mode", "cached", "--split", "all", "--batch-size", 4,
                            "--batches", 20, "--json").stdout)
    assert b["cache"]["misses"] == b["cache"]["recomputed"] == 0 and b["cache"]["hits"] > 0
    assert cache("build", compressed, *PCM, "--overwrite", "--only", "pcm")["built"] == 40
    wrong = penstock("cache", "build", compressed, "--only", "pcm")
    assert wrong.returncode == 2 and "only must be one of mel, tokens" in wrong.stderr


def test_damaged_samples_are_named_decoded_and_fixed(cache, penstock, data):
    cache("build", data, *PCM)
    flip(shards(data, "pcm")[0], 100_000)
    finding, = cache("verify", data, *PCM, code=1)["findings"]
    assert (finding["kind"], finding["array"]) == ("bad", "pcm")
    flags = ("bench", data, *PCM, "--mode", "cached", "--split", "all", "--batch-size", 4, "--batches", 30)
    b = json.loads(penstock(*flags, "--json").stdout)
    assert {s["id"] for s in b["recomputed_samples"]} == {finding["id"]} and b["skipped"] == 0
    bad = penstock(*flags, "--disable-auto-rebuild-mel-cache")
    assert bad.returncode == 1 and finding["id"] in bad.stderr
    assert cache("verify", data, "--fix", *PCM)["fixed"] == 1
    assert counts(cache("verify", data, *PCM)) == {}


def test_a_killed_build_of_samples_goes_on_from_there(cache, compressed, tmp_path):
    flags = (*PCM, "--num-workers", 1, "--shard-mib", 1)
    command = list(map(str, [BUILD / "penstock", "cache", "build", compressed, *flags]))
    start = time.monotonic()
    cache("build", compressed, *flags)
    seconds = time.monotonic() - start
    whole = exported(cache, compressed, tmp_path / "whole", *PCM)
    moments, kept = random.Random(6), []
    for _ in range(100 if os.environ.get("PENSTOCK_LONG") else 10):
        shutil.rmtree(packs(compressed, "pcm")[0], ignore_errors=True)
        build = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(moments.uniform(0, seconds))
        build.kill()
        build.wait()
        report = cache("build", compressed, *flags)
        assert report["built"] + report["kept"] == 80
        kept.append(report["kept"])
        assert cache("verify", compressed, *PCM)["checked"] == 80
        assert not list((compressed / ".penstock").rglob("*.part"))
        assert same(exported(cache, compressed, tmp_path / "again", *PCM), whole)
    assert len(set(kept)) > 2, kept


def test_auto_measures_once_says_why_and_keeps_it(cache, penstock, compressed):
    auto = ("--cache-kind", "auto")
    before = cache("list", compressed, *auto)
    assert before["cache_kind"] == "mel" and "before a cache is built" in before["reason"]
    text = penstock("cache", "build", compressed, *auto)
    assert text.returncode == 0, text.stderr
    kept = (compressed / ".penstock/cache_kind.yaml").read_text()
    shown = cache("list", compressed, *auto)
    assert shown["reason"].startswith(f"{shown['cache_kind']}: decoding takes ") and " ms a sample" in shown["reason"]
    assert f"cache_kind auto is {shown['reason']}\n" in text.stdout and shown["reason"] in kept
    again = cache("build", compressed, *auto)
    assert (again["built"], again["cache_kind"], again["reason"]) == (0, shown["cache_kind"], shown["reason"])
    assert shown["reason"] in penstock("cache", "list", compressed, *auto).stdout
    for mode in ("live", "cached"):
        b = json.loads(penstock("bench", compressed, *auto, "--mode", mode, "--batch-size", 4, "--batches", 4, "--json").stdout)
        assert f"cache_kind auto is {shown['reason']}" in b["notes"]
    (compressed / ".penstock/cache_kind.yaml").write_text("kind:\n")
    for command in (("cache", "build"), ("cache", "verify"), ("cache", "list"), ("bench",)):
        r = penstock(*command, compressed, *auto)
        assert r.returncode == 2 and "cache_kind.yaml" in r.stderr and "remove the file" in r.stderr


def test_auto_takes_what_fits_on_a_small_disk(cache, penstock, compressed, small_disk):
    """4 MB hold neither: the usual error, and nothing is decided."""
    full = penstock("cache", "build", compressed, "--cache-dir", small_disk, "--cache-kind", "auto")
    assert full.returncode == 2 and "MB more" in full.stderr
    assert not list(small_disk.rglob("cache_kind.yaml"))


# ---- list, prune, info ----

def test_list_shows_every_pack_and_which_are_used(cache, penstock, data):
    empty = penstock("cache", "list", data)
    assert empty.returncode == 0 and "no packs" in empty.stdout and "penstock cache build" in empty.stdout
    assert cache("list", data)["packs"] == []
    cache("build", data)
    cache("build", data, "--n-mels", 40, "--cache-type", "float16")
    shown = cache("list", data)
    assert shown["folder"] == str(data / ".penstock")
    mels = [p for p in shown["packs"] if p["array"] == "mel"]
    assert [p["records"] for p in mels] == [40, 40] and sorted(p["current"] for p in mels) == [False, True]
    current, = (p for p in mels if p["current"])
    assert current["parameters"]["n_mels"] == "80" and current["bytes"] > 7e6
    assert abs(current["written"] - time.time()) < 600 and abs(current["used"] - time.time()) < 600
    lines = penstock("cache", "list", data).stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("*")] == ["mel", "tokens"]
    other, = (line for line in lines if line.startswith("  mel"))
    assert other.endswith("cache_type float16, n_mels 40")
    info = penstock("info", data)
    assert "Cache (*" in info.stdout and "* mel" in info.stdout
    assert json.loads(penstock("info", data, "--json").stdout)["cache"] == cache("list", data)["packs"]


def test_list_names_left_overs_and_problems(cache, penstock, data):
    cache("build", data)
    shutil.copy(shards(data, "mel")[0], packs(data, "mel")[0] / "00001.pack.part")
    shard = shards(data, "tokens")[0]
    os.truncate(shard, shard.stat().st_size - 10)
    r = penstock("cache", "list", data)
    assert r.returncode == 0 and "00001.pack.part" in r.stdout and "problem: tokens-" in r.stdout
    assert "00000.pack" in r.stdout


def test_prune_says_first_and_does_then(cache, penstock, data, tmp_path):
    cache("build", data)
    cache("build", data, "--n-mels", 40)
    assert "nothing to prune" in penstock("cache", "prune", data).stdout
    whole = exported(cache, data, tmp_path / "whole")
    other, = (p["folder"] for p in cache("list", data)["packs"] if not p["current"])
    dry = penstock("cache", "prune", data, "--unused-days", 0)
    assert dry.returncode == 0 and other in dry.stdout and "--yes does it" in dry.stdout and "MB" in dry.stdout
    assert pathlib.Path(other).exists()
    done = cache("prune", data, "--unused-days", 0, "--yes")
    assert done["removed"] and [i["path"] for i in done["items"]] == [other] and done["bytes"] > 3e6
    assert not pathlib.Path(other).exists()
    assert cache("prune", data, "--unused-days", 0) == {"removed": False, "bytes": 0, "items": []}
    assert same(exported(cache, data, tmp_path / "again"), whole)


def test_prune_takes_the_records_that_nobody_reads(cache, data):
    cache("build", data)
    victim = data / "wavs" / f"{ids(data)[0]}.wav"
    audio, rate = soundfile.read(victim, dtype="int16")
    soundfile.write(victim, audio[:20000], rate)
    cache("build", data)
    before = sum(s.stat().st_size for s in shards(data))
    planned = cache("prune", data)
    assert "1 of its 41 records" in planned["items"][0]["reason"]
    cache("prune", data, "--yes")
    assert sum(s.stat().st_size for s in shards(data)) < before
    assert cache("prune", data)["items"] == [] and counts(cache("verify", data)) == {}


# ---- bench ----

def test_bench_is_live_unless_it_is_told_otherwise(cache, penstock, data):
    cache("build", data)
    def bench(*flags):
        r = penstock("bench", data, "--split", "all", "--batch-size", 4, "--batches", 20, "--json", *flags)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)
    nothing = {"hits": 0, "misses": 0, "recomputed": 0, "bytes_read": 0}
    assert bench()["cache"] == nothing and bench()["mode"] == "live"
    assert bench("--preprocessing-mode", "runtime")["cache"] == nothing
    for flags in (("--mode", "cached"), ("--mode", "auto"), ("--preprocessing-mode", "precompute")):
        c = bench(*flags)["cache"]
        assert c["hits"] > 0 and c["bytes_read"] > 0 and c["misses"] == c["recomputed"] == 0
    shutil.rmtree(data / ".penstock")
    assert bench("--mode", "auto")["cache"]["hits"] == 0
    assert packs(data) == []
    assert bench("--mode", "cached")["cache"]["misses"] == 0  # builds it first
    assert len(packs(data)) == 2
    text = penstock("bench", data, "--batch-size", 4, "--batches", 4, "--mode", "cached").stdout
    assert " hits, 0 misses, 0 recomputed, " in text
    both = penstock("bench", data, "--mode", "cached", "--preprocessing-mode", "auto")
    assert both.returncode == 2 and "leave one of them out" in both.stderr


def test_bench_names_what_had_to_be_computed_again(cache, penstock, data, tmp_path):
    cache("build", data)
    flip(shards(data, "mel")[0], 100_000)
    victim = cache("verify", data, code=1)["findings"][0]["id"]
    flags = ("bench", data, "--mode", "cached", "--split", "all", "--batch-size", 4, "--batches", 30)
    b = json.loads(penstock(*flags, "--json", "--run", tmp_path / "run").stdout)
    assert {s["id"] for s in b["recomputed_samples"]} == {victim} and b["skipped"] == 0
    text = penstock(*flags)
    assert f"recomputed {victim}: " in text.stdout and "cache verify --fix" in text.stdout
    bad = penstock(*flags, "--disable-auto-rebuild-mel-cache")
    assert bad.returncode == 1 and victim in bad.stderr


def test_a_run_log_has_every_step_of_every_measurement_once(penstock, data, tmp_path):
    flags = ("bench", data, "--mode", "cached", "--split", "all", "--batch-size", 4, "--batches", 10, "--run", tmp_path / "a/run")
    assert penstock(*flags, "--repeat", 2).returncode == 0
    r = json.loads(penstock(*flags, "--json").stdout)
    lines = [json.loads(line) for line in (tmp_path / "a/run/log.jsonl").read_text().splitlines()]
    assert all(abs(line["t"] - time.time()) < 600 for line in lines)
    steps, feed = ([line for line in lines if line["kind"] == kind] for kind in ("step", "feed"))
    assert [line["step"] for line in steps] == list(range(1, 31))
    for line in steps:
        assert {"epoch", "step_ms", "data_ms", "frames_per_s", "padding", "retraces", "shape", "ring"} < set(line) and "au" not in line
        assert line["step_ms"] == 0 and line["data_ms"] > 0 and line["shape"][0] == 4 and 0 <= line["padding"] < 1
    for line in feed:
        assert {"samples", "samples_per_second", "stages", "workers", "depth", "ring_level", "hits", "misses", "recomputed", "bytes_read",
                "skipped"} <= set(line)
    ends = [line for line in feed if "skipped_samples" in line]  # of a measurement
    assert len(ends) == 3 and feed[-1] is ends[-1]
    assert sum(line["samples"] for line in feed) == 3 * r["samples"] and sum(line["hits"] for line in feed) > 0
    assert [line["event"] for line in lines if line["kind"] == "event" and line["event"] != "epoch"] == ["start", "cold"] * 3
    (tmp_path / "file").write_text("")
    bad = penstock("bench", data, "--run", tmp_path / "file")
    assert bad.returncode == 2 and str(tmp_path / "file") in bad.stderr


# ---- misuse ----

def test_misuse_is_exit_code_2_with_a_reason(penstock, data):
    for arguments, reason in [
        (("cache",), "subcommand"),
        (("cache", "bild", data), "subcommand"),
        (("cache", "build"), "which dataset?"),
        (("cache", "build", "/nonexistent"), "/nonexistent"),
        (("cache", "build", data, "--shard-mib", 0), "--shard-mib"),
        (("cache", "build", data, "--shard-mib", 2_000_000), "--shard-mib"),
        (("cache", "build", data, "--ony", "mel"), "--ony"),
        (("cache", "build", data, "--cache-typ", "float16"), "did you mean --cache-type?"),
        (("cache", "build", data, "--cache-type", "float8"), "must be one of float32, float16"),
        (("cache", "verify", data, "--npy-mels", "/nonexistent"), "/nonexistent"),
        (("cache", "prune", data, "--unused-days", -1), "--unused-days"),
        (("cache", "list", data, "--config", "/nonexistent.yaml"), "/nonexistent.yaml"),
        (("bench", data, "--mode", "frozen"), "--mode"),
    ]:
        r = penstock(*arguments)
        assert r.returncode == 2, (arguments, r)
        assert reason in r.stderr, (arguments, r.stderr)
        assert r.stdout == ""


def test_the_settings_can_be_shown(penstock, data):
    shown = penstock("cache", "build", data, "--print-config", "--cache-type", "float16")
    assert shown.returncode == 0 and "cache_type: float16" in shown.stdout and "split: all" in shown.stdout
    assert packs(data) == []
