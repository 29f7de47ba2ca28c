"""Trees of .npy files against NumPy itself: element by element what it wrote, byte by byte what it would write."""
import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
TOOL = next((p for p in (TOOL / "npy_dump", TOOL / "tests" / "npy_dump") if p.exists()), TOOL / "npy_dump")

TYPES = ["float16", "float32", "float64", "int32", "int64"]
SHAPES = [(0,), (1,), (37,), (0, 80), (80, 0), (1, 1), (5, 80), (80, 213)]


def run(*arguments, data=None):
    done = subprocess.run([TOOL, *map(str, arguments)], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def read(folder, ids):
    """What the library has for every id: an array, None for a missing file, or the problem."""
    out, result = run(folder, *ids), []
    for _ in ids:
        line, _, out = out.partition(b"\n")
        if line == b"missing":
            result.append(None)
        elif line.startswith(b"problem: "):
            result.append(line.decode().removeprefix("problem: "))
        else:
            name, order, shape, size = line.decode().split()
            size, shape = int(size), tuple(map(int, shape.split(",")))
            result.append(np.frombuffer(out[:size], name).reshape(shape, order=order))
            out = out[size:]
    assert out == b""
    return result


def values(dtype, shape, seed=1):
    """Every bit pattern is an element, NaNs, infinities and subnormals too."""
    raw = np.random.default_rng(seed).bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.frombuffer(raw, dtype).reshape(shape)


def assert_same(got, expected):
    assert isinstance(got, np.ndarray), got
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_element_that_numpy_saved_is_read(tmp_path, dtype, order):
    arrays = {"x".join(map(str, shape)): np.asarray(values(dtype, shape), order=order) for shape in SHAPES}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    for got, expected in zip(read(tmp_path, arrays), arrays.values()):
        assert_same(got, expected)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_header_version_is_read(tmp_path, version, order):
    array = np.asarray(values("float32", (213, 80)), order=order)
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert_same(read(tmp_path, ["a"])[0], array)


def test_views_are_read_as_numpy_wrote_them(tmp_path):
    whole = values("float32", (80, 213))
    views = {"transposed": whole.T, "stepped": whole[::2, ::-3], "column": whole[:, 5]}
    for name, array in views.items():
        np.save(tmp_path / f"{name}.npy", array)
    for got, expected in zip(read(tmp_path, views), views.values()):
        assert_same(got, expected)


def test_ids_may_be_unicode_and_in_sub_folders(tmp_path):
    ids = ["سلام دنیا", "speaker 1/LJ001-0001", "日本/語", "a.b", "e\u0301", "\u00e9"]
    for seed, name in enumerate(ids):
        path = tmp_path / f"{name}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, values("float16", (7, 80), seed))
    for seed, got in enumerate(read(tmp_path, ids)):
        assert_same(got, values("float16", (7, 80), seed))
    assert read(tmp_path, ["missing"]) == [None]
    assert run("--orphans", tmp_path, *ids[1:]).decode() == ids[0] + "\n"


@pytest.mark.parametrize("shape", SHAPES + [(10**6,)])
@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_written_is_what_numpy_writes(tmp_path, dtype, shape):
    array = values(dtype, shape)
    run("--write", tmp_path / "ours.npy", dtype, ",".join(map(str, shape)), data=array.tobytes())
    np.save(tmp_path / "theirs.npy", array)
    assert_same(np.load(tmp_path / "ours.npy"), array)
    ours, theirs = (tmp_path / "ours.npy").read_bytes(), (tmp_path / "theirs.npy").read_bytes()
    assert ours == theirs


def test_a_written_array_can_be_mapped(tmp_path):
    array = values("float32", (213, 80))
    run("--write", tmp_path / "a.npy", "float32", "213,80", data=array.tobytes())
    assert_same(np.load(tmp_path / "a.npy", mmap_mode="r"), array)


REFUSED = {
    "object": (np.array([1, "x"], object), "holds Python objects"),
    "fields": (np.zeros(3, [("a", "<f4"), ("b", "<i4")]), "has a structured type"),
    "unicode_fields": (np.zeros(3, [("ä", "<f4"), ("سلام", "<i4")]), "has a structured type"),
    "big": (np.zeros((3, 4), ">f4"), "is of type >f4, but must be <f2, <f4, <f8, <i4 or <i8; "
                                     "write it as np.save(path, array.astype('<f4'))"),
    "byte": (np.zeros(3, "u1"), "is of type |u1, but must be <f2, <f4, <f8, <i4 or <i8; "
                                "write it as np.save(path, array.astype('<i4'))"),
    "bool": (np.zeros(3, bool), "is of type |b1"),
    "complex": (np.zeros(3, "c8"), "is of type <c8"),
    "text": (np.array(["سلام"]), "is of type <U4"),
    "zero": (np.float32(3), "has 0 dimensions, but must have 1 or 2"),
    "three": (np.zeros((1, 2, 3), "f4"), "has 3 dimensions, but must have 1 or 2"),
}


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("name", REFUSED)
def test_other_arrays_are_refused_with_what_to_do(tmp_path, name):
    array, problem = REFUSED[name]
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    assert read(tmp_path, ["a"])[0].startswith(problem)


@pytest.mark.parametrize("name,advice", [("big", ".astype('<f4')"), ("byte", ".astype('<i4')")])
def test_the_advice_helps(tmp_path, name, advice):
    array, problem = REFUSED[name]
    assert advice in problem
    np.save(tmp_path / "a.npy", eval("array" + advice))
    np.testing.assert_array_equal(read(tmp_path, ["a"])[0], array)


def literals(rng, count):
    """Headers that people or damage might write: the good one, with some words changed."""
    good = ["{", "'descr'", ":", "'<f4'", ",", "'fortran_order'", ":", "False", ",", "'shape'", ":", "(", "3", ",",
            "4", ")", ",", "}", "\n"]
    words = good + [" ", "\t", '"', '"descr"', '"<f4"', "True", "L", "0", "03", "-1", "12", "(", "u", "None", "[", "]",
                    "", " ", "  ", "\n", "\f", "\v", "1.0"]
    for _ in range(count):
        text = list(good)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(text))
            text[at:at + rng.integers(2)] = [str(rng.choice(words))]  # instead of a word, or in front of it
        yield "".join(text)


@pytest.mark.filterwarnings("ignore")  # NumPy's, about Python 2 and odd literals
def test_a_changed_header_means_what_numpy_takes_it_for_or_is_refused_by_both(tmp_path):
    rng = np.random.default_rng(5)
    headers = {str(i): text.encode() for i, text in enumerate(dict.fromkeys(literals(rng, 1000)))}
    for name, text in headers.items():
        head = b"\x93NUMPY\x02\0" + len(text).to_bytes(4, "little") + text
        (tmp_path / f"{name}.npy").write_bytes(head + bytes(range(48)))
    read_by_both = 0
    for (name, text), got in zip(headers.items(), read(tmp_path, headers)):
        if isinstance(got, np.ndarray):
            assert_same(got, np.load(tmp_path / f"{name}.npy"))
            read_by_both += 1
        else:  # then NumPy has no use for it either, or takes it for an array that we do not read
            try:
                theirs = np.load(tmp_path / f"{name}.npy")
            except Exception:  # NumPy's tokenizer has many ways to refuse
                continue
            assert theirs.ndim not in (1, 2) or theirs.dtype != "<f4" or theirs.nbytes != 48, (text, got)
    assert read_by_both > 20


def test_folders_are_found_by_their_names(tmp_path):
    for folder in ("cache/mel", "cache/tok", "features/mel"):
        (tmp_path / folder).mkdir(parents=True)
        np.save(tmp_path / folder / "LJ001-0001.npy", np.zeros(3, "f4"))
    assert run("--find", tmp_path).decode().split() == [f"{tmp_path}/cache/mel", f"{tmp_path}/cache/tok"]
