"""What is looked for: every rule with its reason, its price and its cure."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("critical", "warning", "hint")  # the worst first


@dataclass(frozen=True)
class Rule:
    """`level` is the usual one; a check may give another where it knows more."""

    id: str
    level: str
    title: str
    why: str
    costs: str
    instead: str


@dataclass(frozen=True)
class Finding:
    """A place in a file. Lines, columns (in characters) and `cell`, a notebook's code cell, count from 1."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    rule: str
    level: str
    message: str
    instead: str
    code: str
    cell: int | None = None


_RULES = [
    Rule(
        "tf-python-map",
        "critical",
        "Python code for each sample inside a tf.data map",
        "tf.numpy_function and tf.py_function call the interpreter, and only one thread at a time may run it: "
        "num_parallel_calls cannot help.",
        "one interpreter call per sample, all of them one after another, in the process that also drives the training",
        "read and decode with TensorFlow's own operations (tf.io.read_file, tf.audio.decode_wav, tf.signal.stft), "
        "or take ready batches: penstock.Feed(DIR).tf()",
    ),
    Rule(
        "per-sample-audio",
        "warning",
        "audio decoded or turned into features for each sample, in Python",
        "librosa and soundfile do the same work for the same file again in every epoch, sample by sample, in Python.",
        "decoding, resampling and features of all files in each epoch; with few workers the device waits for them",
        "compute once and keep (penstock cache build DIR), or let native threads do it: penstock.Feed(DIR)",
    ),
    Rule(
        "np-load-copy",
        "hint",
        "np.load without mmap_mode for each sample",
        "np.load opens the file, parses its header and copies the whole array, also where a slice would do.",
        "an open, a header in Python and a copy per sample and epoch",
        'np.load(path, mmap_mode="r"), once per file at the start where there are not too many, or one packed file '
        "(penstock cache build DIR)",
    ),
    Rule(
        "loader-no-workers",
        "warning",
        "a DataLoader without workers",
        "With num_workers=0 samples are read and decoded on the thread that trains, between two steps.",
        "every step waits for the whole time that its batch takes to load",
        "DataLoader(..., num_workers=4, persistent_workers=True, pin_memory=True), as many as keep the device busy",
    ),
    Rule(
        "loader-not-pinned",
        "hint",
        "a DataLoader for a GPU without pinned memory",
        "A copy from pageable memory goes through a staging buffer, and .to(device, non_blocking=True) waits for it.",
        "the copy of each batch does not overlap with the step before",
        'pin_memory=True in the DataLoader, and batch.to("cuda", non_blocking=True)',
    ),
    Rule(
        "loader-not-persistent",
        "hint",
        "a DataLoader whose workers end with every epoch",
        "Without persistent_workers=True all workers are started anew when the next epoch begins.",
        "at the start of each epoch the device waits for new processes, their imports and the first batches",
        "persistent_workers=True",
    ),
    Rule(
        "dataset-no-prefetch",
        "hint",
        "a tf.data pipeline that ends without prefetch",
        "Without prefetch the next batch is only begun when the step asks for it. "
        "Recent TensorFlow adds one of its own unless the options say otherwise.",
        "loading and computing take turns instead of overlapping",
        "end the pipeline with .prefetch(tf.data.AUTOTUNE)",
    ),
    Rule(
        "prefetch-before-batch",
        "warning",
        "prefetch before batch, and none after it",
        "The buffer counts samples then, and the batch itself is still put together when the step asks for it.",
        "the step waits while its batch is collected, and copied or padded",
        ".batch(n).prefetch(tf.data.AUTOTUNE): prefetch comes last",
    ),
    Rule(
        "prefetch-to-device-not-last",
        "critical",
        "prefetch_to_device with something after it",
        "It must be the last transformation: what comes after it runs on the host and would take the data back.",
        "TensorFlow refuses to run it, or the copies to the device were for nothing",
        'move .apply(tf.data.experimental.prefetch_to_device("/gpu:0")) to the end of the pipeline',
    ),
    Rule(
        "free-remainder",
        "warning",
        "a smaller last batch goes into a compiled step",
        "The last batch of an epoch has fewer rows, and a compiled step is compiled again for another shape.",
        "one more compilation, in the middle of training: seconds to minutes in which the device does nothing",
        "drop_remainder=True in .batch(), drop_last=True in DataLoader(), or full batches only: penstock.Feed",
    ),
    Rule(
        "tf-shape-in-static-step",
        "hint",
        "tf.shape where the shape is known",
        "All dimensions are fixed here, yet tf.shape makes a tensor of them that is computed in each step, "
        "and what is built from it has an unknown shape.",
        "small operations on the host in each step, and kernels that cannot be chosen for the fixed shape",
        "x.shape[0]: a Python number when the function is traced",
    ),
    Rule(
        "python-number-argument",
        "critical",
        "a Python number that changes is an argument of a compiled function",
        "A Python number is part of the compiled function's key: every new value is a new function.",
        "a new trace, or a compilation, for every value: often more than the step itself",
        "pass a tensor: tf.constant(step, tf.int64), jnp.asarray(step), torch.tensor(step)",
    ),
    Rule(
        "print-under-jit",
        "warning",
        "printing inside a compiled function",
        "Printing needs the host in the middle of the compiled step.",
        "the device waits for the host in each step, or the step falls apart into several graphs",
        "return the value and print it outside, every N steps",
    ),
    Rule(
        "host-sync-every-step",
        "warning",
        "the host waits for the device in each step",
        "Reading a value makes Python wait until the device has finished all work in its queue.",
        "the queue runs empty in each step: the device idles while Python prepares the next one",
        "keep it on the device (total += loss.detach()) and read it every N steps: if step % 100 == 0: ...",
    ),
    Rule(
        "cleanup-in-loop",
        "critical",
        "clearing caches or collecting garbage in each step",
        "The framework's caches exist so that the next step need not ask the driver or the compiler again.",
        "allocations, compilations or a walk over all Python objects in each step",
        "leave it out; once per epoch is enough where it is needed at all",
    ),
    Rule(
        "plot-in-loop",
        "critical",
        "plots or audio made on the training thread in each step",
        "Drawing a figure or writing audio is host work, and the next step is only launched after it.",
        "tens to hundreds of milliseconds per step in which the device has nothing to do",
        "every N steps at most, or in another process from saved arrays",
    ),
    Rule(
        "checkpoint-every-step",
        "critical",
        "a checkpoint in each step",
        "Saving copies all weights to the host and writes them while training waits.",
        "the time to copy and write the whole model, in every step",
        "every N steps or minutes: if step % 1000 == 0: ...",
    ),
]
RULES = {rule.id: rule for rule in _RULES}
