"""The package's functions: each gives what the feed, the program or the library that defined it gives."""
import json
import pathlib
import pickle

import numpy as np
import pytest
import soundfile

import penstock


def clip(folder, number=0):
    path = sorted((folder / "wavs").iterdir())[number]
    return soundfile.read(path, dtype="float32")[0]


# ---- mel


def test_a_mel_is_librosas(tones):
    librosa = pytest.importorskip("librosa")
    audio = clip(tones)

    def theirs(dtype):
        power = librosa.feature.melspectrogram(y=audio.astype(dtype), sr=22050, dtype=dtype)
        return librosa.power_to_db(power, ref=1.0, amin=1e-10, top_db=None).T

    exact = theirs(np.float64).astype(np.float32)
    ours = penstock.mel(audio, preset="librosa")
    assert ours.shape == exact.shape and ours.dtype == np.float32
    one_rounding = np.spacing(np.abs(exact).max())
    assert np.abs(ours - exact).max() <= np.abs(theirs(np.float32) - exact).max() + one_rounding


def test_keys_vary_the_preset(tones):
    audio = clip(tones)
    plain = penstock.mel(audio)
    assert plain.shape == (len(audio) // 256, 80)
    assert penstock.mel(audio, hop_length=128, n_mels=40).shape == (len(audio) // 128, 40)
    flipped = penstock.mel(audio, mel_layout="bins_first")
    assert flipped.shape == plain.shape[::-1] and (flipped.T == plain).all()
    assert (penstock.mel(audio, "hifigan", hop_length=np.int64(256), mel_fmax=8000) == plain).all()
    assert not (penstock.mel(audio, mel_fmax=7000.0) == plain).all()


def test_a_batch_of_clips_is_its_clips(tones):
    shortest = min(len(clip(tones, i)) for i in range(3))
    clips = np.stack([clip(tones, i)[:shortest] for i in range(3)])
    together = penstock.mel(clips)
    assert together.ndim == 3
    for one, alone in zip(together, clips):
        assert (one == penstock.mel(alone)).all()
    assert penstock.mel(clips[:, :0]).shape == (3, 0, 80)
    assert penstock.mel(clips[:0]).shape == (0, shortest // 256, 80)


def test_any_strides_will_do(tones):
    audio = clip(tones)
    assert (penstock.mel(audio[::-1]) == penstock.mel(audio[::-1].copy())).all()
    stereo = np.stack([audio, audio * 0.5], axis=1)
    assert (penstock.mel(stereo[:, 1]) == penstock.mel(audio * 0.5)).all()
    assert (penstock.mel(stereo.T) == np.stack([penstock.mel(audio), penstock.mel(audio * 0.5)])).all()
    read_only = audio.copy()
    read_only.flags.writeable = False
    assert (penstock.mel(read_only) == penstock.mel(audio)).all()
    assert (penstock.mel(memoryview(audio)) == penstock.mel(audio)).all()


def test_torch_and_jax_audio_come_in_by_dlpack(tones):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    audio = clip(tones)
    expected = penstock.mel(audio)
    assert (penstock.mel(torch.from_numpy(audio)) == expected).all()
    assert (penstock.mel(torch.from_numpy(audio).repeat(2, 1)[1]) == expected).all()
    assert (penstock.mel(jax.numpy.asarray(audio)) == expected).all()


@pytest.mark.parametrize("audio, reason", [
    ([0.0, 1.0], "but is a list"),
    (np.zeros(1000), "must be float32"),
    (np.zeros(1000, np.int16), "must be float32"),
    (np.zeros((2, 2, 1000), np.float32), "3 dimensions"),
    (np.float32(1), "dimensions"),
    (None, "NoneType"),
])
def test_what_is_no_audio_is_refused(audio, reason):
    with pytest.raises(TypeError, match=reason):
        penstock.mel(audio)


def test_what_is_no_mel_key_is_refused():
    audio = np.zeros(1000, np.float32)
    for keys, reason in [({"hop_lenght": 3}, "did you mean hop_length?"), ({"batch_size": 3}, "no part of a mel"),
                         ({"n_fft": 1000}, "power of two"), ({"preset": "tacotron"}, "hifigan, myxtts, librosa"),
                         ({"mel_scale": "bark"}, "slaney, htk")]:
        with pytest.raises(penstock.Error, match=reason):
            penstock.mel(audio, **keys)
    with pytest.raises(TypeError, match="n_fft"):
        penstock.mel(audio, n_fft=[512])


# ---- tokens


def test_tokens_are_the_feeds(tones):
    feed = penstock.Feed(tones, batch_size=4, split="all", shapes=1)
    texts = {line.split("|")[0]: line.split("|")[-1] for line in (tones / "metadata.csv").read_text().splitlines()}
    batch = feed.next()
    for symbols in (feed, feed.symbols, tones):
        for row, name in enumerate(batch.ids):
            ids = penstock.tokens(texts[name], symbols)
            assert ids.dtype == np.int32
            assert (ids == batch.tokens[row, : batch.token_lengths[row]]).all()
    blanks = penstock.Feed(tones, batch_size=4, split="all", shapes=1, add_blank=True).next()
    assert (penstock.tokens(texts[blanks.ids[0]], tones, add_blank=True) == blanks.tokens[0, : blanks.token_lengths[0]]).all()


def test_symbols_can_be_kept(tmp_path):
    symbols = penstock.Symbols("bcaab\u0686 ")
    assert symbols.characters == " abc\u0686" and len(symbols) == 9
    assert penstock.tokens("A\u0686  b", symbols).tolist() == [1, 5, 8, 4, 6, 2]
    symbols.save(str(tmp_path / "symbols"))
    assert penstock.Symbols.load(str(tmp_path / "symbols")) == symbols == pickle.loads(pickle.dumps(symbols))
    assert symbols != penstock.Symbols("abc")
    assert penstock.tokens("abc", tmp_path / "symbols").tolist() == [1, 5, 6, 7, 2]
    with pytest.raises(penstock.Error, match="U\\+0064"):
        penstock.tokens("abcd", symbols)
    with pytest.raises(penstock.Error, match="nowhere"):
        penstock.tokens("abc", tmp_path / "nowhere")


# ---- datasets


def test_info_is_what_the_program_says(program, tones):
    ours = penstock.info(tones, batch_size=4, split="all")
    assert ours == json.loads(program("info", tones, "--batch-size", 4, "--split", "all", "--json").stdout)
    assert ours["clips"] == 40 and ours["speakers"] == 3
    assert [choice["count"] for choice in ours["shapes"]] == [1, 2, 4, 8]


def test_synth_makes_what_the_program_makes(program, tmp_path):
    seen = []
    made = penstock.synth(tmp_path / "a", clips=5, voice="tone", speakers=2, seed=3,
                          progress=lambda *report: seen.append(report))
    assert made["clips"] == 5 and made["seconds"]["min"] <= made["seconds"]["mean"] <= made["seconds"]["max"]
    assert seen[-1] == ("speaking", 5, 5)
    assert program("synth", tmp_path / "b", "--clips", 5, "--voice", "tone", "--speakers", 2, "--seed", 3).returncode == 0
    files = [p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file()]
    assert len(files) == 6
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    with pytest.raises(penstock.Error, match=r"metadata\.csv"):
        penstock.synth(tmp_path / "a", voice="tone")


def test_what_a_progress_raises_ends_the_work(tmp_path):
    class Enough(Exception):
        pass

    def listener(*_):
        raise Enough

    with pytest.raises(Enough):
        penstock.synth(tmp_path / "a", clips=100, voice="tone", progress=listener)


def test_which_dataset(tmp_path):
    for function in (penstock.info, penstock.Feed, penstock.cache.build):
        with pytest.raises(penstock.Error, match="which dataset"):
            function()
        with pytest.raises(penstock.Error, match="nowhere"):
            function(tmp_path / "nowhere")


# ---- caches


def test_a_cache_from_build_to_prune(program, tones, tmp_path):
    keys = {"cache_dir": tmp_path / "cache", "hop_length": 512}
    seen = []
    built = penstock.cache.build(tones, progress=lambda *report: seen.append(report), **keys)
    assert built["built"] == 80 and built["kept"] == 0 and built["bad_samples"] == []
    assert seen[-1][0] == "caching" and 0 < seen[-1][1] <= seen[-1][2] == 40
    assert penstock.cache.build(tones, **keys)["kept"] == 80
    assert penstock.cache.build(tones, only="tokens", overwrite=True, **keys)["built"] == 40
    with pytest.raises(penstock.Error, match="only must be one of mel, tokens"):
        penstock.cache.build(tones, only="f0", **keys)

    good = penstock.cache.verify(tones, **keys)
    assert good["checked"] == 80 and good["findings"] == []
    mels = next(pathlib.Path(p) for p in built["packs"] if "mel" in p)
    shard = next(mels.glob("*.pack"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 255
    shard.write_bytes(data)
    found = penstock.cache.verify(tones, **keys)
    assert found["bad"] == 1 and found["findings"][0]["kind"] == "bad" and found["fixed"] == 0
    assert penstock.cache.verify(tones, fix=True, **keys)["fixed"] == 1
    assert penstock.cache.verify(tones, **keys)["findings"] == []

    listed = penstock.cache.list(tones, **keys)
    assert {pack["array"] for pack in listed["packs"]} == {"mel", "tokens"}
    theirs = json.loads(program("cache", "list", tones, "--cache-dir", tmp_path / "cache", "--hop-length", 512, "--json").stdout)
    assert listed == theirs

    exported = penstock.cache.export(tones, tmp_path / "out", **keys)
    assert exported["arrays"] == 80
    mel = np.load(next((tmp_path / "out" / "mels").glob("*.npy")))
    assert mel.shape[1] == 80
    with pytest.raises(TypeError, match="to where"):
        penstock.cache.export(tones, **keys)

    other = {"cache_dir": keys["cache_dir"]}
    assert penstock.cache.prune(tones, **other)["items"] == []
    unused = penstock.cache.prune(tones, unused_days=0, **other)
    assert not unused["removed"] and [mels] == [pathlib.Path(item["path"]) for item in unused["items"]]
    assert penstock.cache.prune(tones, unused_days=0, remove=True, **other)["removed"] and not mels.exists()


def test_an_export_is_what_the_feed_delivers(tones, tmp_path):
    keys = {"cache_dir": tmp_path / "cache"}
    penstock.cache.export(tones, tmp_path / "out", **keys)
    for batch in penstock.Feed(tones, split="all", batch_size=4, remainder="pad", **keys):
        for row, name in enumerate(batch.ids):
            if name:
                mel = np.load(tmp_path / "out" / "mels" / f"{name}.npy")
                assert (mel == batch.mel[row, : batch.mel_lengths[row]]).all()
