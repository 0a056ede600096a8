"""Handing the finished report over: into a Maildir, which can be asked what arrived, or over SMTP, which cannot.

Owns: the delivery spec, the mail and its Message-ID, writing it, and looking for it.
Must never: print a password, count a half-written mail as delivered, or change a Maildir while looking into it.
Invariant: one idempotency key gives one Message-ID, so a delivery can be recognised; delivering twice leaves two
mails, so that a repetition can be seen.
"""

from __future__ import annotations

import errno
import hashlib
import os
import smtplib
import ssl
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from indelible.errors import DidNotHappen, Misuse

SENDER = "indelible@localhost"
HINT = "--deliver maildir:out/   or   --deliver smtp://user:password@host:587?to=you@example.org"
_HEAD_BYTES = 16_384


@dataclass(frozen=True)
class Delivery:
    """Where a report goes. `maildir` is a folder's absolute path, or None; `smtp` may hold a password, or is None."""

    to: str
    maildir: str | None = None
    smtp: str | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """What may be shown and stored: the target without its password."""
        if self.maildir is not None:
            return f"maildir:{self.maildir}"
        parts = urlsplit(self.smtp or "")
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def parse_delivery(spec: str, to: str | None = None) -> Delivery:
    """Read `maildir:FOLDER` or `smtp://[user:password@]host[:port]` (`smtps://` for TLS from the start).

    `to` is the recipient; for SMTP it may stand in the spec as `?to=`. A relative folder is made absolute here, once.
    Raises `Misuse`, which never repeats the spec.
    """
    scheme, _, rest = spec.partition(":")
    if scheme == "maildir":
        if not rest:
            raise Misuse("the delivery names no folder", hint=HINT)
        folder = os.path.abspath(os.path.expanduser(rest))
        # The Maildir itself is made on delivery; a missing parent is a typing error, and better found out at the start.
        if not os.path.isdir(os.path.dirname(folder)):
            raise Misuse(
                f"the folder {os.path.dirname(folder)!r} for the Maildir does not exist",
                hint=f"mkdir -p '{os.path.dirname(folder)}'",
            )
        return Delivery(_recipient(to or "you@localhost"), maildir=folder)
    if scheme in ("smtp", "smtps"):
        parts = _smtp_parts(spec)
        asked = [
            unquote(value) for key, _, value in (pair.partition("=") for pair in parts.query.split("&")) if key == "to"
        ]
        return Delivery(_recipient(to or (asked[0] if asked else "")), smtp=spec)
    raise Misuse("the delivery is neither a Maildir nor an SMTP server", hint=HINT)


def _smtp_parts(url: str) -> SplitResult:
    problem = Misuse("the SMTP address names no host, or no valid port", hint=HINT)
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise problem
    except ValueError:
        raise problem from None
    return parts


def _recipient(to: str) -> str:
    if not to.strip():
        raise Misuse("the report has no recipient", hint=HINT)
    try:
        address = Address(addr_spec=to.strip())
        address.addr_spec.encode("ascii")
    except (ValueError, IndexError):  # the parser of addresses raises both, and more kinds of ValueError
        address = None
    if address is None or not address.username or not address.domain:
        raise Misuse("the recipient is not a mail address", hint="you@example.org") from None
    return address.addr_spec


def message_id(key: str) -> str:
    """The Message-ID of the mail that is sent under an idempotency key."""
    return f"<{_digest(key)}@indelible.localhost>"


def _digest(key: str) -> str:
    # A key is opaque; its digest is safe in a header and as a file name.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def compose(report: str, to: str, subject: str, *, key: str) -> bytes:
    """The mail, as bytes with plain line ends; the same arguments give the same bytes."""
    mail = EmailMessage(policy=default)
    mail["From"] = SENDER
    mail["To"] = _recipient(to)
    # A header is one line, whatever the objective was; and mail knows no lone surrogates.
    mail["Subject"] = " ".join(_encodable(subject).replace("\0", " ").split())[:200] or "Report"
    mail["Message-ID"] = message_id(key)
    mail.set_content(_encodable(report).replace("\0", "\N{REPLACEMENT CHARACTER}"), cte="quoted-printable")
    return mail.as_bytes()


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def deliver_maildir(report: str, to: str, subject: str, *, key: str, maildir: str) -> str:
    """Put the report into a Maildir, made if it is missing; returns the Message-ID.

    On return the mail and its directory entry are durable. Raises `DidNotHappen` when nothing was put into `new/`
    for sure, `OSError` when that is not known.
    """
    raw = compose(report, to, subject, key=key)
    root = Path(maildir)
    temporary = root / "tmp" / f"{_digest(key)}.indelible"
    try:
        for folder in (root, root / "tmp", root / "new", root / "cur"):
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(folder.parent)
        # A mail of this name in tmp/ is the torn rest of an earlier attempt under the same key.
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise DidNotHappen(f"the Maildir cannot be written: {os.strerror(problem.errno or errno.EIO)}") from problem
    os.rename(temporary, _unused_name(root / "new", _digest(key)))
    _sync_folder(root / "new")
    return message_id(key)


def _unused_name(folder: Path, stem: str) -> Path:
    # To overwrite an earlier mail would hide that it was delivered twice.
    number = 1
    while (folder / f"{stem}.{number}.indelible").exists():
        number += 1
    return folder / f"{stem}.{number}.indelible"


def in_maildir(report: str, to: str, subject: str, *, key: str, maildir: str) -> str | None:  # noqa: ARG001
    """Whether the mail sent under `key` arrived: its Message-ID, or None when it is neither in `new/` nor in `cur/`.

    Takes the arguments of `deliver_maildir`. Looks at what the mails say, not at their names, which a mail reader may
    change. A mail in `tmp/` was not delivered. Raises `OSError` when the Maildir cannot be read, which settles nothing.
    """
    wanted = message_id(key)
    # new/ before cur/ and then new/ again: a mail reader may move the mail while this looks.
    for folder in ("new", "cur", "new"):
        if any(_message_id_of(path) == wanted for path in _mails(Path(maildir) / folder)):
            return wanted
    return None


def count_in_maildir(maildir: str, *, key: str) -> int:
    """How many mails carry the Message-ID of `key`: 1 after a delivery, whatever happened on the way."""
    folders = (Path(maildir) / name for name in ("new", "cur"))
    return sum(_message_id_of(path) == message_id(key) for folder in folders for path in _mails(folder))


def _mails(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []


def _message_id_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (FileNotFoundError, IsADirectoryError):  # moved away meanwhile, or no mail
        return None
    header, _, _ = head.replace(b"\r\n", b"\n").partition(b"\n\n")
    for line in header.replace(b"\n ", b" ").replace(b"\n\t", b" ").split(b"\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"message-id":
            return value.strip().decode("ascii", "replace")
    return None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def deliver_smtp(report: str, to: str, subject: str, *, key: str, url: str, timeout_s: float = 30.0) -> str:
    """Send the report over SMTP; returns the Message-ID once the server has taken the mail over.

    A server that was not reached, refused the login, or refused the mail raises `DidNotHappen`. Anything later, such as
    a lost connection, is passed on: the mail may have been taken. There is no way to ask, so there is no probe.
    """
    parts = _smtp_parts(url)
    raw = compose(report, to, subject, key=key).replace(b"\n", b"\r\n")
    recipient = _recipient(to)
    try:
        server = _connect(parts, timeout_s)
    except (OSError, smtplib.SMTPException) as problem:
        # Neither the address nor the server's words are repeated: both may hold what belongs to the login.
        raise DidNotHappen(
            f"the mail server was not reached, or refused the login ({type(problem).__name__})"
        ) from None
    try:
        server.sendmail(SENDER, [recipient], raw)
    except (smtplib.SMTPSenderRefused, smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError) as problem:
        raise DidNotHappen(f"the mail server refused the mail ({type(problem).__name__})") from None
    finally:
        server.close()
    return message_id(key)


def _connect(parts: SplitResult, timeout_s: float) -> smtplib.SMTP:
    host = parts.hostname or ""
    if parts.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            host, parts.port or 465, timeout=timeout_s, context=ssl.create_default_context()
        )
    else:
        server = smtplib.SMTP(host, parts.port or 25, timeout=timeout_s)
    try:
        server.ehlo_or_helo_if_needed()
        if parts.scheme == "smtp" and not _is_loopback(host):
            if server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
            elif parts.username:
                raise smtplib.SMTPNotSupportedError("no encryption: the password was not sent")
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
    except BaseException:
        server.close()
        raise
    return server


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
