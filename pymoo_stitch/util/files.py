"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXPORTED = (".pt2", ".onnx")
"""How the names of exported networks end."""


def check_exported(path: str | os.PathLike) -> None:
    """A ValueError unless this is how the file of an exported network may be called."""
    if Path(path).suffix not in EXPORTED:
        raise ValueError(
            f"an exported network's file ends in {' or '.join(EXPORTED)}, but {os.fspath(path)!r} is given."
        )


def check_place(path: str | os.PathLike) -> Path:
    """The path of a file that can be written, as far as its folder tells."""
    path = Path(path).resolve()  # what a link points to is replaced, not the link
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot save to {path}: the folder {path.parent} does not exist.")
    if path.is_dir():
        raise IsADirectoryError(f"cannot save to {path}: it is a folder. Name a file in it.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot save to {path}: the folder {path.parent} may not be written to.")
    return path


def check_folder(path: str | os.PathLike) -> None:
    """An error if there can be no folder of this name to write to."""
    path = Path(path).resolve()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"cannot write to the folder {path}: {there} is a file.")
    if not os.access(there, os.W_OK):
        raise PermissionError(f"cannot write to the folder {path}: {there} may not be written to.")


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
    except OSError as error:
        if error.filename is None or Path(error.filename) != temporary:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error  # nobody knows the temporary file
    finally:
        temporary.unlink(missing_ok=True)


def no_constant(value: str) -> None:
    raise ValueError(f"it holds the number {value}")
