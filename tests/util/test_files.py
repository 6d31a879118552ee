"""Files appear whole or not at all, and what is wrong with their place shows early and with its name."""

import errno

import pytest

from pymoo_stitch.util.files import check_folder, check_place, written_whole


def test_a_place_that_cannot_be_written_to_is_told(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no/folder does not exist"):
        check_place(tmp_path / "no/folder/file")
    check_folder(tmp_path / "no/folder")
    assert not (tmp_path / "no").exists()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is a file"):
        check_folder(tmp_path / "file" / "folder")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PermissionError, match="may not be written to"):
        check_place(tmp_path / "other")
    with pytest.raises(PermissionError, match="may not be written to"):
        check_folder(tmp_path / "new")


def test_errors_name_the_file_that_was_to_be_written_and_not_the_temporary_one(tmp_path):
    with pytest.raises(OSError, match="No space left") as raised, written_whole(tmp_path / "file") as temporary:
        raise OSError(errno.ENOSPC, "No space left on device", str(temporary))
    assert raised.value.filename == str(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="other"), written_whole(tmp_path / "file"):
        (tmp_path / "other").read_text()
    assert list(tmp_path.iterdir()) == []
