"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXPORTED = (".pt2", ".onnx")
"""How the names of exported networks end."""


def check_exported(path: str | os.PathLike) -> None:
    """Raise a ValueError unless the file of an exported network may have this name."""
    if Path(path).suffix not in EXPORTED:
        raise ValueError(
            f"an exported network's file ends in {' or '.join(EXPORTED)}, but {os.fspath(path)!r} is given."
        )


def check_place(path: str | os.PathLike) -> Path:
    """The resolved path of a file whose folder can be written to."""
    path = Path(path).resolve()  # what a link points to is replaced, not the link
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot save to {path}: the folder {path.parent} does not exist.")
    if path.is_dir():
        raise IsADirectoryError(f"cannot save to {path}: it is a folder. Name a file in it.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot save to {path}: the folder {path.parent} may not be written to.")
    return path


def check_folder(path: str | os.PathLike) -> None:
    """Raise an error if this cannot be a folder to write to."""
    path = Path(path).resolve()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"cannot write to the folder {path}: {there} is a file.")
    if not os.access(there, os.W_OK):
        raise PermissionError(f"cannot write to the folder {path}: {there} may not be written to.")


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary file beside `path`, to be written inside and put in place if that succeeds. If it fails, nothing of
    it stays, and an earlier file is unchanged."""
    path = check_place(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # what the user's umask gives; safetensors would make it unreadable for others
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None or Path(error.filename) != temporary:
            raise
        # the temporary file means nothing to the user
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def no_constant(value: str) -> None:
    raise ValueError(f"it holds the number {value}")
