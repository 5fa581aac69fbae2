"""A bad cable: carries packets between two tun devices, loses some and delays all. `doctor_corpus_cable.py NAME NAME LOSS DELAY_S`.
In user space, because not every kernel has netem."""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def open_tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


def main():
    ends = [open_tun(name) for name in sys.argv[1:3]]
    loss, delay = float(sys.argv[3]), float(sys.argv[4])
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    print("ready", flush=True)
    draw = random.Random(1).random
    due, count = [], 0
    while True:
        timeout = max(0.0, due[0][0] - time.monotonic()) if due else None
        for fd in select.select(ends, [], [], timeout)[0]:
            for _ in range(64):
                try:
                    packet = os.read(fd, 65536)
                except OSError:
                    break
                if draw() >= loss:
                    count += 1
                    heapq.heappush(due, (time.monotonic() + delay, count, other[fd], packet))
        now = time.monotonic()
        while due and due[0][0] <= now:
            _, _, fd, packet = heapq.heappop(due)
            try:
                os.write(fd, packet)
            except OSError:
                pass  # a full queue, or the device is not up yet: lost, as on a cable


main()
