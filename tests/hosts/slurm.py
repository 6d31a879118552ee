"""A real SLURM of one node, on a host of its own: Debian's slurm-wlm and munge, without systemd, cgroups or
accounting."""

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netns import Host, run

NODE = "node1"
CONFIGURATION = """
ClusterName=stitch
SlurmctldHost={hostname}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName={node} NodeHostname={hostname} NodeAddr={address} CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be no SLURM here; None if there can."""
    programs = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "squeue")
    path = f"{os.environ['PATH']}:/usr/sbin"
    lacking = [name for name in programs if shutil.which(name, path=path) is None]
    return f"{', '.join(lacking)} missing: apt-get install slurm-wlm munge." if lacking else None


class Slurm:
    """Its commands, as they are called on its host."""

    def __init__(self, host: Host, environment: dict[str, str]):
        self.host, self.environment = host, environment

    def __call__(self, *command: str) -> str:
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return run("ip", "netns", "exec", self.host.namespace, "env", *settings, *command)

    def jobs(self, state: str = "RUNNING") -> list[str]:
        return self("squeue", "-h", "-o", "%i", "-t", state).split()


@contextmanager
def slurm(host: Host, folder: Path) -> Iterator[Slurm]:
    """SLURM on a host; its processes go with the host."""
    folder = folder / "slurm"
    for path in (folder, folder / "state", folder / "spool"):
        path.mkdir(mode=0o755)
    configuration = folder / "slurm.conf"
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # detecting it needs a mounted one; none is used
    where = {"hostname": socket.gethostname(), "address": host.address, "folder": folder, "node": NODE}
    configuration.write_text(CONFIGURATION.format(**where))
    environment = {"SLURM_CONF": str(configuration), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    made = Slurm(host, environment)
    run("mungekey", "--create", "--keyfile", str(folder / "munge.key"))
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
    files["seed-file"] = "munge.seed"
    options = [f"--{option}={folder / name}" for option, name in files.items()]
    host.start("munged", "--foreground", "--force", *options, **environment)
    _until(lambda: (folder / "munge.socket").exists(), host)
    host.start("slurmctld", "-D", "-c", **environment)
    host.start("slurmd", "-D", "-N", NODE, **environment)
    _until(lambda: "idle" in _quietly(made, "sinfo", "-h", "-o", "%T"), host)
    yield made


def _quietly(made: Slurm, *command: str) -> str:
    try:
        return made(*command)
    except RuntimeError:
        return ""


def _until(what, host: Host, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise TimeoutError(f"SLURM did not start within {seconds:.0f} s.\n{host.said()}")
        time.sleep(0.2)
