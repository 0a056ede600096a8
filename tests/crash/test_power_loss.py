"""The power goes at every sync, on a real SQLite file; what was acknowledged is there afterwards.

INDELIBLE_FULL_SWEEPS=1 tries every cut, and more remains of each.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import pytest

from indelible.core import snapshots
from indelible.stores import mounts, sqlite_file
from indelible.stores.sqlite import SqliteStore
from indelible.testing.powerloss import CutDisk, Fate, Model, Report, cut_everywhere
from tests.crash.charging_agent import FULL, to_the_end
from tests.figures import tell


@pytest.fixture
def busy_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and snapshots come often, so that a short run meets many of them."""
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_PAGES", 8)
    monkeypatch.setattr(snapshots, "FIRST_AFTER_BYTES", 300)


@pytest.fixture
def without_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system: a rollback journal in place of a write-ahead log."""
    monkeypatch.setattr(mounts, "fstype_at", lambda path: "nfs")


def swept(folder: Path, model: Model) -> Report:
    model = model._replace(stride=1, torn=6) if FULL else model
    report = cut_everywhere(to_the_end, str(folder), model)
    tell(f"{model}: {report}")
    return report


def holds(folder: Path, model: Model, *, cuts: int) -> None:
    report = swept(folder, model)
    assert not report.problems, "\n".join(report.problems[:20])
    assert report.losses == 0
    assert report.cuts >= cuts
    assert report.images >= 3 * report.cuts


@pytest.mark.usefixtures("busy_files")
class TestFullDurability:
    def test_a_cut_at_every_sync(self, tmp_path: Path) -> None:
        """B94, B86: appends, claims, snapshots and deeds that were acknowledged survive; no deed is repeated."""
        holds(tmp_path, Model(torn=1), cuts=40)

    def test_a_disk_that_damages_the_sectors_it_was_writing(self, tmp_path: Path) -> None:
        """B94: without powersafe overwrite a cut may spoil the rest of a sector."""
        holds(tmp_path, Model(powersafe=False, sector=512, torn=2, stride=6), cuts=8)
        holds(tmp_path, Model(powersafe=False, sector=4096, torn=2, stride=10), cuts=5)

    def test_a_cut_at_any_change(self, tmp_path: Path) -> None:
        """B94: also between two writes of one transaction, and before a log or journal is deleted."""
        holds(tmp_path, Model(every_change=True, torn=1, stride=19), cuts=12)

    @pytest.mark.parametrize("failed", [1, 2, 5])
    def test_a_sync_that_fails_and_a_cut_soon_after(self, tmp_path: Path, failed: int) -> None:
        """B94, B86: a disk that forgets what it failed to sync, and reports the next sync as good."""
        holds(tmp_path, Model(failed=failed, torn=1, stride=7), cuts=8)

    @pytest.mark.usefixtures("without_log")
    @pytest.mark.filterwarnings("ignore::indelible.stores.sqlite_file.NetworkStoreWarning")
    def test_without_a_write_ahead_log(self, tmp_path: Path) -> None:
        """B94: with a rollback journal, whose deletion is the commit."""
        holds(tmp_path, Model(torn=1, stride=6), cuts=10)
        holds(tmp_path, Model(every_change=True, powersafe=False, sector=512, torn=1, stride=97), cuts=4)


class TestDurabilityOfTheOperatingSystem:
    @pytest.mark.parametrize("pages", [8, 1000])
    def test_what_is_left_is_a_prefix(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int) -> None:
        """B94: durability="os" may lose the last moments, never one in the middle; the run goes on from there."""
        monkeypatch.setattr(sqlite_file, "CHECKPOINT_PAGES", pages)
        report = swept(tmp_path, Model(durability="os", every_change=True, torn=1, stride=13))
        assert not report.problems, "\n".join(report.problems[:20])
        assert report.lossy_images > 0, "no cut lost anything: the test has lost its teeth"
        assert report.cuts >= 10


class TestTheSweepItself:
    @pytest.mark.usefixtures("busy_files")
    def test_it_finds_a_store_that_syncs_too_little(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sweep would notice if a store that promises full durability did not keep it."""
        configure = sqlite_file.SqliteFile._configure

        def lax(self: sqlite_file.SqliteFile, con: apsw.Connection) -> None:
            configure(self, con)
            con.pragma("synchronous", "normal")

        monkeypatch.setattr(sqlite_file.SqliteFile, "_configure", lax)
        report = cut_everywhere(to_the_end, str(tmp_path), Model(torn=0, stride=2))
        found = "\n".join(report.problems)
        assert "lost: events" in found
        assert "was done 2 times" in found

    def test_it_finds_torn_pages(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without any sync the model disk leaves files that SQLite itself calls damaged."""
        configure = sqlite_file.SqliteFile._configure

        def careless(self: sqlite_file.SqliteFile, con: apsw.Connection) -> None:
            configure(self, con)
            con.pragma("synchronous", "off")

        monkeypatch.setattr(sqlite_file.SqliteFile, "_configure", careless)
        monkeypatch.setattr(sqlite_file, "CHECKPOINT_PAGES", 8)
        report = cut_everywhere(to_the_end, str(tmp_path), Model(every_change=True, torn=2, stride=25))
        assert any("JournalDamaged" in problem for problem in report.problems)

    def test_what_was_synced_is_in_every_image(self, tmp_path: Path) -> None:
        path, image = tmp_path / "agent.db", tmp_path / "image"
        image.mkdir()
        with CutDisk(10_000) as disk:
            store = SqliteStore(str(path), vfs=disk.name)
            store.claim("r", "me", 30.0)
            for fate in Fate:
                for seed in range(3):
                    for file in image.iterdir():
                        file.unlink()
                    disk.image(str(image), fate, seed)
                    copy = SqliteStore(str(image / "agent.db"))
                    assert copy.claim("r", "me", 30.0) == 1
                    copy.close()
            store.close()


def test_the_name_of_a_new_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B94: the folder is synced before a new store is announced, or the whole file could be gone."""
    synced: list[int] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            synced.append(found.st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    SqliteStore(str(tmp_path / "agent.db")).close()
    assert synced == [tmp_path.stat().st_ino]
