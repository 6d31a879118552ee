"""Hosts on one machine: network namespaces, each with an address of its own, joined by a bridge in a further one.

Whatever is made carries the number of this process in its name, and goes with `hosts()`, also after a failure. What a
process that was killed has left is removed by the next one."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "stitch"
NETWORK = "10.26.0"
WIRE = Path(__file__).with_name("wire.py")
LIFETIME = 1_200
"""Seconds after which any process on a host is killed, whatever happens to the tests."""


def missing() -> str | None:
    """Why there can be no hosts here, as a sentence; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root."
    if lacking := [name for name in ("ip", "ss", "setpriv", "timeout") if shutil.which(name) is None]:
        return f"{' and '.join(lacking)} missing: apt-get install iproute2 util-linux coreutils."
    probe = f"{PREFIX}-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespace can be made here: {made.stderr.strip()}"
    run("ip", "netns", "del", probe)
    return None


def run(*command: str) -> str:
    """What a command prints; an error with what it says if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Host:
    """A namespace with an interface `eth0`, plugged into a port of the switch."""

    name: str
    address: str
    namespace: str
    switch: str
    folder: Path
    started: list[subprocess.Popen] = field(default_factory=list)
    _wire: subprocess.Popen | None = None

    @property
    def port(self) -> str:
        return f"port{self.address.rpartition('.')[2]}"

    def start(self, *command: str, **environment: str) -> subprocess.Popen:
        """A process on this host that ends with this one, and after `LIFETIME`; its output goes to a file of the
        folder."""
        log = self.folder / f"{self.name}-{len(self.started)}.log"
        within = ["ip", "netns", "exec", self.namespace, "setpriv", "--pdeathsig", "KILL"]
        settings = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "STITCH_HOST": self.name}
        with open(log, "w") as out:
            process = subprocess.Popen(
                [*within, "timeout", "--signal", "KILL", str(LIFETIME), *command],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | settings | environment,
                cwd=self.folder,
            )
        self.started.append(process)
        return process

    def said(self) -> str:
        """What its processes have written so far."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob(f"{self.name}-*.log")))

    def cut(self) -> None:
        """Unplug it from the switch. Its own interface notices nothing: what it sends is lost."""
        run("ip", "-n", self.switch, "link", "set", self.port, "nomaster")

    def restore(self) -> None:
        run("ip", "-n", self.switch, "link", "set", self.port, "master", "bridge")

    def impair(self, delay: float, loss: float) -> None:
        """Delay what it sends by so many seconds, and lose this part of it: a process of its own becomes the cable to
        the switch."""
        cable, plug = f"cable{self.port}", f"plug{self.port}"
        run("ip", "-n", self.switch, "link", "add", cable, "type", "veth", "peer", "name", plug)
        for interface in (cable, plug):
            run("ip", "-n", self.switch, "link", "set", interface, "up")
        self.cut()
        run("ip", "-n", self.switch, "link", "set", plug, "master", "bridge")
        within = ["ip", "netns", "exec", self.switch, "setpriv", "--pdeathsig", "KILL"]
        command = [*within, sys.executable, str(WIRE), self.port, cable, str(delay), str(loss)]
        self._wire = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self._wire.stdout.readline() != "ready\n":
            raise RuntimeError("there is no bad wire: see above.")

    def unimpair(self) -> None:
        assert self._wire.poll() is None, "the wire broke"
        self._wire.kill()
        self._wire.communicate()
        run("ip", "-n", self.switch, "link", "del", f"cable{self.port}")
        self.restore()

    def pids(self) -> list[int]:
        return [int(pid) for pid in run("ip", "netns", "pids", self.namespace).split()]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process on it."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """Kill all that runs on it."""
        until = time.monotonic() + 10
        while self.pids() and time.monotonic() < until:
            self.signal(signal.SIGKILL)
            time.sleep(0.05)
        for process in self.started:
            process.wait(timeout=10)

    def listening(self) -> set[str]:
        """The addresses on which something listens."""
        lines = run("ip", "netns", "exec", self.namespace, "ss", "-Htln").splitlines()
        return {line.split()[3].rpartition(":")[0] for line in lines}


@contextmanager
def hosts(folder: Path, **addresses: int) -> Iterator[dict[str, Host]]:
    """Hosts by name, with the last number of their address; all that runs on them ends with this."""
    _remove_left()
    own = f"{PREFIX}-{os.getpid()}"
    switch = f"{own}-switch"
    made: dict[str, Host] = {}
    try:
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "stp_state", "0")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for name, last in addresses.items():
            host = Host(name, f"{NETWORK}.{last}", f"{own}-{name}", switch, folder)
            run("ip", "netns", "add", host.namespace)
            made[name] = host
            peer = ["peer", "name", "eth0", "netns", host.namespace]
            run("ip", "-n", switch, "link", "add", host.port, "type", "veth", *peer)
            run("ip", "-n", switch, "link", "set", host.port, "master", "bridge", "up")
            run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                run("ip", "-n", host.namespace, "link", "set", interface, "up")
        yield made
    finally:
        for host in made.values():
            host.end()
        _remove(own)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A folder with so much room."""
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size}", f"{PREFIX}-{os.getpid()}", str(folder))
    try:
        yield folder
    finally:
        run("umount", "--lazy", str(folder))


def _remove(own: str) -> None:
    for line in run("ip", "netns", "list").splitlines():
        if (name := line.split()[0]).startswith(f"{own}-"):
            for pid in run("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "del", name)


def _remove_left() -> None:
    """Remove what processes that are no more have left."""
    names = [line.split()[0] for line in run("ip", "netns", "list").splitlines()]
    owners = {name.split("-")[1] for name in names if name.startswith(f"{PREFIX}-")}
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    owners |= {source.split("-")[1] for source, *_ in mounts if source.startswith(f"{PREFIX}-")}
    for owner in owners:
        if not Path(f"/proc/{owner}").exists():
            for source, folder, *_ in mounts:
                if source == f"{PREFIX}-{owner}":
                    run("umount", "--lazy", folder)
            _remove(f"{PREFIX}-{owner}")
