"""Which file system a path lies on, and what may be relied on there.

Owns: the classes of file systems, and the reading of Linux's mount table.
Must never: touch the file in question.
Invariant: a file system it does not know counts as a local disk.
"""

from __future__ import annotations

import os

LOCAL, NETWORK, LOCKLESS = "local", "network", "lockless"

# Locks work between machines, but shared memory (which WAL needs) does not.
_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.grpcfuse", "fuse.juicefs", "glusterfs",
    "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs", "virtiofs", "vboxsf",
})  # fmt: skip
# Locks are not passed on to the other side, or it is not known that they are.
_LOCKLESS = frozenset({
    "davfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.goofys", "fuse.mountpoint-s3", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "fuse.blobfuse2", "fuse.curlftpfs",
})  # fmt: skip


def kind_of(fstype: str) -> str:
    """LOCAL, NETWORK (locks but no shared memory) or LOCKLESS, for a file system's name."""
    if fstype in _LOCKLESS:
        return LOCKLESS
    return NETWORK if fstype in _NETWORK else LOCAL


def fstype_at(path: str) -> str:
    """The name of the file system that holds the absolute `path`; "" where that cannot be told."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return fstype_in(file.read(), path)
    except OSError:
        return ""


def fstype_in(mountinfo: str, path: str) -> str:
    """As `fstype_at`, from the text of a mount table. The longest, and among equals the last, mount wins."""
    best, found = -1, ""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = _unescaped(fields[4])
        inside = mount == os.sep or path == mount or path.startswith(mount + os.sep)
        if inside and len(mount) >= best:
            best, found = len(mount), after.split(" ", 1)[0]
    return found


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
