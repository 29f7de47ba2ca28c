"""Batches on a device: DLPack with the stream protocol, against the stand-in for CUDA's runtime."""
import ctypes
import pathlib

import numpy as np
import pytest

import penstock
from conftest import BUILD
from test_module_feed import FIELDS, SMALL, copied, same


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


def tensor_of(capsule, name=b"dltensor", kind=DLTensor):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return kind.from_address(pointer(capsule, name))


def read(tensor):
    """The stand-in's device memory can be read by the host, once it may be."""
    dtype = {(0, 32): np.int32, (0, 64): np.int64, (2, 32): np.float32, (6, 8): np.bool_}[tensor.code, tensor.bits]
    shape = tensor.shape[:tensor.ndim]
    data = ctypes.string_at(tensor.data + tensor.byte_offset, int(np.prod(shape)) * tensor.bits // 8)
    return np.frombuffer(data, dtype).reshape(shape)


@pytest.mark.parametrize("keys", [{}, {"overlap": False}, {"device_prefetch": False}])
def test_a_device_batch_is_the_hosts(tones, keys):
    host = penstock.Feed(tones, **SMALL)
    feed = penstock.Feed(tones, device="simulated", **keys, **SMALL)
    for _ in range(2 * len(feed)):
        batch, expected = feed.next(), copied(host.next())
        assert (batch.ids, batch.shape, (batch.epoch, batch.step)) == (expected["ids"], expected["shape"], expected["at"])
        for name in FIELDS:
            array = getattr(batch, name)
            assert isinstance(array, penstock.DeviceArray)
            assert array.shape == expected[name].shape and array.dtype == expected[name].dtype.name
            assert array.__dlpack_device__() == (2, 0)
            capsule = array.__dlpack__(stream=-1)  # nobody orders anything, so it has arrived
            tensor = tensor_of(capsule)
            assert (tensor.device_type, tensor.device_id, tensor.lanes) == (2, 0, 1)
            assert same(read(tensor), expected[name])
    assert feed.state() == host.state()


def test_the_protocols_arguments(tones):
    batch = penstock.Feed(tones, device="simulated", **SMALL).next()
    batch.wait()
    old, new = batch.mel.__dlpack__(), batch.mel.__dlpack__(stream=1, max_version=(1, 0))
    assert tensor_of(old).ndim == 3
    versioned = tensor_of(new, b"dltensor_versioned", Versioned)
    assert (versioned.major, versioned.flags, versioned.tensor.ndim) == (1, 0, 3)
    for refused in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError):
            batch.mel.__dlpack__(**refused)
    batch.mel.__dlpack__(dl_device=(2, 0), copy=False)
    with pytest.raises(penstock.Error, match="ambiguous"):
        batch.mel.__dlpack__(stream=0)
    with pytest.raises(TypeError):
        batch.mel.__dlpack__(1)


def test_all_buffers_held_is_an_error_and_outliving_is_none(tones):
    feed = penstock.Feed(tones, device="simulated", device_buffer_size=2, **SMALL)
    kept = [feed.next().mel, feed.next().mel]
    with pytest.raises(penstock.Error, match="device_buffer_size"):
        feed.next()
    capsule = kept[0].__dlpack__(stream=-1)
    expected = read(tensor_of(capsule)).copy()
    feed.close()
    kept.clear()
    assert same(read(tensor_of(capsule)), expected)


STANDIN = """
    import ctypes, sys, threading
    sys.path.insert(0, sys.argv[1])
    from test_module_device import read, same, tensor_of
    import numpy as np
    import penstock

    cuda = ctypes.CDLL("libcudart.so.13")  # the library that the feed loads, so its streams are ours
    HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    keep = []

    def check(result):
        assert result == 0, result

    def new_stream():
        stream = ctypes.c_void_p()
        check(cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
        return stream

    def launch(stream, act):
        keep.append(HostFunction(lambda _: act()))
        check(cuda.cudaLaunchHostFunc(stream, keep[-1], None))

    def feeds(**keys):
        keys = dict(split="all", batch_size=4, shapes=1, **keys)
        return penstock.Feed(sys.argv[2], **keys), penstock.Feed(sys.argv[2], device="cuda", **keys)
"""


@pytest.fixture
def standin(script, tones, tmp_path):
    """Runs a script for which the stand-in is CUDA. Nothing runs on it before somebody waits for it."""
    library = BUILD / "tests" / "libsimulated_cudart.so"
    if not library.exists():
        pytest.skip(f"{library} is not built (PENSTOCK_TESTS)")
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "libcudart.so.13").symlink_to(library)
    return lambda source: script(STANDIN + source, pathlib.Path(__file__).parent, tones, environment={
        "LD_LIBRARY_PATH": str(tmp_path / "cuda"), "SIMULATED_CUDART_LATEST_MS": "60000"})


@pytest.mark.parametrize("keys", ["", "overlap=False"])
def test_work_on_a_stream_sees_the_batch(standin, keys):
    standin(f"""
    host, device = feeds({keys})
    announced, other = new_stream(), new_stream()
    for step in range(6):
        expected, batch = host.next(), device.next()
        for name in ("mel", "tokens", "mel_lengths", "utterances"):
            capsule = getattr(batch, name).__dlpack__(stream=announced.value)
            tensor = tensor_of(capsule)
            seen = {{}}
            if step == 0 and name == "mel" and not {bool(keys)}:
                # A stream that the feed was not told of: the copy has not happened there. What the test can see.
                launch(other, lambda: seen.update(too_early=read(tensor)))
                check(cuda.cudaStreamSynchronize(other))
                assert not same(seen["too_early"], np.array(expected.mel))
            launch(announced, lambda: seen.update(array=read(tensor)))
            check(cuda.cudaStreamSynchronize(announced))
            assert same(seen["array"], np.array(getattr(expected, name))), name
            del capsule
    """)


def test_a_buffer_is_not_filled_again_while_a_stream_works_on_it(standin):
    standin("""
    host, device = feeds(device_buffer_size=2)
    stream = new_stream()
    for _ in range(5):
        expected, batch = np.array(host.next().mel), device.next()
        capsule = batch.mel.__dlpack__(stream=stream.value)
        tensor, go, seen = tensor_of(capsule), threading.Event(), {}
        address = tensor.data, list(tensor.shape[:3])
        launch(stream, lambda: (go.wait(), seen.update(array=read(tensor_again))))
        tensor_again = type(tensor).from_buffer_copy(tensor)  # the capsule's own goes with it
        shape = (type(tensor.shape.contents) * 3)(*address[1])
        tensor_again.shape = ctypes.cast(shape, type(tensor.shape))
        del tensor, capsule, batch  # Python lets go while the stream has not even begun
        later = device.next()  # the other buffer; then the first is wanted for the one after
        host.next()
        go.set()
        check(cuda.cudaStreamSynchronize(stream))
        assert same(seen["array"], expected)
        del later
    """)


def test_default_streams_and_devices(standin):
    standin("""
    host = penstock.Feed(sys.argv[2], split="all", batch_size=4)
    device = penstock.Feed(sys.argv[2], split="all", batch_size=4, device="cuda:1")
    check(cuda.cudaSetDevice(1))
    expected, batch = host.next(), device.next()
    assert batch.mel.__dlpack_device__() == (2, 1)
    seen = {}
    capsule = batch.mel.__dlpack__()  # the legacy default stream
    tensor = tensor_of(capsule)
    assert tensor.device_id == 1
    launch(None, lambda: seen.update(array=read(tensor)))
    check(cuda.cudaStreamSynchronize(None))
    assert same(seen["array"], np.array(expected.mel))
    try:
        batch.tokens.__dlpack__(stream=12345)
        sys.exit("a stream that is none was accepted")
    except penstock.Error as error:
        assert "cudaStreamWaitEvent" in str(error) and "invalid resource handle" in str(error)
    """)


def test_a_fork_leaves_the_device_alone(tones, script):
    script("""
    import os, sys
    import penstock
    feed = penstock.Feed(sys.argv[1], split="all", batch_size=4, device="simulated")
    batch = feed.next()
    array = batch.mel
    child = os.fork()
    if child == 0:
        assert len(batch.ids) == 4 and array.shape == batch.mel.shape
        for use in (array.__dlpack__, batch.wait, feed.next):
            try:
                use()
                os._exit(1)
            except penstock.Error as error:
                assert "through the fork" in str(error)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    array.__dlpack__(stream=-1)
    """, tones)
