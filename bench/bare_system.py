"""A bare Debian: a tree that debootstrap makes once and every run copies, or a container. Commands run in a clone inside it, with this machine's
package settings and nothing else of it.

As a program it is the part that needs root: it reads a Job as a line of JSON, ends when its input ends, and leaves nothing mounted, running or
written, however it or its parent was ended; a copy that kill -9 left is removed by the next run."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import host_settings

PACKAGES = ["git", "python3", "g++", "ca-certificates"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = "penstock"
ISOLATED = "setpriv --pdeathsig KILL -- unshare --mount --pid --fork --kill-child".split()

# With the settings, the bundle and this script in /given. A command's lines come between `$ COMMAND` and `$ COMMAND: exit code N`.
PREPARE = r"""set -eu
tar -C /given/settings -cf - . | tar -C / -xf - --no-overwrite-dir --no-same-owner
command -v git >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends {packages} >/dev/null; }
update-ca-certificates >/dev/null 2>&1 || true
if [ "$USER" != root ]; then
  useradd --create-home --shell /bin/bash "$USER"
  echo 'Defaults env_keep += "http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY"' >/etc/sudoers.d/fresh
  echo "$USER ALL=(ALL) NOPASSWD: ALL" >>/etc/sudoers.d/fresh
fi
git -c advice.detachedHead=false clone -q /given/penstock.bundle "$HOME/penstock"
git -C "$HOME/penstock" remote remove origin
chown -R "$USER:$USER" "$HOME"
cd "$HOME/penstock"
echo "bare system: $(. /etc/os-release && echo "$PRETTY_NAME"), $(g++ --version | head -1), $(python3 --version), as $USER"
code=0
"""
COMMAND = """
if [ $code -eq 0 ]; then
  echo {shown}
  setpriv --reuid "$USER" --regid "$USER" --init-groups -- bash -c {command} </dev/null 2>&1 || code=$?
  echo {shown}": exit code $code"
fi
"""

# Run as the first process of its own namespaces: ROOT GIVEN. Devices are this machine's plain ones; terminals and shared memory are its own.
ENTER = """set -eu
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
  : >"$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "$root/dev/${number#*:}"; done
mkdir "$root/given" "$root/old"
mount --bind "$2" "$root/given"
mount -o remount,bind,ro "$root/given"
cd "$root"
pivot_root . old  # not chroot, in which browsers may not make their sandbox
umount -l /old
rmdir /old
exec sh /given/script
"""


class Unavailable(RuntimeError):
    """What is missing, and what to do about it."""


def job(folder, suite, commands, user=False, keep=False):
    """What the part with root is told. `folder` is for the base and the copies."""
    kept = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "TERM") if name in os.environ}
    return {"folder": str(folder), "suite": suite, "commands": commands, "user": USER if user else "root", "keep": keep,
            "environ": {**kept, **host_settings.variables(os.environ)}}


def home(user):
    return "/root" if user == "root" else f"/home/{user}"


def environment(task):
    """All that a command inside finds in its environment."""
    return {"HOME": home(task["user"]), "USER": task["user"], "PATH": PATH, "LANG": "C.UTF-8", "TERM": task["environ"].get("TERM", "dumb"),
            **host_settings.variables(task["environ"])}


def packages(task):
    return PACKAGES + ([] if task["user"] == "root" else ["sudo"])


def script(task):
    commands = (COMMAND.format(shown=shlex.quote(f"$ {command}"), command=shlex.quote(command)) for command in task["commands"])
    return PREPARE.replace("{packages}", " ".join(packages(task))) + "".join(commands) + "exit $code\n"


def write_given(given, task, bundle):
    """The folder that is /given inside."""
    os.umask(0o022)
    (given / "settings").mkdir(parents=True)
    for remark in host_settings.write_settings(given / "settings", task["suite"], task["environ"], home(task["user"])):
        print(remark, flush=True)
    shutil.copy(bundle, given / "penstock.bundle")
    (given / "script").write_text(script(task))


# ---- with root: a tree by debootstrap ----

def part(name, function, *arguments):
    """As `run` shows its parts."""
    start = time.monotonic()
    print(f"── {name}", flush=True)
    result = function(*arguments)
    print(f"── {name}: {time.monotonic() - start:.0f} s", flush=True)
    return result


class Isolated:
    """A process in mount and process namespaces of its own, which end with it: with Isolated(command) as process: process.wait()."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen([*ISOLATED, *command], stdin=subprocess.DEVNULL, start_new_session=True, **options)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        while self.process.poll() is None:  # the first process inside takes all others with it, and unshare waits for that
            first = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            for pid in first or [self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)


def make_base(base, task):
    """Made beside its name and then given it, so that a base is never half of one."""
    making, log, suite = base.with_name(f"making-{os.getpid()}"), base.with_name("debootstrap.log"), task["suite"]
    making.mkdir()
    address, keyring = host_settings.mirror(host_settings.sources_here(suite), suite)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages(task))}", *([f"--keyring={keyring}"] if keyring else []),
               suite, str(making), *([address] if address else [])]
    try:
        with open(log, "w") as output, Isolated(command, stdout=output, stderr=output, env={**os.environ, "PATH": PATH}) as process:
            if process.wait() != 0:
                raise Unavailable(f"debootstrap failed; {log} ends with\n{log.read_text()[-1000:]}")
        shutil.rmtree(making / "var/cache/apt/archives", ignore_errors=True)
        (making / "var/cache/apt/archives/partial").mkdir(parents=True)
        making.rename(base)
    finally:
        remove(making)


def remove(folder):
    subprocess.run(["rm", "-rf", "--one-file-system", folder], check=True)


def remove_abandoned(folder):
    """What ended processes left: their names have their numbers."""
    for old in folder.iterdir():
        owner = re.fullmatch(r"(?:run|making|bundle)-(\d+)", old.name)
        if owner and not pathlib.Path("/proc", owner[1]).exists():
            remove(old)


def copy_base(base, run, task):
    run.mkdir()
    subprocess.run(["cp", "-a", "--reflink=auto", base, run / "root"], check=True)
    write_given(run / "given", task, task["bundle"])


def in_tree(task):
    """The exit code of the first command that failed, or 0."""
    folder = pathlib.Path(task["folder"])
    base, run = folder / f"{task['suite']}-{'-'.join(packages(task))}", folder / f"run-{os.getpid()}"
    os.environ.update(host_settings.variables(task["environ"]))  # for debootstrap; sudo takes them away
    remove_abandoned(folder)
    if not base.exists():
        part(f"a bare {task['suite']}", make_base, base, task)
    try:
        part("a copy of it", copy_base, base, run, task)
        command = ["env", "-i", *(f"{name}={value}" for name, value in environment(task).items()),
                   "sh", "-c", ENTER, "enter", str(run / "root"), str(run / "given")]
        with Isolated(command, cwd="/") as process:
            return process.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if task["keep"] and run.exists():
            kept = run.rename(folder / time.strftime("kept-%Y%m%d-%H%M%S"))
            print(f"kept: {kept / 'root'}", flush=True)
        remove(run)
        remove(pathlib.Path(task["bundle"]).parent)  # whose maker may have been killed


def main():
    def stop(*_):
        sys.exit(130)

    def stop_with_input():
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    task = json.loads(sys.stdin.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    threading.Thread(target=stop_with_input, daemon=True).start()
    try:
        return in_tree(task)
    except Unavailable as error:
        print(error, flush=True)
        return 2


# ---- without root ----

NO_ROOT = """A bare system needs root, sudo or a container engine, and none of them is here. Ask an administrator for
    apt-get install sudo debootstrap && usermod -aG sudo {user}
or do the same where there are containers, in this folder:
    docker run --rm -v "$PWD":/source:ro debian:{suite} sh -c 'apt-get update && apt-get install -y --no-install-recommends {packages} && \\
      git config --global --add safe.directory "*" && git clone /source penstock && cd penstock && {commands}'"""


def no_root(task):
    return NO_ROOT.format(user=os.environ.get("USER", "NAME"), suite=task["suite"], packages=" ".join(PACKAGES), commands=" && ".join(task["commands"]))


def works(*command):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def way(task):
    """How a bare system can be had here: as "root", with "sudo", by "docker" or "podman". Where it cannot, Unavailable says what to do."""
    found = "root" if os.geteuid() == 0 else next((name for name, *rest in (("sudo", "true"), ("docker", "info"), ("podman", "info"))
                                                   if shutil.which(name) and works(name, *rest)), "")
    if not found:
        raise Unavailable(no_root(task))
    if found in ("root", "sudo") and not shutil.which("debootstrap", path=PATH):
        raise Unavailable("debootstrap is missing; as root: apt-get install debootstrap")
    return found


def container_command(name, task, given):
    """Never tried: no engine runs where the project is made."""
    variables = (f"--env={key}={value}" for key, value in environment(task).items())
    return [name, "run", "--rm", "--init", *variables, f"--volume={given}:/given:ro", f"debian:{task['suite']}", "sh", "/given/script"]


def start(how, task, bundle):
    """A process that runs the task, shows it on its output, and ends when its input ends."""
    if how in ("root", "sudo"):
        command = [*([how] if how == "sudo" else []), sys.executable, "-B", os.path.abspath(__file__)]
    else:
        given = pathlib.Path(bundle).with_name("given")
        write_given(given, task, bundle)
        command = container_command(how, task, given)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if how in ("root", "sudo"):
        process.stdin.write(json.dumps({**task, "bundle": str(bundle)}) + "\n")
        process.stdin.flush()
    return process


if __name__ == "__main__":
    sys.exit(main())
