"""Delivery: the mail that is written, whether it can be found again, and what is never shown."""

from __future__ import annotations

import email
import email.policy
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from indelible.agents import delivery
from indelible.agents.delivery import (
    compose,
    count_in_maildir,
    deliver_maildir,
    deliver_smtp,
    in_maildir,
    message_id,
    parse_delivery,
)
from indelible.errors import DidNotHappen, Misuse

REPORT, TO, SUBJECT = "Herons stand on one leg.\n", "agent@localhost", "Herons"


def test_a_mail_in_a_maildir_can_be_read_and_found(tmp_path: Path) -> None:
    """B03: the probe finds what was delivered, and only that."""
    box = str(tmp_path / "out")
    assert in_maildir(REPORT, TO, SUBJECT, key="k1", maildir=box) is None
    sent = deliver_maildir(REPORT, TO, SUBJECT, key="k1", maildir=box)
    assert sent == message_id("k1")
    assert in_maildir(REPORT, TO, SUBJECT, key="k1", maildir=box) == sent
    assert in_maildir(REPORT, TO, SUBJECT, key="k2", maildir=box) is None
    (path,) = (tmp_path / "out" / "new").iterdir()
    mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert (mail["To"], mail["Subject"], mail["Message-ID"]) == (TO, SUBJECT, sent)
    assert mail.get_content() == REPORT
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "out" / "tmp").iterdir()) == []


def test_a_mail_that_a_reader_moved_and_renamed_is_still_found(tmp_path: Path) -> None:
    sent = deliver_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path))
    (path,) = (tmp_path / "new").iterdir()
    path.rename(tmp_path / "cur" / "1700000000.other.host:2,S")
    assert in_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path)) == sent
    assert count_in_maildir(str(tmp_path), key="k") == 1


def test_a_mail_in_tmp_was_not_delivered_and_does_not_stand_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B03: a process that died before the rename delivered nothing; the next attempt delivers one mail."""

    def die(source: object, target: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            deliver_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path))
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    assert in_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path)) is None
    deliver_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path))
    assert count_in_maildir(str(tmp_path), key="k") == 1


def test_delivering_twice_is_seen_as_two(tmp_path: Path) -> None:
    """Evidence that would count 1 after two deliveries would be worth nothing."""
    for _ in range(2):
        deliver_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path))
    assert count_in_maildir(str(tmp_path), key="k") == 2


@pytest.mark.parametrize(
    "text", ["plain", "é 漢 🎉", "lone \ud800 surrogate", "nul \0 here", "line\n.\nFrom x\r\nend", ""]
)
def test_any_report_and_subject_make_a_valid_mail(text: str) -> None:
    raw = compose(text, TO, f"{text}\nBcc: evil@example.org", key="k\ud800\n")
    assert raw == compose(text, TO, f"{text}\nBcc: evil@example.org", key="k\ud800\n")
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert mail["Bcc"] is None
    assert mail["Message-ID"] == message_id("k\ud800\n")
    assert mail.get_content_type() == "text/plain"
    expected = text.replace("\ud800", "?").replace("\0", "\N{REPLACEMENT CHARACTER}").replace("\r\n", "\n")
    assert mail.get_content().rstrip("\n") == expected.rstrip("\n")


def test_a_maildir_that_cannot_be_written_is_a_clean_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DidNotHappen):
        deliver_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path / "file" / "box"))


def test_a_failed_rename_is_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        deliver_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path))


def test_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    box = parse_delivery("maildir:out/")
    assert (box.to, box.maildir) == ("you@localhost", str(tmp_path / "out"))
    mail = parse_delivery("smtp://bob:s3cret@mail.example.org:2525?to=ann%40example.org")
    assert mail.to == "ann@example.org"
    assert mail.label == "smtp://mail.example.org:2525"
    assert "s3cret" not in repr(mail) + mail.label


@pytest.mark.parametrize(
    ("spec", "to", "says"),
    [
        ("maildir:", None, "no folder"),
        ("maildir:missing/out", None, "does not exist"),
        ("smtp://bob:s3cret@host", None, "no recipient"),
        ("smtp://bob:s3cret@host", "not an address", "not a mail address"),
        ("smtp://bob:s3cret@host", "a@b\nBcc: c@d", "not a mail address"),
        ("smtp://bob:s3cret@:25?to=a@b", None, "no host"),
        ("smtp://bob:s3cret@host:port", "a@b", "no valid port"),
        ("bob:s3cret@host", "a@b", "neither"),
        ("", None, "neither"),
    ],
)
def test_bad_specs_say_what_is_wrong_and_nothing_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, to: str | None, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=says) as caught:
        parse_delivery(spec, to)
    assert "s3cret" not in str(caught.value)
    assert caught.value.hint


@contextmanager
def smtp_server(answers: dict[str, bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A mail server for one connection. `answers` replaces its replies by verb; an empty reply hangs up."""
    usual = {
        "EHLO": b"250 ok",
        "MAIL": b"250 ok",
        "RCPT": b"250 ok",
        "DATA": b"354 go",
        ".": b"250 taken",
        "RSET": b"250",
    }
    replies = usual | answers
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as stream:
                stream.write(b"220 hello\r\n")
                stream.flush()
                in_data = False
                for line in stream:
                    received.append(line)
                    if in_data and line != b".\r\n":
                        continue
                    verb = "." if in_data else line[:4].decode().strip().upper()
                    in_data = verb == "DATA" and replies[verb].startswith(b"354")
                    reply = replies.get(verb, b"500 what")
                    if not reply:
                        return
                    stream.write(reply + b"\r\n")
                    stream.flush()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"smtp://127.0.0.1:{listener.getsockname()[1]}", received
        thread.join(5)
        assert not thread.is_alive()


def test_smtp_sends_the_mail() -> None:
    with smtp_server({}) as (url, received):
        assert deliver_smtp(REPORT, TO, SUBJECT, key="k", url=url) == message_id("k")
    assert f"Message-ID: {message_id('k')}\r\n".encode() in received


@pytest.mark.parametrize(
    "answers", [{"RCPT": b"550 no such user"}, {"MAIL": b"550 not you"}, {".": b"554 spam"}, {"DATA": b"451 later"}]
)
def test_a_refusal_is_clean(answers: dict[str, bytes]) -> None:
    with smtp_server(answers) as (url, _), pytest.raises(DidNotHappen, match="refused the mail"):
        deliver_smtp(REPORT, TO, SUBJECT, key="k", url=url)


def test_a_connection_lost_after_the_mail_was_sent_is_in_doubt() -> None:
    """B03: nobody knows whether the server took the mail, so this must not pass for a clean failure."""
    with smtp_server({".": b""}) as (url, _), pytest.raises(OSError, match="closed"):
        deliver_smtp(REPORT, TO, SUBJECT, key="k", url=url)


def test_no_server_is_a_clean_failure_without_the_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DidNotHappen) as caught:
        deliver_smtp(REPORT, TO, SUBJECT, key="k", url=f"smtp://bob:s3cret@127.0.0.1:{port}")
    assert "s3cret" not in str(caught.value)


def test_a_password_does_not_travel_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_is_loopback", lambda _: False)
    with smtp_server({"AUTH": b"235 ok"}) as (url, received), pytest.raises(DidNotHappen):
        deliver_smtp(REPORT, TO, SUBJECT, key="k", url=url.replace("smtp://", "smtp://bob:s3cret@"))
    assert not [line for line in received if line.startswith(b"AUTH")]


def test_the_probe_changes_nothing(tmp_path: Path) -> None:
    deliver_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path))
    (tmp_path / "new" / "noise").write_bytes(os.urandom(64))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert in_maildir(REPORT, TO, SUBJECT, key="k", maildir=str(tmp_path)) == message_id("k")
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
