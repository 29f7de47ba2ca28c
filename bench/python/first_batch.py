"""How long a new process waits for its first batch: `first_batch.py DATA`. One JSON line is the result, in milliseconds."""

import json
import sys
import time

start = time.perf_counter()
import penstock  # noqa: E402

imported = time.perf_counter()
batch = penstock.Feed(sys.argv[1], batch_size=16, split="all").next()
done = time.perf_counter()
assert batch.mel.shape[0] == len(batch.ids) == 16 and batch.mel_lengths.min() > 0
print(json.dumps({"import_ms": (imported - start) * 1e3, "first_batch_ms": (done - imported) * 1e3}))
