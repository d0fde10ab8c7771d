"""The commit of the code: what counts as a change, and where there is none."""

import subprocess

import pytest

from spnb.core.params import ParamError
from spnb.train import provenance


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit in the place of the project's."""
    monkeypatch.setattr("spnb.train.provenance.ROOT", tmp_path)
    monkeypatch.setattr("spnb.core.paths.ROOT", tmp_path)
    for folder in ("figures", "notebooks", "spnb"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("one")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


def test_exhibits_and_notebooks_may_change_and_code_may_not(repository):
    clean = provenance.commit()
    assert len(clean) == 40 and provenance.unclean() == ""
    for folder in ("figures", "notebooks"):
        (repository / folder / "file").write_text("two")
    (repository / "spnb" / "untracked").write_text("x")
    assert provenance.commit() == clean and provenance.unclean() == ""
    (repository / "spnb" / "file").write_text("two")
    assert provenance.commit() == f"{clean}-dirty"
    assert provenance.unclean() == f"The code has changes since commit {clean[:9]}."


def test_no_repository_or_another_one_is_no_commit(repository, tmp_path, monkeypatch):
    monkeypatch.setattr("spnb.train.provenance.ROOT", repository / "spnb")
    assert provenance.commit() is None and "no git repository" in provenance.unclean()


def test_exhibits_go_where_they_may(repository):
    folder = provenance.exhibit_folder
    assert folder(None, "") == repository / "figures"
    assert folder(None, "No.") == repository / "runs/figures"
    assert folder("mine", "No.") == repository / "mine"
    assert folder("figures", "") == repository / "figures"
    (repository / "link").symlink_to(repository / "figures")
    for named in ("figures", "figures/spiral", "link"):
        with pytest.raises(ParamError, match=f"figures is '{named}'.*allowed: another.*No[.]"):
            folder(named, "No.")
