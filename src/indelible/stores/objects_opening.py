"""Opening object storage by a URL, and the checks before anything is promised.

Owns: what a URL may say, and the mark that tells a store from other things in a bucket.
Must never: show a credential; write beside what is not ours.
Invariant: a store that was opened for writing honours put-if-absent.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from indelible.errors import Misuse, StoreUnavailable
from indelible.stores.addresses import shown
from indelible.stores.objects_bucket import Bucket, Remote
from indelible.stores.objects_entry import FORMAT, Format, decode, encode
from indelible.stores.objects_folder import Folder

_OPTIONS = {"s3": ("endpoint", "region"), "gs": ("endpoint",), "az": ("endpoint", "account")}
_USD_PER_PUT = {"s3": 0.005 / 1000, "gs": 0.005 / 1000, "az": 0.05 / 10_000}
"""List prices of the usual class of storage; a test holds them against those of `indelible bill`."""
_TIMEOUTS = {"timeout": "60s", "connect_timeout": "5s"}
_RETRY: dict[str, Any] = {"max_retries": 2}
_FILES = (".db", ".sqlite", ".sqlite3")


class Opened(NamedTuple):
    """Where the objects are, the URL that leads there again, and whether what is acknowledged survives power loss."""

    bucket: Bucket
    url: str
    durable: bool


def opened(url: str, durability: str, readonly: bool) -> Opened:
    """The bucket that `url` names. Raises `Misuse` for a URL that names none."""
    if durability not in ("full", "os"):
        raise Misuse(f"durability={durability!r} is not known", hint='durability="full" or durability="os"')
    scheme = url.partition(":")[0].lower()
    if scheme == "file":
        return _folder(url, durability, readonly)
    return _remote(url, scheme)


def prepared(bucket: Bucket, readonly: bool) -> None:
    """Check that what lies there is ours, or make it so. Raises `Misuse`, `FormatTooNew`, `StoreUnavailable`."""
    found = bucket.get(FORMAT)
    mark = encode(Format("indelible"))
    if found is not None:
        decode(Format, found.data, f"{bucket.where}: {FORMAT}")
        if not readonly and bucket.create(FORMAT, found.data):
            raise _ignores_condition(bucket)
        return
    other = next((item.path for chunk in bucket.list("") for item in chunk), None)
    if other is not None:
        raise Misuse(
            f"{bucket.where} holds something else than a store, such as {other[:80]!a}",
            hint="name an empty place: add a folder to the URL",
            store=bucket.where,
        )
    if readonly:
        raise StoreUnavailable(
            f"{bucket.where} holds no store, and a read-only one is not made",
            hint="open it once with readonly=False",
            store=bucket.where,
        )
    bucket.create(FORMAT, mark)
    if bucket.create(FORMAT, mark):
        raise _ignores_condition(bucket)


def usd_per_put(url: str) -> float:
    """What the provider charges for one write, in dollars; 0 for a folder, and for a server of one's own."""
    parts = urlsplit(url)
    endpoint = dict(parse_qsl(parts.query)).get("endpoint", "")
    return 0.0 if endpoint and not endpoint.endswith("amazonaws.com") else _USD_PER_PUT.get(parts.scheme.lower(), 0.0)


def _ignores_condition(bucket: Bucket) -> Misuse:
    return Misuse(
        f"the server of {bucket.where} ignores If-None-Match: two writers could overwrite each other there",
        hint="use S3, Google Cloud Storage, Azure, or a server that honours conditional writes",
        store=bucket.where,
    )


def _folder(url: str, durability: str, readonly: bool) -> Opened:
    rest = url.split(":", 1)[1]
    if "?" in rest or "#" in rest:
        raise Misuse(f"store={url!r}: no options are read from such a URL", hint="file:///srv/agents")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise Misuse(f"store={url!r}: a folder is on this machine", hint="file:///srv/agents (three slashes)")
        rest = slash + path
    root = os.path.realpath(os.path.expanduser(unquote(rest)))
    if not rest.strip("/"):
        raise Misuse(f"store={url!r} names no folder", hint="file:///srv/agents")
    if os.path.isfile(root) or root.endswith(_FILES):
        raise Misuse(f"store={url!r} names a file, and file: keeps a store in a folder", hint=f"sqlite:///{root}")
    if not os.path.isdir(root):
        if readonly:
            raise StoreUnavailable(f"there is no folder {root}", hint="indelible ls --store URL", store=root)
        try:
            os.makedirs(os.path.dirname(root), exist_ok=True)
            os.mkdir(root, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreUnavailable(
                f"the folder {root} cannot be made: {os.strerror(error.errno or 0)}",
                hint=f"ls -ld {os.path.dirname(root)}",
                store=root,
            ) from error
    sync = durability == "full"
    return Opened(Folder(root, sync=sync), f"file://{root}", sync)


def _remote(url: str, scheme: str) -> Opened:
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise Misuse(
            f"a {scheme}: URL holds no credentials; they are taken from the environment",
            hint="export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...   # or the like of your provider",
        )
    if not parts.netloc:
        raise Misuse(f"store={shown(url)!r} names no bucket", hint=f"{scheme}://bucket/folder")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS[scheme]:
            known = " and ".join(f"{option}=" for option in _OPTIONS[scheme])
            raise Misuse(f"a {scheme}: URL has no option {name[:40]!r}", hint=f"{known} are known")
    prefix = "/".join(part for part in unquote(parts.path).split("/") if part)
    if len(prefix.encode()) > 400:
        raise Misuse(
            "the folder in the URL is too long: names in object storage have 1,024 bytes", hint="a shorter one"
        )
    endpoint = options.get("endpoint", "")
    if "@" in endpoint:
        raise Misuse(
            "endpoint= holds no credentials; they are taken from the environment",
            hint="export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...   # or the like of your provider",
        )
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise Misuse(f"endpoint={endpoint[:80]!r} is no address", hint="endpoint=https://host:port")
    where = f"{scheme}://{parts.netloc}" + (f"/{prefix}" if prefix else "") + (f" at {endpoint}" if endpoint else "")
    try:
        store = _store(scheme, parts.netloc, prefix, options)
    except ImportError:
        raise
    except Exception as error:
        first = str(error).split("\n", 1)[0][:200]
        raise Misuse(
            f"{where} cannot be used: {first}", hint="see docs/stores/object-storage.md for the variables"
        ) from error
    return Opened(Remote(store, where), url, True)


def _store(scheme: str, bucket: str, prefix: str, options: dict[str, str]) -> Any:
    from obstore import store

    endpoint = options.get("endpoint")
    common: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": {**_TIMEOUTS, "allow_http": (endpoint or "").startswith("http://")},
        "retry_config": _RETRY,
    }
    if scheme == "s3":
        given = {"endpoint": endpoint, "region": options.get("region")}
        if endpoint:
            given["virtual_hosted_style_request"] = False  # type: ignore[assignment]
        return store.S3Store(bucket, **_given(given), **common)
    if scheme == "gs":
        return store.GCSStore(bucket, **_given({"base_url": endpoint}), **common)
    return store.AzureStore(bucket, **_given({"endpoint": endpoint, "account_name": options.get("account")}), **common)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
