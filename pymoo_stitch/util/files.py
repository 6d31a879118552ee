"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_place(path: str | os.PathLike) -> Path:
    """The path of a file that can be written, as far as its folder tells."""
    path = Path(path).resolve()  # what a link points to is replaced, not the link
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot save to {path}: the folder {path.parent} does not exist.")
    if path.is_dir():
        raise IsADirectoryError(f"cannot save to {path}: it is a folder. Name a file in it.")
    return path


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary file beside `path`, to be written inside and put in place when that has gone well. If not, nothing of
    it stays, and a file that was there before is as it was."""
    path = check_place(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # what the user's umask gives; safetensors would let nobody else read it
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def no_constant(value: str) -> None:
    raise ValueError(f"it holds the number {value}")
