"""A slow disk: one file, through FUSE, a page at a time with a wait before each. `doctor_corpus_disk.py FILE FOLDER SECONDS`: it is
FOLDER/file. SIGUSR1: no more waits. (The layouts are those of linux/fuse.h, protocol 7.31.)"""

import ctypes
import errno
import os
import signal
import struct
import sys
import time

PAGE = 4096
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 29, 34, 36, 42)
ROOT, FILE = 1, 2
wait_s = float(sys.argv[3])


def fast(*_):
    global wait_s
    wait_s = 0.0


def main():
    source = os.open(sys.argv[1], os.O_RDONLY)
    size = os.fstat(source).st_size
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,max_read={PAGE},allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"slow", os.fsencode(sys.argv[2]), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    signal.signal(signal.SIGUSR1, fast)

    def attr(node):
        mode, length, links = (0o40755, 0, 2) if node == ROOT else (0o100644, size, 1)
        return struct.pack("<6Q10I", node, length, (length + 511) // 512, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, PAGE, 0)

    def answer(code, node, body):
        """The reply's bytes, or an error number."""
        if code == INIT:
            return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 1, 1, PAGE, 1, 1, 0, *[0] * 8)
        if code == LOOKUP:
            if node != ROOT or body.rstrip(b"\0") != b"file":
                return errno.ENOENT
            return struct.pack("<4Q2I", FILE, 0, 3600, 3600, 0, 0) + attr(FILE)
        if code == GETATTR:
            return struct.pack("<Q2I", 3600, 0, 0) + attr(node)
        if code in (OPEN, OPENDIR):
            return struct.pack("<Q2I", 1, 2 if code == OPEN else 0, 0)  # 2: what is in the page cache stays
        if code == READ:
            _, offset, count = struct.unpack_from("<2QI", body)
            time.sleep(wait_s)
            return os.pread(source, count, offset)
        if code == STATFS:
            return struct.pack("<5Q10I", 0, 0, 0, 0, 0, PAGE, 255, PAGE, *[0] * 7)
        if code in (RELEASE, RELEASEDIR, FLUSH, ACCESS):
            return b""
        return errno.ENOSYS

    while True:
        try:
            request = os.read(device, PAGE * 64)
        except OSError as e:
            if e.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            return  # unmounted
        _, code, unique, node = struct.unpack_from("<2I2Q", request)
        if code in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        reply = answer(code, node, request[40:])
        head = (16, -reply, unique) if isinstance(reply, int) else (16 + len(reply), 0, unique)
        try:
            os.write(device, struct.pack("<IiQ", *head) + (b"" if isinstance(reply, int) else reply))
        except OSError as e:
            if e.errno != errno.ENOENT:  # the one who asked is gone
                raise


main()
