# Penstock's sampler: some fifty times a second it writes down where this process's main thread is.
#
# `penstock diagnose -- COMMAND` puts this file's folder first on PYTHONPATH, so that every Python process of the
# command imports it at its start. It must never break or slow the command: it takes under 1 % of a core, and
# whatever goes wrong ends it silently. The lines of its file, fields divided by tabs:
#
#   P  process  start (s since the epoch)  what it runs
#   F  frame    file  function  line  expression      line and expression of the user's own code
#   K  stack    frames, the innermost first
#   S  time     CPU s of the main thread so far  its stack  [stacks of other Python threads]
import sys


def _sample():
    import _thread
    import os
    import time

    folder = os.path.dirname(os.path.abspath(__file__))
    process, start = os.getpid(), time.time()
    with open("/proc/self/cmdline", "rb") as f:
        command = f.read().replace(b"\0", b" ").decode("utf-8", "replace")
    if any(name in command for name in ("resource_tracker", "forkserver", "compile_worker")):
        return  # they help the process that trains
    name = os.path.join(folder, "%d-%d.samples" % (process, int(start * 1e6)))
    out = open(name, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    main, own = _thread.get_ident(), os.path.dirname(os.__file__)
    clock = time.pthread_getcpuclockid(main)
    begun_in, frames, stacks, sources, pending = os.getcwd(), {}, {}, {}, []

    def is_users(file):
        return not (file.startswith(("<", own)) or "/site-packages/" in file or "/dist-packages/" in file)

    def one_line(text):
        return " ".join(text.split())[:160]

    def expression(code, at, file, line):
        """What the user's frame is doing: the call or the operation itself where Python knows, else the line."""
        if file not in sources:
            sources[file] = []
            try:
                with open(file, "rb") as f:
                    if os.fstat(f.fileno()).st_size < 1 << 20:
                        sources[file] = f.read().split(b"\n")
            except OSError:
                pass
        lines = sources[file]
        if not 0 < line <= len(lines):
            return "", ""
        part = b""
        if at >= 0 and hasattr(code, "co_positions"):
            for i, (first, last, left, right) in enumerate(code.co_positions()):
                if i == at // 2 and None not in (first, last, left, right) and last <= min(first + 8, len(lines)):
                    rows = lines[first - 1 : last]
                    rows[-1] = rows[-1][:right]
                    rows[0] = rows[0][left:]
                    part = b" ".join(rows)
        return one_line(part.decode("utf-8", "replace")), one_line(lines[line - 1].decode("utf-8", "replace"))

    def frame_number(frame):
        code, at = frame.f_code, frame.f_lasti
        number = frames.get((code, at))
        if number is None:
            number = frames[code, at] = len(frames)
            file, line, text = code.co_filename, frame.f_lineno or 0, ("", "")
            if is_users(file):
                if not file.startswith("<"):
                    file = os.path.join(begun_in, file)
                text = expression(code, at, file, line)
            pending.append("F\t%d\t%s\t%s\t%d\t%s\t%s\n" % (number, file, code.co_name, line, text[0], text[1]))
        return number

    def stack_number(frame):
        numbers = []
        while frame is not None and len(numbers) < 300:
            numbers.append(frame_number(frame))
            frame = frame.f_back
        key = tuple(numbers)
        number = stacks.get(key)
        if number is None:
            number = stacks[key] = len(stacks)
            pending.append("K\t%d\t%s\n" % (number, ",".join(map(str, key))))
        return number

    def flush(*_):
        if os.getpid() == process and pending:
            out.write("".join(pending))
            out.flush()
            pending.clear()

    def loop():
        sampler, jitter, flushed, cost, wait, count = _thread.get_ident(), process, start, 0.0, 0.02, 0
        while len(stacks) < 50000:
            jitter = (jitter * 1103515245 + 12345) & 0x7FFFFFFF  # against beating with the steps
            time.sleep(wait * (0.5 + jitter / 0x7FFFFFFF))
            before, now = time.thread_time(), time.time()
            current = sys._current_frames()
            frame = current.get(main)
            if frame is None:
                break
            line = "S\t%.4f\t%.4f\t%d" % (now, time.clock_gettime(clock), stack_number(frame))
            count += 1
            if count % 5 == 0 and len(current) > 2:
                others = [f for thread, f in current.items() if thread not in (main, sampler)]
                line += "\t" + ",".join(str(stack_number(f)) for f in others[:8])
            frame = current = others = None  # keeps nobody's variables alive
            pending.append(line + "\n")
            if now - flushed > 0.5:
                flush()
                flushed = now
            cost += 0.3 * (time.thread_time() - before - cost)
            wait = min(0.2, max(0.02, 200 * cost))  # half a per cent of a core

    def run():
        try:  # noqa: SIM105
            loop()
        except BaseException:
            pass

    pending.append("P\t%d\t%.4f\t%s\n" % (process, start, one_line(command)))
    flush()
    _thread.start_new_thread(run, ())
    import atexit

    atexit.register(flush)


def _go_on():
    """Makes way for the sitecustomize that this file hides."""
    import os

    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as e:
        if getattr(e, "name", None) != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


try:  # noqa: SIM105
    _sample()
except BaseException:
    pass
_go_on()
